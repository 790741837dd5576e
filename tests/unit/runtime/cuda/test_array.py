"""Arrays on a GPU go in and out by DLPack and `__cuda_array_interface__`, without copies.

Memory of the processor says that it lies on a GPU; models run in Triton's interpreter, which reads it there."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import opweld
from opweld.errors import AssumptionError, InputError
from opweld.runtime.cuda.array import Borrowed, DeviceArray, borrowed, is_on_gpu
from opweld.runtime.cuda.dlpack import moved, tensor_of

STREAM = 77


class Dlpack:
    """An array of another library."""

    def __init__(self, array: np.ndarray[Any, Any], dtype: str = "", ordinal: int = 0) -> None:
        self.array, self.dtype, self.ordinal, self.streams = array, dtype or array.dtype.name, ordinal, list[Any]()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.ordinal

    def __dlpack__(self, *, stream: Any = None) -> Any:
        self.streams.append(stream)
        return moved(self.array.__dlpack__(), self.ordinal, self.dtype)


class Interface:
    """An array of another library, older."""

    def __init__(self, array: np.ndarray[Any, Any], stream: int | None = None) -> None:
        self.array, self.stream = array, stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        told = {"version": 3, "stream": self.stream, "strides": self.array.strides}
        return self.array.__array_interface__ | told


class Reader:
    """Copies as a machine does."""

    def read(self, array: np.ndarray[Any, Any], address: int, stream: int | None = None) -> None:
        import ctypes

        ctypes.memmove(array.ctypes.data, address, array.nbytes)


class Held:
    """Memory of a result."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array, self.address = array, array.ctypes.data


def made(array: np.ndarray[Any, Any], dtype: str = "") -> DeviceArray:
    return DeviceArray(array.shape, dtype or array.dtype.name, 0, Held(array), Reader())


NAMES = ("float32", "float64", "float16", "int8", "int64", "uint8", "uint16", "bool", "bfloat16", "float8_e4m3fn")


@pytest.mark.parametrize("dtype", NAMES)
def test_what_goes_out_comes_in_again(dtype: str) -> None:
    element = np.dtype(getattr(ml_dtypes, dtype, dtype))
    array = np.arange(6).astype(element).reshape(2, 3)
    given = made(array, dtype)
    found = borrowed("x", given, STREAM)
    assert (found.shape, found.dtype, found.nbytes, found.ordinal) == ((2, 3), dtype, array.nbytes, 0)
    assert found.data_ptr() == array.ctypes.data
    assert np.asarray(given).tolist() == array.tolist() and np.asarray(given).dtype == element


def test_empty_arrays_and_scalars() -> None:
    for shape in ((), (0, 3), (2, 0)):
        assert borrowed("x", made(np.zeros(shape, np.float32)), STREAM).shape == shape


def test_capsules_keep_the_memory() -> None:
    given = made(np.ones(3, np.float32))
    memory = weakref.ref(given._memory)  # pyright: ignore[reportPrivateUsage]
    capsule = given.__dlpack__(stream=STREAM)
    del given
    gc.collect()
    assert memory() is not None and tensor_of(capsule).device_type == 2
    del capsule
    gc.collect()
    assert memory() is None


def test_the_older_interface() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = borrowed("x", Interface(array, 5), STREAM)
    assert (found.shape, found.dtype, found.data_ptr(), found.waits_for) == ((2, 3), "float32", array.ctypes.data, 5)
    told = made(array).__cuda_array_interface__
    assert (told["shape"], told["typestr"], told["data"]) == ((2, 3), "<f4", (array.ctypes.data, False))
    assert not hasattr(made(np.zeros(2, np.uint16), "bfloat16"), "__cuda_array_interface__")


def test_what_cannot_be_taken_is_told() -> None:
    wide = np.zeros((4, 6), np.float32)[:, ::2]
    for given in (Dlpack(wide), Interface(wide)):
        with pytest.raises(InputError, match=r"input 'x': an array on a GPU must be dense.*strides"):
            borrowed("x", given, STREAM)
    with pytest.raises(InputError, match="input 'x': elements of DLPack's type 5 of 64 bits are unknown"):
        borrowed("x", Dlpack(np.zeros(2, np.complex64)), STREAM)
    with pytest.raises(InputError, match="input 'x': elements of complex64 are unknown"):
        borrowed("x", Interface(np.zeros(2, np.complex64)), STREAM)

    class Refuses(Dlpack):
        def __dlpack__(self, *, stream: Any = None) -> Any:
            raise BufferError("it requires gradients")

    with pytest.raises(InputError, match="input 'x': Refuses is not handed out by DLPack: it requires gradients"):
        borrowed("x", Refuses(wide), STREAM)


def test_what_lies_on_a_gpu() -> None:
    array = np.zeros(2, np.float32)
    on_gpu = [Dlpack(array), Interface(array), made(array)]
    assert [is_on_gpu(value) for value in (*on_gpu, array, 1.0, [1], array[0], None)] == [True] * 3 + [False] * 5


def compiled(body: str) -> opweld.Model:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {body}')
    return opweld.compile(model, target="sm_90")


def test_a_run_takes_and_returns_arrays_on_the_gpu() -> None:
    model = compiled("(float[n, 3] x, float[3] b, float s) => (float[n, 3] y, bool[n, 3] z) "
                     "{ p = Mul (x, s) y = Add (p, b) z = Greater (y, b) }")  # fmt: skip
    x, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)
    theirs = Dlpack(x)
    found = model.run({"x": theirs, "b": Interface(b, 1), "s": np.asarray(2, np.float32)})
    assert all(isinstance(value, DeviceArray) for value in found.values())
    assert np.asarray(found["y"]).tolist() == (2 * x + 1).tolist()
    assert np.asarray(found["z"]).tolist() == (x > 0).tolist()
    assert theirs.streams == [1]  # what the interpreter calls its stream
    again = model.run({"x": found["y"], "b": made(b), "s": np.asarray(1, np.float32)})
    assert np.asarray(again["y"]).tolist() == (2 * x + 2).tolist()
    host = model.run({"x": x, "b": b, "s": np.asarray(2, np.float32)})
    assert isinstance(host["y"], np.ndarray)


def test_arrays_that_do_not_fit_are_named() -> None:
    model = compiled("(float[n] x, float[n] b) => (float[n] y) { y = Add (x, b) }")
    x = np.ones(2, np.float32)
    with pytest.raises(InputError, match="input 'x': expected dtype float32, got int64 on the GPU"):
        model.run({"x": Dlpack(np.ones(2, np.int64)), "b": x})
    with pytest.raises(InputError, match="inputs lie on different GPUs, cuda:0, cuda:1"):
        model.run({"x": Dlpack(x), "b": Dlpack(x, ordinal=1)})
    with pytest.raises(InputError, match="input 'b' is missing"):
        model.run({"x": Dlpack(x)})
    with pytest.raises(InputError, match="'c' is not an input"):
        model.run({"x": Dlpack(x), "b": x, "c": x})
    with pytest.raises(AssumptionError, match=r"the inputs are x \(2,\), b \(3,\)"):
        model.run({"x": Dlpack(x), "b": made(np.ones(3, np.float32))})


def test_sizes_and_segments_that_data_decide() -> None:
    reshape = compiled("(float[2, 3] x, int64[2] s) => (float[a, b] y) { y = Reshape (x, s) }")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (y,) = reshape.run({"x": Dlpack(x), "s": Dlpack(np.array([3, 2]))}).values()
    assert np.asarray(y).tolist() == x.reshape(3, 2).tolist()
    found = compiled("(float[k] x) => (int64[r, n] y) { y = NonZero (x) }").run({"x": Dlpack(x.reshape(6))})
    assert isinstance(found["y"], DeviceArray) and np.asarray(found["y"]).tolist() == [[1, 2, 3, 4, 5]]


def test_a_borrowed_array_is_a_tensor_of_its_bytes() -> None:
    assert Borrowed((2, 3), "bfloat16", 64, 0, None, None).nbytes == 12

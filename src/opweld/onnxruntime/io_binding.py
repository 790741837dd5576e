"""Inputs and outputs bound to memory before a run, as in onnxruntime. Nothing is copied."""

from __future__ import annotations

import ctypes
import math
import operator
import sys
from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np

from opweld.errors import InputError
from opweld.runtime import dtypes
from opweld.runtime.library import address
from opweld.runtime.plan import Array

TYPE_NAMES = {
    "float32": "float", "float64": "double", "float8_e4m3fn": "float8e4m3fn", "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2", "float8_e5m2fnuz": "float8e5m2fnuz", "float8_e8m0fnu": "float8e8m0",
    "float4_e2m1fn": "float4e2m1",
}  # fmt: skip
"""Element types whose name differs in onnxruntime."""


MAX_RANK = 32
"""NumPy 1 has no arrays of more dims."""


def type_name(dtype: str) -> str:
    """The type of a tensor in onnxruntime's notation: tensor(float)."""
    return f"tensor({TYPE_NAMES.get(dtype, dtype)})"


def _dtype_of(element_type: object) -> np.dtype[Any]:
    """From a numpy type, a TensorProto code or a name."""
    if isinstance(element_type, int) and element_type in dtypes.NAMES:
        return dtypes.numpy_dtype(dtypes.NAMES[element_type])
    if isinstance(element_type, str) and element_type in dtypes.CODES:
        return dtypes.numpy_dtype(element_type)
    try:
        return np.dtype(cast(Any, element_type))
    except TypeError as error:
        raise InputError(f"{element_type!r} is not an element type") from error


def _check_device(device: object) -> None:
    if not isinstance(device, str) or device.lower() != "cpu":
        raise InputError(f"device {device!r}: this session runs on 'cpu'")


def _array_at(pointer: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """The caller's memory as an array. The caller keeps it alive."""
    count = _count(shape, dtype)
    if not pointer or not count:
        if count:
            raise InputError("a buffer's address is 0")
        return np.empty(tuple(shape), dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(pointer)
    return np.frombuffer(cast(Any, memory), dtype).reshape(tuple(shape))


def _count(shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    """The elements of a shape. Raises InputError for an invalid shape, or one too large to be addressed."""
    try:
        dims = [operator.index(dim) for dim in shape]
    except TypeError as error:
        raise InputError(f"shape {shape!r}: expected a list of whole numbers") from error
    if any(dim < 0 for dim in dims):
        raise InputError(f"shape {dims} has a negative dim")
    # Sizes of 0 are skipped, since NumPy multiplies the others too.
    if len(dims) > MAX_RANK or math.prod(filter(None, dims)) * dtype.itemsize > sys.maxsize:
        raise InputError(f"shape {dims} of {dtype} has more dims or elements than memory can hold")
    return math.prod(dims)


class OrtDevice:
    """The device of memory: the CPU."""

    def __init__(self, name: str = "cpu", device_id: int = 0) -> None:
        _check_device(name)
        self._id = device_id

    @staticmethod
    def make(ort_device_name: str, device_id: int = 0, vendor_id: int = -1) -> OrtDevice:
        """The device named cpu. Raises InputError for others."""
        return OrtDevice(ort_device_name, device_id)

    def device_type(self) -> int:
        """0, onnxruntime's number of the CPU."""
        return 0

    def device_id(self) -> int:
        """The number passed to the constructor."""
        return self._id


class OrtValue:
    """A tensor whose memory stays at the same address between runs."""

    def __init__(self, array: Array) -> None:
        self._array = array

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Array, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Wraps the array, uncopied where it is C-contiguous."""
        _check_device(device_type)
        if numpy_obj.dtype.name not in dtypes.CODES:
            raise InputError(f"an array of {numpy_obj.dtype} is not a tensor; dtypes may be {', '.join(dtypes.CODES)}")
        return cls(np.require(numpy_obj, requirements=["C_CONTIGUOUS", "ALIGNED"]))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, /, onnx_element_type: int) -> OrtValue:
        """Wraps the array, its bytes read as elements of this TensorProto type, which must be of the same size."""
        dtype = _dtype_of(onnx_element_type)
        if dtype.itemsize != data.dtype.itemsize:
            raise InputError(f"elements of {data.dtype} cannot be read as {dtype}: their sizes differ")
        return cls(np.require(data, requirements=["C_CONTIGUOUS", "ALIGNED"]).view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: object,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """Memory of this shape and type, not initialised."""
        _check_device(device_type)
        dtype = _dtype_of(element_type)
        _count(shape, dtype)
        try:
            return cls(np.empty(tuple(shape), dtype))
        except MemoryError as error:
            raise InputError(f"cannot allocate memory for shape {list(shape)} of {dtype}") from error

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """Wraps the memory of another library's tensor on the CPU."""
        return cls.ortvalue_from_numpy(np.from_dlpack(data))

    def numpy(self) -> Array:
        """The array itself, not a copy."""
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False and dtype is not None and np.dtype(dtype) != self._array.dtype:
            raise ValueError(f"{self._array.dtype} as {np.dtype(dtype)} needs a copy")
        array = self._array if dtype is None else self._array.astype(dtype, copy=False)
        return array.copy() if copy and array is self._array else array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self._array.__dlpack_device__()
        return int(kind), int(number)

    def update_inplace(self, np_arr: Array) -> None:
        """Copies `np_arr`, of equal shape and dtype, into this memory."""
        if np_arr.shape != self._array.shape or np_arr.dtype != self._array.dtype:
            raise InputError(f"expected {self._array.dtype} {self._array.shape}, got {np_arr.dtype} {np_arr.shape}")
        self._array[...] = np_arr

    def shape(self) -> list[int]:
        """The dims."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """The type, as in tensor(float)."""
        return type_name(self._array.dtype.name)

    def element_type(self) -> int:
        """The type as a TensorProto code."""
        return dtypes.CODES[self._array.dtype.name]

    def tensor_size_in_bytes(self) -> int:
        """Bytes of all elements."""
        return self._array.nbytes

    def data_ptr(self) -> int:
        """The address of the first element."""
        return address(self._array)

    def device_name(self) -> str:
        """Always cpu."""
        return "cpu"

    def is_tensor(self) -> bool:
        """Always true."""
        return True

    def is_sparse_tensor(self) -> bool:
        """Always false."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Always false."""
        return False

    def has_value(self) -> bool:
        """Always true."""
        return True


class Bindable(Protocol):
    """The part of a session's interface that a binding uses."""

    def get_inputs(self) -> Sequence[Any]:
        """Its inputs, each with a name."""
        ...

    def get_outputs(self) -> Sequence[Any]:
        """Its outputs, each with a name."""
        ...


class IOBinding:
    """The memory that a session's runs use for inputs and outputs."""

    def __init__(self, session: Bindable) -> None:
        self.session = session
        self._input_names = tuple(value.name for value in session.get_inputs())
        self._output_names = tuple(value.name for value in session.get_outputs())
        self.feeds: dict[str, Array] = {}
        self.targets: dict[str, Array | None] = {}
        """Bound outputs in the order of binding; None where the run allocates the memory."""
        self.results: dict[str, Array] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """Feeds the array, which is not copied where it is C-contiguous."""
        self._check_input(name)
        self.feeds[name] = arr_on_cpu

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: object,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Feeds the memory at `buffer_ptr`."""
        _check_device(device_type)
        self._check_input(name)
        self.feeds[name] = _array_at(buffer_ptr, shape, _dtype_of(element_type))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Feeds the value's memory, as it is when the run starts."""
        self._check_input(name)
        self.feeds[name] = ortvalue.numpy()

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: object = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Has runs write the output to the memory at `buffer_ptr`, or to new memory where None."""
        _check_device(device_type)
        self._check_output(name)
        if buffer_ptr is None:
            self.targets[name] = None
            return
        if shape is None or element_type is None:
            raise InputError(f"output {name!r}: an address needs an element_type and a shape")
        self.targets[name] = _array_at(buffer_ptr, shape, _dtype_of(element_type))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Has runs write the output to the value's memory."""
        self._check_output(name)
        self.targets[name] = ortvalue.numpy()

    def _check_input(self, name: str) -> None:
        if name not in self._input_names:
            raise InputError(f"{name!r} is not an input of the model; its inputs are {', '.join(self._input_names)}")

    def _check_output(self, name: str) -> None:
        if name not in self._output_names:
            raise InputError(f"{name!r} is not an output of the model; its outputs are {', '.join(self._output_names)}")

    def synchronize_inputs(self) -> None:
        """Nothing to wait for on a CPU."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for on a CPU."""

    def copy_outputs_to_cpu(self) -> list[Array]:
        """The outputs of the last run, in the order of binding; not copied, since they are in CPU memory."""
        return [self.results[name] for name in self.targets if name in self.results]

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order of binding."""
        return [OrtValue(array) for array in self.copy_outputs_to_cpu()]

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """The same."""
        return self.get_outputs()

    def clear_binding_inputs(self) -> None:
        """Removes all bound inputs."""
        self.feeds.clear()

    def clear_binding_outputs(self) -> None:
        """Removes all bound outputs."""
        self.targets.clear()
        self.results.clear()

"""Arrays on a GPU: those of any library that says where they lie, and those that a run returns. Imports NumPy only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np

from opweld.errors import InputError
from opweld.runtime import dtypes
from opweld.runtime.cuda.dlpack import CUDA, dtype_name, moved, tensor_of
from opweld.runtime.plan import Array

_PLAIN: Final = {1: np.uint8, 2: np.uint16}
"""What NumPy sees elements as that it has no type for, by their bytes."""


class Held(Protocol):
    """Memory that stays while this is referred to."""

    @property
    def address(self) -> int:
        """Where it begins."""
        ...


class Reader(Protocol):
    """What copies memory of the GPU to the host."""

    def read(self, array: Array, address: int, stream: int | None = None) -> None:
        """Fills an array of the host."""
        ...


class ByDlpack(Protocol):
    """An array of a library that hands out its memory by DLPack."""

    def __dlpack__(self, *, stream: Any = None) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


class ByInterface(Protocol):
    """An array on a GPU of a library that says where it lies."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


class DeviceArray:
    """An array on a GPU, dense, whose elements are there: a result of `Model.run`.

    Other libraries take it without a copy, by DLPack (`torch.from_dlpack(y)`, `jax.dlpack.from_dlpack(y)`,
    `cupy.from_dlpack(y)`) or as `__cuda_array_interface__`; `np.asarray(y)` copies it to the host.

    Attributes:
        shape: its sizes. dtype: its name, "bfloat16" also where NumPy has none. nbytes: its bytes.
        ordinal: the number of the GPU.
    """

    def __init__(self, shape: tuple[int, ...], dtype: str, ordinal: int, memory: Held, reader: Reader) -> None:
        self.shape, self.dtype, self.ordinal = shape, dtype, ordinal
        self._memory, self._reader = memory, reader
        self._element = dtypes.numpy_dtype(dtype)
        self.nbytes = math.prod(shape) * self._element.itemsize

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{list(self.shape)} on cuda:{self.ordinal})"

    def data_ptr(self) -> int:
        """Its address."""
        return self._memory.address

    def numpy(self) -> Array:
        """A copy on the host."""
        array = np.empty(self.shape, self._element)
        self._reader.read(array, self.data_ptr())
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("an array on a GPU becomes one of NumPy by a copy only")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.ordinal

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, **_: Any) -> Any:
        """A capsule. No stream waits for anything: the elements are there."""
        # NumPy makes it, and has code that gives it back at any time, also when Python ends. It does not look at the
        # elements.
        return moved(np.asarray(_Addresses(self)).__dlpack__(), self.ordinal, self.dtype)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        plain = _plain(self._element)
        if plain != self._element or plain.name != self.dtype:
            raise AttributeError(f"__cuda_array_interface__ has no {self.dtype}; use __dlpack__")
        data = self.data_ptr() if self.nbytes else 0, False
        return {"shape": self.shape, "typestr": plain.str, "data": data, "version": 3, "strides": None, "stream": None}


class _Addresses:
    """An array over an address, for NumPy to describe: its elements are not there for the processor."""

    def __init__(self, array: DeviceArray) -> None:
        self._array = array  # keeps the memory
        self.__array_interface__ = {
            "shape": array.shape,
            "typestr": _plain(dtypes.numpy_dtype(array.dtype)).str,
            "data": (array.data_ptr(), False),
            "version": 3,
        }


def _plain(element: np.dtype[Any]) -> np.dtype[Any]:
    """What NumPy itself has for elements of a type."""
    return element if element.isbuiltin == 1 else np.dtype(_PLAIN[element.itemsize])


class Borrowed:
    """An array of another library on a GPU, dense. Keeps it.

    Attributes:
        shape: its sizes. dtype: its name. nbytes: its bytes. ordinal: the number of the GPU.
        waits_for: the stream, by its handle, that has to come to its end first; None where nothing has.
    """

    def __init__(
        self, shape: Sequence[int], dtype: str, address: int, ordinal: int, waits_for: int | None, keeps: Any
    ) -> None:
        self.shape, self.dtype, self.ordinal, self.waits_for = tuple(shape), dtype, ordinal, waits_for
        self.nbytes = math.prod(shape) * dtypes.numpy_dtype(dtype).itemsize
        self._address, self._keeps = address, keeps

    def data_ptr(self) -> int:
        """Its address."""
        return self._address


def is_on_gpu(value: Any) -> bool:
    """Whether a value says that it lies on a GPU of NVIDIA."""
    if isinstance(value, np.ndarray | np.generic | int | float | list | tuple):
        return False
    told = getattr(value, "__dlpack_device__", None)
    return told()[0] == CUDA if told is not None else hasattr(value, "__cuda_array_interface__")


def ordinal_of(value: Any) -> int:
    """The number of the GPU that such a value lies on; the first, where it does not say."""
    told = getattr(value, "__dlpack_device__", None)
    return int(told()[1]) if told is not None else 0


def borrowed(name: str, value: Any, stream: int) -> Borrowed:
    """An array of another library for the input of a name, ready for what a stream is given from now on.

    Raises InputError where it has gaps between elements, no elements of a type of opweld, or is not handed out."""
    try:
        if hasattr(value, "__dlpack__"):
            return _from_dlpack(name, value, stream)
        return _from_interface(name, value)
    except InputError:
        raise
    except Exception as error:  # another library raises whatever it does
        raise InputError(f"input {name!r}: {type(value).__name__} is not handed out by DLPack: {error}") from error


def _from_dlpack(name: str, value: Any, stream: int) -> Borrowed:
    capsule = value.__dlpack__(stream=stream)
    tensor = tensor_of(capsule)
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    dtype = dtype_name(tensor.code, tensor.bits) if tensor.lanes == 1 else ""
    if dtype not in dtypes.CODES:
        raise InputError(f"input {name!r}: elements of DLPack's type {tensor.code} of {tensor.bits} bits are unknown")
    _check_dense(name, shape, strides, 1)
    address = (tensor.data or 0) + tensor.byte_offset
    return Borrowed(shape, dtype, address, tensor.device_id, None, capsule)


def _from_interface(name: str, value: Any) -> Borrowed:
    told = value.__cuda_array_interface__
    element = np.dtype(told["typestr"])
    if element.name not in dtypes.CODES:
        raise InputError(f"input {name!r}: elements of {element} are unknown")
    _check_dense(name, told["shape"], told.get("strides"), element.itemsize)
    return Borrowed(told["shape"], element.name, told["data"][0], 0, told.get("stream"), value)


def _check_dense(name: str, shape: Sequence[int], strides: Sequence[int] | None, step: int) -> None:
    if strides is None or 0 in shape:
        return
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            raise InputError(
                f"input {name!r}: an array on a GPU must be dense, in C order, but has the strides {tuple(strides)}; "
                "make it contiguous first"
            )
        step *= size

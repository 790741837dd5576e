"""Memory of a GPU as DLPack says it, https://dmlc.github.io/dlpack: read from capsules, and put into some of NumPy's.

Imports NumPy only."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p, py_object
from typing import Any, ClassVar, Final

CUDA: Final = 2
"""`kDLCUDA`, the kind of device."""

_CAPSULE: Final = b"dltensor"

_NUMBERS: Final = {0: "int", 1: "uint", 2: "float"}
_OTHERS: Final = {
    (4, 16): "bfloat16",
    (6, 8): "bool",
    (10, 8): "float8_e4m3fn",
    (11, 8): "float8_e4m3fnuz",
    (12, 8): "float8_e5m2",
    (13, 8): "float8_e5m2fnuz",
    (14, 8): "float8_e8m0fnu",
}
"""Codes and bits of element types, as opweld calls these; other floats, integers are called by code and bits."""


class _Tensor(Structure):
    """`DLTensor`."""

    _fields_: ClassVar = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


def tensor_of(capsule: Any) -> _Tensor:
    """What a capsule holds, which stays its own: whoever keeps the capsule keeps the memory."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = c_void_p, (py_object, c_char_p)
    return _Tensor.from_address(get(capsule, _CAPSULE))


def dtype_name(code: int, bits: int) -> str:
    """An element type as opweld calls it; "" where it has none."""
    if code in _NUMBERS:
        return f"{_NUMBERS[code]}{bits}"
    return _OTHERS.get((code, bits), "")


def moved(capsule: Any, ordinal: int, dtype: str) -> Any:
    """A capsule of NumPy's over an address of a GPU, as one of that GPU, and of a dtype that NumPy has none for."""
    tensor = tensor_of(capsule)
    tensor.device_type, tensor.device_id = CUDA, ordinal
    for (code, bits), name in _OTHERS.items():
        if name == dtype:
            tensor.code, tensor.bits = code, bits
    return capsule

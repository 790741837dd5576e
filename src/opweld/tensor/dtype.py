"""Element types: their names, sizes, NumPy and ONNX counterparts."""

from __future__ import annotations

import enum
from typing import Any

import ml_dtypes
import numpy as np


class DType(enum.Enum):
    """An element type; the value is (short name, ONNX code, NumPy dtype)."""

    F32 = ("f32", 1, np.dtype(np.float32))
    U8 = ("u8", 2, np.dtype(np.uint8))
    I8 = ("i8", 3, np.dtype(np.int8))
    U16 = ("u16", 4, np.dtype(np.uint16))
    I16 = ("i16", 5, np.dtype(np.int16))
    I32 = ("i32", 6, np.dtype(np.int32))
    I64 = ("i64", 7, np.dtype(np.int64))
    BOOL = ("b8", 9, np.dtype(np.bool_))
    F16 = ("f16", 10, np.dtype(np.float16))
    F64 = ("f64", 11, np.dtype(np.float64))
    U32 = ("u32", 12, np.dtype(np.uint32))
    U64 = ("u64", 13, np.dtype(np.uint64))
    BF16 = ("bf16", 16, np.dtype(ml_dtypes.bfloat16))

    def __init__(self, short: str, onnx: int, numpy: np.dtype[Any]) -> None:
        self.short = short
        self.onnx = onnx
        self.numpy = numpy

    def __repr__(self) -> str:
        return self.short

    @property
    def bytes(self) -> int:
        """Bytes of one element."""
        return int(self.numpy.itemsize)

    @property
    def is_float(self) -> bool:
        """Whether the type is a floating-point type."""
        return self in (DType.F32, DType.F64, DType.F16, DType.BF16)

    @property
    def is_integer(self) -> bool:
        """Whether the type is an integer type; bool is none."""
        return not self.is_float and self is not DType.BOOL

    @property
    def is_signed(self) -> bool:
        """Whether the type has negative values."""
        return self.is_float or self in (DType.I8, DType.I16, DType.I32, DType.I64)

    @staticmethod
    def of_onnx(code: int) -> DType:
        """The type with this `TensorProto.DataType` code; ValueError when opweld has none."""
        for dtype in DType:
            if dtype.onnx == code:
                return dtype
        raise ValueError(f"element type {code} is not supported")

    @staticmethod
    def of_numpy(dtype: np.dtype[Any]) -> DType:
        """The type of a NumPy dtype in native byte order; ValueError when opweld has none."""
        for candidate in DType:
            if candidate.numpy == dtype:
                return candidate
        raise ValueError(f"element type {dtype} is not supported")

    @staticmethod
    def of_short(short: str) -> DType:
        """The type with this printed name; ValueError when there is none."""
        for dtype in DType:
            if dtype.short == short:
                return dtype
        raise ValueError(f"no element type is called {short!r}")

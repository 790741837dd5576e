"""Element types: their names, sizes, NumPy and ONNX counterparts, and the types in which they are computed."""

from __future__ import annotations

import enum
from typing import Any

import ml_dtypes
import numpy as np

_FEWER_BITS = {"u4": 4, "i4": 4, "f4e2m1": 4, "u2": 2, "i2": 2}


class DType(enum.Enum):
    """An element type; the value is (short name, ONNX code, NumPy dtype).

    The types of 8 bits and fewer other than int8, uint8 and bool are storage-only: an element is a byte, whose low
    `bits` encode the number. No operator computes with them; they are moved, and converted to other types.
    """

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
    F8E4M3FN = ("f8e4m3fn", 17, np.dtype(ml_dtypes.float8_e4m3fn))
    F8E4M3FNUZ = ("f8e4m3fnuz", 18, np.dtype(ml_dtypes.float8_e4m3fnuz))
    F8E5M2 = ("f8e5m2", 19, np.dtype(ml_dtypes.float8_e5m2))
    F8E5M2FNUZ = ("f8e5m2fnuz", 20, np.dtype(ml_dtypes.float8_e5m2fnuz))
    U4 = ("u4", 21, np.dtype(ml_dtypes.uint4))
    I4 = ("i4", 22, np.dtype(ml_dtypes.int4))
    F4E2M1 = ("f4e2m1", 23, np.dtype(ml_dtypes.float4_e2m1fn))
    F8E8M0 = ("f8e8m0", 24, np.dtype(ml_dtypes.float8_e8m0fnu))
    U2 = ("u2", 25, np.dtype(ml_dtypes.uint2))
    I2 = ("i2", 26, np.dtype(ml_dtypes.int2))

    def __init__(self, short: str, onnx: int, numpy: np.dtype[Any]) -> None:
        self.short = short
        self.onnx = onnx
        self.numpy = numpy

    def __repr__(self) -> str:
        return self.short

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory."""
        return int(self.numpy.itemsize)

    @property
    def bits(self) -> int:
        """Significant bits of one element; fewer than those of `bytes` for types of less than a byte."""
        return _FEWER_BITS.get(self.short, 8 * self.bytes)

    @property
    def is_float(self) -> bool:
        """Whether the type is a floating-point type."""
        return self.short.startswith(("f", "bf"))

    @property
    def is_integer(self) -> bool:
        """Whether the type is an integer type; bool is not."""
        return self.short.startswith(("i", "u"))

    @property
    def is_signed(self) -> bool:
        """Whether the type has negative values."""
        return self.short.startswith("i") or (self.is_float and self is not DType.F8E8M0)

    @property
    def is_storage_only(self) -> bool:
        """Whether elements are only stored, and converted before any computation."""
        return self.bytes == 1 and self not in (DType.U8, DType.I8, DType.BOOL)

    @property
    def computed(self) -> DType:
        """The type in which operators on this one are computed, which represents all of its values; itself for most
        types."""
        if self.is_float:
            return self if self in (DType.F32, DType.F64) else DType.F32
        if not self.is_storage_only:
            return self
        return DType.I8 if self.is_signed else DType.U8

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest value of an integer type."""
        half = 1 << (self.bits - 1)
        return (-half, half - 1) if self.is_signed else (0, 2 * half - 1)

    @property
    def greatest(self) -> float:
        """The greatest finite value of a storage-only floating-point type."""
        values = np.arange(1 << self.bits, dtype=np.uint8).view(self.numpy).astype(np.float64)
        return float(values[np.isfinite(values)].max())

    def wrapped(self, value: int) -> int:
        """An integer wrapped around to an integer type."""
        low, _ = self.limits
        return ((value - low) & ((1 << self.bits) - 1)) + low

    def code(self, value: float) -> int:
        """The byte that encodes a value in a storage-only type."""
        return np.asarray(value, self.numpy).tobytes()[0]

    @staticmethod
    def of_onnx(code: int) -> DType:
        """The type with this `TensorProto.DataType` code; ValueError when it is not supported."""
        for dtype in DType:
            if dtype.onnx == code:
                return dtype
        raise ValueError(f"element type {code} is not supported")

    @staticmethod
    def of_numpy(dtype: np.dtype[Any]) -> DType:
        """The type of a NumPy dtype in native byte order; ValueError when it is not supported."""
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

"""How types, constants and operators are spelled in C: names of `opweld_vector.h`, `opweld_math.h`, `opweld_kernel.h`.

A register holds a vector of `OPW_LANES` elements. Booleans are masks of int32 (-1 or 0). float16 and bfloat16 are
computed in float32 and rounded to their type after every operation, as the model's types say.
"""

from __future__ import annotations

import math

import numpy as np

from opweld.codegen.c.integers import literal
from opweld.tensor.dtype import DType

MEMORY: dict[DType, str] = {
    DType.F32: "float",
    DType.F64: "double",
    DType.U8: "uint8_t",
    DType.I8: "int8_t",
    DType.U16: "uint16_t",
    DType.I16: "int16_t",
    DType.I32: "int32_t",
    DType.I64: "int64_t",
    DType.U32: "uint32_t",
    DType.U64: "uint64_t",
    DType.BOOL: "uint8_t",
    DType.F16: "uint16_t",
    DType.BF16: "uint16_t",
}
"""The C type of an element in memory."""

_NARROW_FLOATS = (DType.F16, DType.BF16)


def register(dtype: DType) -> DType:
    """The type that a value is computed in."""
    return DType.F32 if dtype in _NARROW_FLOATS else dtype


def vector_type(dtype: DType) -> str:
    """The C type of a vector of values."""
    return "vi32" if dtype is DType.BOOL else "v" + register(dtype).short


def scalar_type(dtype: DType) -> str:
    """The C type of one value, as computed."""
    return "int32_t" if dtype is DType.BOOL else MEMORY[register(dtype)]


def scalar_literal(value: float | int | bool, dtype: DType) -> str:
    """A C literal of one value."""
    if dtype is DType.BOOL:
        return "-1" if value else "0"
    if not dtype.is_float:
        text = literal(int(value))
        return text + "u" if dtype in (DType.U32, DType.U64) and int(value) >= 1 << 31 else text
    number = float(value)
    if math.isnan(number):
        return "NAN"
    if math.isinf(number):
        return "INFINITY" if number > 0 else "-INFINITY"
    if register(dtype) is DType.F32:
        text = str(np.float32(number))
        return (text if any(mark in text for mark in ".e") else text + ".0") + "f"
    text = repr(number)
    return text if any(mark in text for mark in ".e") else text + ".0"


def vector_literal(value: float | int | bool, dtype: DType) -> str:
    """A vector that holds one value in every lane."""
    if dtype is DType.BOOL:
        return f"opw_splat_i32({-1 if value else 0})"
    return f"opw_splat_{register(dtype).short}({scalar_literal(value, dtype)})"


INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "bitand": "&", "bitor": "|", "bitxor": "^"}
"""Binary operators that are C operators on vectors; `div` for floats only."""

COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
"""Comparisons that are C operators."""

LOGIC = {
    "and": "{x} & {y}",
    "mul": "{x} & {y}",
    "min": "{x} & {y}",
    "or": "{x} | {y}",
    "add": "{x} | {y}",
    "max": "{x} | {y}",
    "xor": "{x} ^ {y}",
    "ne": "{x} ^ {y}",
    "eq": "~({x} ^ {y})",
    "lt": "~{x} & {y}",
    "gt": "{x} & ~{y}",
    "le": "~{x} | {y}",
    "ge": "{x} | ~{y}",
}
"""Binary operators on masks."""

NEUTRAL_INFIX = {"sum": "+", "prod": "*", "any": "|", "all": "&"}
"""Reductions that combine with a C operator."""

REDUCE = {"sum": "reduce_add", "prod": "reduce_mul", "max": "reduce_max", "min": "reduce_min"}
"""Functions that combine the lanes of a vector."""


def neutral(kind: str, dtype: DType) -> float | int | bool:
    """The value that does not change a reduction of the kind."""
    if kind in ("any", "all"):
        return kind == "all"
    if kind in ("sum", "prod"):
        return 0 if kind == "sum" else 1
    lowest = kind.startswith(("max", "argmax"))
    if dtype is DType.BOOL:
        return not lowest
    if dtype.is_float:
        return -math.inf if lowest else math.inf
    limits = np.iinfo(dtype.numpy)
    return int(limits.min if lowest else limits.max)

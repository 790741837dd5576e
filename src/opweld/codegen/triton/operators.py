"""Types, constants and operators in terms of Triton's language and of `functions.py`.

float16 and bfloat16 are computed in float32 and rounded to their type after every operation, as the model's types say.
Booleans are int1 in registers and bytes in memory. Codes, types that are only stored, are bytes; a cast of one says
what it stands for."""

from __future__ import annotations

import math

from opweld.errors import UnsupportedError
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Cast, Unary

MEMORY: dict[DType, str] = {
    DType.F32: "fp32",
    DType.F64: "fp64",
    DType.F16: "fp16",
    DType.BF16: "bf16",
    DType.U8: "u8",
    DType.I8: "i8",
    DType.U16: "u16",
    DType.I16: "i16",
    DType.I32: "i32",
    DType.U32: "u32",
    DType.I64: "i64",
    DType.U64: "u64",
    DType.BOOL: "u8",
    **{dtype: "u8" for dtype in DType if dtype.is_storage_only},
}
"""The type of an element in memory, as signatures of kernels name it."""

_LANGUAGE = {
    DType.F32: "tl.float32",
    DType.F64: "tl.float64",
    DType.F16: "tl.float16",
    DType.BF16: "tl.bfloat16",
    DType.U8: "tl.uint8",
    DType.I8: "tl.int8",
    DType.U16: "tl.uint16",
    DType.I16: "tl.int16",
    DType.I32: "tl.int32",
    DType.U32: "tl.uint32",
    DType.I64: "tl.int64",
    DType.U64: "tl.uint64",
    DType.BOOL: "tl.int1",
}

HALVES = (DType.F16, DType.BF16)


def register(dtype: DType) -> str:
    """The type of a value in registers."""
    return "tl.float32" if dtype in HALVES else stored(dtype)


def stored(dtype: DType) -> str:
    """The type that a value of this type is rounded to."""
    return "tl.uint8" if dtype.is_storage_only else _LANGUAGE[dtype]


def literal(value: float | int | bool, dtype: DType) -> str:
    """A constant, of its type by itself where that matters."""
    if dtype is DType.BOOL:
        return "True" if value else "False"
    if not dtype.is_float:
        return f"tl.full([], {value}, {register(dtype)})"
    number = float(value)
    text = repr(number) if math.isfinite(number) else f'float("{number}")'
    return f"tl.full([], {text}, tl.float64)" if dtype is DType.F64 else text


def rounded(dtype: DType, text: str) -> str:
    """A value as its type has it, back in the type that it is computed in."""
    return f"({text}).to({stored(dtype)}).to(tl.float32)" if dtype in HALVES else text


_CALLS = {
    "abs": "tl.abs",
    "exp": "tl.exp",
    "log": "tl.log",
    "log1p": "log1p",
    "rsqrt": "tl.rsqrt",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "erf": "tl.erf",
    "sin": "tl.sin",
    "cos": "tl.cos",
    "tan": "tan",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
    "asinh": "asinh",
    "acosh": "acosh",
    "atanh": "atanh",
    "floor": "tl.floor",
    "ceil": "tl.ceil",
    "round": "rint",
    "softplus": "softplus",
}

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "bitand": "&",
    "bitor": "|",
    "bitxor": "^",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}

_LOGIC = {"and": "&", "mul": "&", "min": "&", "or": "|", "add": "|", "max": "|", "xor": "^", "ne": "^"}


def unary_text(node: Unary, x: str) -> str:
    """A unary operator on an operand."""
    op, dtype = node.op, node.x.dtype
    if op in ("floor", "ceil", "round") and not dtype.is_float:
        return x
    if op == "neg":
        return f"-{x}"
    if op == "bitnot" and not dtype.is_signed:
        return f"{x} ^ {(1 << dtype.bits) - 1}"
    if op in ("not", "bitnot"):
        return f"~{x}"
    if op == "isnan":
        return f"{x} != {x}"
    if op == "isinf":
        return f'tl.abs({x}) == float("inf")'
    if op == "sqrt":
        return f"tl.sqrt_rn({x})" if dtype is not DType.F64 else f"tl.sqrt({x})"
    if op == "rsqrt" and dtype is DType.F64:
        return f"1.0 / tl.sqrt({x})"
    if op == "reciprocal":
        return f"1.0 / {x}"
    if op == "sign" and not dtype.is_float:
        return f"({x} > 0).to({register(dtype)}) - ({x} < 0).to({register(dtype)})"
    if op == "sign":
        return f"sign({x})"
    return f"{_CALLS[op]}({x})"


def binary_text(node: Binary, x: str, y: str) -> str:
    """A binary operator on two operands."""
    op, dtype = node.op, node.x.dtype
    if dtype is DType.BOOL and op in _LOGIC:
        return f"{x} {_LOGIC[op]} {y}"
    if dtype is DType.BOOL:
        x, y = f"({x}).to(tl.int8)", f"({y}).to(tl.int8)"
    if op in _INFIX:
        return f"{x} {_INFIX[op]} {y}"
    if op in ("min", "max"):
        nan = ", propagate_nan=tl.PropagateNan.ALL" if dtype.is_float else ""
        return f"tl.{op}imum({x}, {y}{nan})"
    if op == "div":
        if not dtype.is_float:
            return f"truncated_quotient({x}, {y})"
        return f"{x} / {y}" if dtype is DType.F64 else f"tl.div_rn({x}, {y})"
    if op == "mod":
        return f"remainder({x}, {y})" if dtype.is_float else f"remainder_of_integers({x}, {y})"
    if op == "fmod":
        return f"fmod({x}, {y})" if dtype.is_float else f"truncated_remainder({x}, {y})"
    if op == "pow":
        return f"pow({x}, {y})" if dtype.is_float else f"power_of_integers({x}, {y})"
    if op in ("shl", "shr"):
        sign = "<<" if op == "shl" else ">>"
        if op == "shr" and dtype.is_signed:
            return f"{x} >> tl.minimum({y}, {dtype.bits - 1})"
        return f"tl.where({y} < {dtype.bits}, {x} {sign} {y}, 0).to({register(dtype)})"
    if op == "atan2":
        return f"atan2({x}, {y})"
    raise UnsupportedError(f"the operator {op!r} of {dtype!r} has no form in Triton; compile the model for a processor")


def cast_text(node: Cast, x: str) -> str:
    """A conversion."""
    source, target = node.x.dtype, node.dtype
    if target is DType.BOOL:
        return f"{x} != 0"
    if source.is_storage_only:
        return _decoded(source, target, x)
    if target.is_storage_only:
        return _encoded(source, target, x)
    if source.is_float and target.is_integer and target.bytes < 4:
        return f"({x}).to(tl.int32).to({register(target)})"
    return rounded(target, f"({x}).to({register(target)})")


_FLOAT8 = {DType.F8E4M3FN: "from_float8e4m3", DType.F8E5M2: "from_float8e5m2"}

_TO_FLOAT8 = {
    DType.F8E4M3FN: "MANTISSA=3, BIAS=7, BEYOND=127, NAN=127",
    DType.F8E5M2: "MANTISSA=2, BIAS=15, BEYOND=124, NAN=127",
}


def _decoded(source: DType, target: DType, x: str) -> str:
    if source in _FLOAT8:
        return rounded(target, f"{_FLOAT8[source]}({x}).to({register(target)})")
    if source in (DType.U4, DType.U2):
        return f"({x}).to({register(target)})"
    if source in (DType.I4, DType.I2):
        shift = 32 - source.bits
        return f"((({x}).to(tl.int32) << {shift}) >> {shift}).to({register(target)})"
    raise _no_code(source)


def _encoded(source: DType, target: DType, x: str) -> str:
    if target in _FLOAT8 and source.is_float:
        return f"to_float8(({x}).to(tl.float32), {_TO_FLOAT8[target]})"
    if target in (DType.U4, DType.U2, DType.I4, DType.I2):
        return f"(({x}).to(tl.int32) & {(1 << target.bits) - 1}).to(tl.uint8)"
    raise _no_code(target)


def _no_code(dtype: DType) -> UnsupportedError:
    return UnsupportedError(f"elements of type {dtype!r} have no form in Triton; compile the model for a processor")

"""Types, constants and operators in terms of `opweld_vector.h`, `opweld_math.h` and `opweld_kernel.h`.

A register holds a vector of `OPW_LANES` elements. Booleans are masks of int32 (-1 or 0). float16 and bfloat16 are
computed in float32 and rounded to their type after every operation, as the model's types say. Codes are bytes, in
registers as in memory; only casts know what they stand for.
"""

from __future__ import annotations

from opweld.codegen.c.vector import Convert, Expression, Infix, Literal, Name, Prefix, call
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Bitcast, Cast, Const, Expr, Unary
from opweld.tensor.range import bounds
from opweld.tensor.rounding import saturated

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
    **{dtype: "uint8_t" for dtype in DType if dtype.is_storage_only},
}
"""The C type of an element in memory."""

_HALVES = (DType.F16, DType.BF16)


def stored(dtype: DType) -> DType:
    """The type that elements in memory are loaded and stored by: codes are bytes."""
    return DType.U8 if dtype.is_storage_only else dtype


def register(dtype: DType) -> DType:
    """The type of the registers that hold a value."""
    return DType.F32 if dtype in _HALVES else stored(dtype)


def vector_type(dtype: DType) -> str:
    """The C type of a vector of values."""
    return "vi32" if dtype is DType.BOOL else "v" + register(dtype).short


def vector_literal(value: float | int | bool, dtype: DType) -> Expression:
    """A vector that holds one value in every lane."""
    short = "i32" if dtype is DType.BOOL else register(dtype).short
    return call(f"opw_splat_{short}", Literal(value, dtype))


def select(mask: Expression, dtype: DType, x: Expression, y: Expression) -> Expression:
    """Per lane, `x` where the mask is set, else `y`."""
    return call(f"opw_select_{register(dtype).short}", mask, x, y)


_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "bitand": "&", "bitor": "|", "bitxor": "^"}
"""Binary operators that are C operators on vectors; `div` for floats only."""

_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

SCALAR_INFIX = {**{op: _INFIX[op] for op in ("add", "sub", "mul")}, **_COMPARE}
"""Binary operators on one integer."""

_AND = frozenset(("and", "mul", "min"))
_OR = frozenset(("or", "add", "max"))

_SCALAR_OPERANDS = (DType.F32, DType.F64, DType.I32, DType.I64)


def unary_value(node: Unary, x: Expression) -> tuple[Expression, bool]:
    """A unary operator on an operand; whether it may stand inside another expression."""
    if node.op == "neg":
        return Prefix("-", x), True
    if node.op in ("not", "bitnot"):
        return Prefix("~", x), True
    return _rounded(node.dtype, call(f"opw_{node.op}_{register(node.x.dtype).short}", x)), False


def binary_value(node: Binary, x: Expression, y: Expression) -> tuple[Expression, bool]:
    """A binary operator on two operands. The divisor of integers is checked elsewhere."""
    dtype = node.x.dtype
    if dtype is DType.BOOL:
        return _logic(node.op, x, y), True
    short = register(dtype).short
    if node.op in _COMPARE:
        return call(f"opw_{node.op}_{short}", x, y), False
    if node.op == "div" and dtype is DType.F32 and isinstance(node.y, Const) and _has_reciprocal(node.y.value):
        function = "opw_div_finite_by_f32" if max(map(abs, bounds(node))) < _LARGE else "opw_div_by_f32"
        return call(function, x, Literal(node.y.value, dtype), Literal(1.0 / node.y.value, dtype)), False
    if node.op in ("min", "max") and isinstance(node.y, Const):
        x, y = y, x  # that a constant first is no NaN saves a selection
    if node.op in _INFIX and (dtype.is_float or node.op != "div"):
        value = Infix(_INFIX[node.op], _operand(node.x, x, node.y), _operand(node.y, y, node.x))
        rounded = _rounded(node.dtype, value)
        return rounded, rounded is value
    return _rounded(node.dtype, call(f"opw_{node.op}_{short}", x, y)), False


def rounded_before(node: Expr) -> Unary | None:
    """The rounding that a conversion to an integer begins with, where one instruction does both."""
    if not isinstance(node, Cast) or not isinstance(node.x, Unary) or node.x.op != "round":
        return None
    return node.x if node.x.dtype is DType.F32 and node.dtype in _NEAREST else None


def taken(node: Expr) -> tuple[Expr, ...]:
    """What is computed before a node: its operands, or what an instruction takes that does what they do, too."""
    if (rounding := rounded_before(node)) is not None:
        return rounding.operands
    whole = saturated(node)
    return node.operands if whole is None else (whole,)


_NEAREST = (DType.I32, DType.I16, DType.U16, DType.I8, DType.U8)


def nearest_value(node: Expr, x: Expression) -> Expression:
    """A float as the nearest integer, by way of int32, as every conversion to a narrow one."""
    found = call("opw_nearest_f32_i32", x)
    return found if node.dtype is DType.I32 else call(f"opw_convert_i32_{node.dtype.short}", found)


def cast_value(node: Cast, x: Expression) -> tuple[Expression, bool | None]:
    """A conversion; None when it is the operand itself. Codes are converted by way of what they are computed in."""
    source, target = node.x.dtype, node.dtype
    if source.is_storage_only:
        source, x = source.computed, call(f"opw_convert_{source.short}_{source.computed.short}", x)
    if target.is_storage_only:
        x = _converted(source, target.computed, x, again=target.is_float)
        return call(f"opw_convert_{target.computed.short}_{target.short}", x), False
    if target is DType.F32 and register(source) is DType.F32 and isinstance(x, Name):
        return x, None
    return _rounded(target, _converted(source, target, x, again=target in _HALVES)), False


def _converted(source: DType, target: DType, x: Expression, again: bool) -> Expression:
    """A value in a register of the source as one in a register of the target, to be rounded again or not."""
    if target is DType.BOOL:
        return call(f"opw_convert_{register(source).short}_b8", x)
    if register(source) is register(target):
        return x
    if again and source is DType.F64:
        return call("opw_convert_f64_odd", x)
    return call(f"opw_convert_{register(source).short}_{register(target).short}", x)


def bitcast_value(node: Bitcast, x: Expression) -> Expression:
    """The bits of a value: as they are in memory, where registers hold another type. A signalling NaN of a half type is
    a quiet one in registers already."""
    source, target = node.x.dtype, node.dtype
    if register(source) is not stored(source) or source is DType.BOOL:
        x = call(f"opw_to_bits_{source.short}", x)
    if register(target) is not stored(target) or target is DType.BOOL:
        return call(f"opw_from_bits_{target.short}", Convert(_BITS[target.bits], x))
    return Convert(vector_type(target), x)


_BITS = {8: "vu8", 16: "vu16"}
"""The vector of the bits of a type that registers hold as another."""


def _logic(op: str, x: Expression, y: Expression) -> Expression:
    """A binary operator on masks."""
    if op in _AND or op in _OR:
        return Infix("&" if op in _AND else "|", x, y)
    if op in ("ne", "xor", "eq"):
        different = Infix("^", x, y)
        return Prefix("~", different) if op == "eq" else different
    left, right = (Prefix("~", x), y) if op in ("lt", "le") else (x, Prefix("~", y))
    return Infix("&" if op in ("lt", "gt") else "|", left, right)


def _operand(node: Expr, value: Expression, other: Expr) -> Expression:
    """A constant beside a vector may be a plain number: C makes a vector of it."""
    if isinstance(node, Const) and not isinstance(other, Const) and node.dtype in _SCALAR_OPERANDS:
        return Literal(node.value, node.dtype)
    return value


def _rounded(dtype: DType, value: Expression) -> Expression:
    return call(f"opw_round_{dtype.short}", value) if dtype in _HALVES else value


_LARGE = 2.0**120
"""A quotient whose bounds are below is finite."""


def _has_reciprocal(value: float) -> bool:
    """Whether division by the constant can be a multiplication with a correction."""
    return 2.0**-60 < abs(value) < 2.0**60


# ---- reductions ------------------------------------------------------------------------------------------------------

REDUCE_INFIX = {"sum": "+", "prod": "*", "any": "|", "all": "&"}
"""Reductions that combine with a C operator."""

_REDUCE = {"sum": "reduce_add", "prod": "reduce_mul", "max": "reduce_max", "min": "reduce_min"}
"""Functions that combine the lanes of a vector."""


def combine(kind: str, dtype: DType, left: Expression, right: Expression) -> Expression:
    """One step of a reduction."""
    if kind in REDUCE_INFIX:
        return Infix(REDUCE_INFIX[kind], left, right)
    if dtype is DType.BOOL:
        return Infix("|" if kind == "max" else "&", left, right)
    return call(f"opw_{kind}_{register(dtype).short}", left, right)


def across_lanes(kind: str, dtype: DType, vector: Expression) -> Expression:
    """The reduction of the lanes of one vector, in every lane."""
    if dtype is DType.BOOL:
        function = "or" if kind in ("any", "max", "sum") else "and"
        return call("opw_splat_b8", call(f"opw_reduce_{function}_b8", vector))
    short = register(dtype).short
    return call(f"opw_splat_{short}", call(f"opw_{_REDUCE[kind]}_{short}", vector))

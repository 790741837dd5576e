"""One operator on vectors as C text."""

from __future__ import annotations

from opweld.codegen.c.operators import COMPARE, INFIX, LOGIC, register, scalar_literal
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Cast, Const, Expr, Unary

_SCALAR_OPERANDS = (DType.F32, DType.F64, DType.I32, DType.I64)


def unary_text(node: Unary, x: str) -> tuple[str, bool]:
    """A unary operator of a C operand; whether the text may stand inside another expression."""
    if node.op == "neg":
        return f"-{x}", True
    if node.op in ("not", "bitnot"):
        return f"~{x}", True
    text = f"opw_{node.op}_{register(node.x.dtype).short}({x})"
    return _round(node.dtype, text), False


def binary_text(node: Binary, x: str, y: str) -> tuple[str, bool]:
    """A binary operator of two C operands. The divisor of integers is checked elsewhere."""
    dtype = node.x.dtype
    if dtype is DType.BOOL:
        return LOGIC[node.op].format(x=x, y=y), True
    if node.op in COMPARE:
        return f"opw_{node.op}_{register(dtype).short}({x}, {y})", False
    if node.op == "div" and dtype is DType.F32 and isinstance(node.y, Const) and _has_reciprocal(node.y.value):
        divisor, inverse = scalar_literal(node.y.value, dtype), scalar_literal(1.0 / node.y.value, dtype)
        return f"opw_div_by_f32({x}, {divisor}, {inverse})", False
    if node.op in ("min", "max") and isinstance(node.y, Const):
        x, y = y, x  # that a constant first is no NaN saves a selection
    if node.op in INFIX and (dtype.is_float or node.op != "div"):
        left, right = _operand(node.x, x, node.y), _operand(node.y, y, node.x)
        text = f"{left} {INFIX[node.op]} {right}"
        rounded = _round(node.dtype, text)
        return rounded, rounded is text
    return _round(node.dtype, f"opw_{node.op}_{register(dtype).short}({x}, {y})"), False


def _operand(node: Expr, text: str, other: Expr) -> str:
    """A constant beside a vector may be a plain number: C makes a vector of it."""
    if isinstance(node, Const) and not isinstance(other, Const) and node.dtype in _SCALAR_OPERANDS:
        number = scalar_literal(node.value, node.dtype)
        return f"({number})" if number.startswith("-") else number
    return text


def _round(dtype: DType, text: str) -> str:
    return f"opw_round_{dtype.short}({text})" if dtype in (DType.F16, DType.BF16) else text


def cast_text(node: Cast, x: str) -> tuple[str, bool | None]:
    """A conversion; None when the text is the operand itself."""
    source, target = node.x.dtype, node.dtype
    if target is DType.BOOL:
        return f"opw_convert_{register(source).short}_b8({x})", False
    if register(source) is register(target):
        return (x, None) if target is DType.F32 and x.isidentifier() else (_round(target, x), False)
    return _round(target, f"opw_convert_{register(source).short}_{register(target).short}({x})"), False


def _has_reciprocal(value: float) -> bool:
    """Whether division by the constant can be a multiplication with a correction."""
    return 2.0**-60 < abs(value) < 2.0**60

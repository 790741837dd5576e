"""Comparisons, logic and bits."""

from __future__ import annotations

from functools import partial

from opweld.frontend.torch.builder import Builder, Scalar, Value
from opweld.frontend.torch.rows import aten
from opweld.ops.aten.elementwise import DOMAIN
from opweld.tensor.dtype import DType

_COMPARED = {"eq": "Equal", "ge": "GreaterOrEqual", "gt": "Greater", "le": "LessOrEqual", "lt": "Less"}


def _compared(op_type: str, b: Builder, x: Value, y: Scalar) -> Value:
    dtype = b.promoted(x, y)
    if dtype is DType.BOOL and op_type != "Equal":
        dtype = DType.U8
    return b.op(op_type, b.cast(x, dtype), b.cast(y, dtype), dtype=DType.BOOL)


for _name, _operator in _COMPARED.items():
    aten(f"{_name}.Tensor", f"{_name}.Scalar")(partial(_compared, _operator))


@aten("ne.Tensor", "ne.Scalar")
def not_equal(b: Builder, x: Value, y: Scalar) -> Value:
    """x != y"""
    return b.op("Not", _compared("Equal", b, x, y))


def _truths(op_type: str, b: Builder, x: Value, y: Value) -> Value:
    return b.op(op_type, b.cast(x, DType.BOOL), b.cast(y, DType.BOOL))


for _name, _operator in {"and": "And", "or": "Or", "xor": "Xor"}.items():
    aten(f"logical_{_name}.default")(partial(_truths, _operator))


@aten("logical_not.default")
def logical_not(b: Builder, x: Value) -> Value:
    """Whether x is 0."""
    return b.op("Not", b.cast(x, DType.BOOL))


def _bits(name: str, b: Builder, x: Scalar, y: Scalar) -> Value:
    op_type = name if b.dtype is DType.BOOL else f"Bitwise{name}"
    return b.op(op_type, b.cast(x, b.dtype), b.cast(y, b.dtype))


for _name, _operator in {"and": "And", "or": "Or", "xor": "Xor"}.items():
    aten(*(f"bitwise_{_name}.{kind}" for kind in ("Tensor", "Scalar", "Scalar_Tensor")))(partial(_bits, _operator))
    aten(*(f"__{_name}__.{kind}" for kind in ("Tensor", "Scalar")))(partial(_bits, _operator))


@aten("bitwise_not.default")
def bitwise_not(b: Builder, x: Value) -> Value:
    """All bits flipped."""
    return b.op("Not" if b.dtype is DType.BOOL else "BitwiseNot", x)


def _shifted(op_type: str, b: Builder, x: Scalar, y: Scalar) -> Value:
    return b.op(op_type, b.cast(x, b.dtype), b.cast(y, b.dtype), domain=DOMAIN)


for _name, _sign, _operator in (("left", "l", "ShiftLeft"), ("right", "r", "ShiftRight")):
    kinds = ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
    aten(*(f"bitwise_{_name}_shift.{kind}" for kind in kinds))(partial(_shifted, _operator))
    aten(*(f"__{_sign}shift__.{kind}" for kind in ("Tensor", "Scalar")))(partial(_shifted, _operator))


def _test(op_type: str, b: Builder, x: Value) -> Value:
    if b.dtype_of(x).is_float:
        return b.op(op_type, x, dtype=DType.BOOL)
    return b.expanded(b.constant(False), b.sizes(x))


aten("isnan.default")(partial(_test, "IsNaN"))
aten("isinf.default")(partial(_test, "IsInf"))

"""Arithmetic element by element, with PyTorch's promotion of types."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from opweld.errors import UnsupportedError
from opweld.frontend.torch.builder import Builder, Scalar, Value
from opweld.frontend.torch.rows import aten, operator
from opweld.ops.aten.elementwise import DOMAIN
from opweld.tensor.dtype import DType


def pair(b: Builder, op_type: str, x: Scalar, y: Scalar, dtype: DType | None = None) -> Value:
    """An operator of two operands, in the type of the result or another one."""
    dtype = dtype or b.dtype
    return b.op(op_type, b.cast(x, dtype), b.cast(y, dtype))


@aten("add.Tensor", "add.Scalar")
def add(b: Builder, x: Scalar, y: Scalar, alpha: Scalar = 1) -> Value:
    """x + alpha y; a disjunction of truth values."""
    if b.dtype is DType.BOOL:
        return pair(b, "Or", x, y)
    return pair(b, "Add", x, _times(b, y, alpha))


@aten("sub.Tensor", "sub.Scalar")
def sub(b: Builder, x: Scalar, y: Scalar, alpha: Scalar = 1) -> Value:
    """x - alpha y"""
    return pair(b, "Sub", x, _times(b, y, alpha))


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(b: Builder, x: Scalar, y: Scalar, alpha: Scalar = 1) -> Value:
    """y - alpha x"""
    return pair(b, "Sub", y, _times(b, x, alpha))


def _times(b: Builder, y: Scalar, alpha: Scalar) -> Scalar:
    return y if alpha == 1 else pair(b, "Mul", y, alpha)


@aten("mul.Tensor", "mul.Scalar")
def mul(b: Builder, x: Scalar, y: Scalar) -> Value:
    """x y; a conjunction of truth values."""
    return pair(b, "And" if b.dtype is DType.BOOL else "Mul", x, y)


@operator("prims", "div.default")
@aten("div.Tensor", "div.Scalar")
def div(b: Builder, x: Scalar, y: Scalar) -> Value:
    """x / y in the type of the result: a float, or, of prims, that of integers, rounded towards zero."""
    return pair(b, "Div", x, y)


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(b: Builder, x: Scalar, y: Scalar, rounding_mode: str | None = None) -> Value:
    """x / y, rounded down or towards zero."""
    if rounding_mode is None:
        return div(b, x, y)
    if rounding_mode == "floor":
        return floor_divide(b, x, y)
    if b.dtype.is_integer:
        return pair(b, "Div", x, y)
    return _trunc(b, pair(b, "Div", x, y))


@aten("floor_divide.default", "floor_divide.Scalar")
def floor_divide(b: Builder, x: Scalar, y: Scalar) -> Value:
    """The greatest integer below x / y: (x - x mod y) / y, which is whole but for its rounding."""
    dtype = b.dtype
    x, y = b.cast(x, dtype), b.cast(y, dtype)
    whole = b.op("Div", b.op("Sub", x, _modulo(b, x, y)), y)
    if dtype.is_integer:
        return whole
    low = b.op("Floor", whole)
    half = b.op("Greater", b.op("Sub", whole, low), b.cast(0.5, dtype), dtype=DType.BOOL)
    low = b.op("Where", half, b.op("Add", low, b.cast(1, dtype)), low, dtype=dtype)
    none = b.op("Equal", y, b.cast(0, dtype), dtype=DType.BOOL)
    return b.op("Where", none, b.op("Div", x, y), low, dtype=dtype)


@aten("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(b: Builder, x: Scalar, y: Scalar) -> Value:
    """x - y floor(x / y): of the sign of y."""
    return _modulo(b, b.cast(x, b.dtype), b.cast(y, b.dtype))


def _modulo(b: Builder, x: Value, y: Value) -> Value:
    return b.op("Mod", x, y, domain=DOMAIN)


@aten("fmod.Tensor", "fmod.Scalar")
def fmod(b: Builder, x: Scalar, y: Scalar) -> Value:
    """x - y trunc(x / y): of the sign of x."""
    return b.op("Mod", b.cast(x, b.dtype), b.cast(y, b.dtype), fmod=1)


@aten("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def power(b: Builder, x: Scalar, y: Scalar) -> Value:
    """x to the power of y; squares and roots are said so."""
    dtype = b.dtype
    if isinstance(x, Value) and dtype.is_float and isinstance(y, int | float):
        x = b.cast(x, dtype)
        if y == 2:
            return b.op("Mul", x, x)
        if y == 3:
            return b.op("Mul", b.op("Mul", x, x), x)
        if y == 0.5:
            return b.op("Sqrt", x)
        if y == -1:
            return b.op("Reciprocal", x)
        if y == 1:
            return x
    return pair(b, "Pow", x, y)


@aten("maximum.default")
def maximum(b: Builder, x: Value, y: Value) -> Value:
    """The larger one; a NaN wherever there is one."""
    return pair(b, "Or" if b.dtype is DType.BOOL else "Max", x, y)


@aten("minimum.default")
def minimum(b: Builder, x: Value, y: Value) -> Value:
    """The smaller one; a NaN wherever there is one."""
    return pair(b, "And" if b.dtype is DType.BOOL else "Min", x, y)


def _known_one(op_type: str, b: Builder, x: Value, y: Value) -> Value:
    dtype = b.dtype
    x, y = b.cast(x, dtype), b.cast(y, dtype)
    if not dtype.is_float:
        return pair(b, {"Max": "Or", "Min": "And"}[op_type] if dtype is DType.BOOL else op_type, x, y)
    found = b.op("Where", b.op("IsNaN", y, dtype=DType.BOOL), x, b.op(op_type, x, y), dtype=dtype)
    return b.op("Where", b.op("IsNaN", x, dtype=DType.BOOL), y, found, dtype=dtype)


aten("fmax.default")(partial(_known_one, "Max"))
aten("fmin.default")(partial(_known_one, "Min"))


@aten("copysign.Tensor", "copysign.Scalar")
def copysign(b: Builder, x: Value, y: Scalar) -> Value:
    """|x| with the sign of y, which a zero has too."""
    dtype = b.dtype
    own, other = b.op("Abs", b.cast(x, dtype)), b.cast(y, dtype)
    bits = {2: DType.I16, 4: DType.I32, 8: DType.I64}[dtype.bytes]
    below = b.op("Less", b.op("BitCast", other, dtype=bits, to=bits.onnx), b.cast(0, bits), dtype=DType.BOOL)
    return b.op("Where", below, b.op("Neg", own), own, dtype=dtype)


@aten("signbit.default")
def signbit(b: Builder, x: Value) -> Value:
    """Whether the sign is negative, which a zero has too."""
    dtype = b.dtype_of(x)
    if dtype.is_float:
        bits = {2: DType.I16, 4: DType.I32, 8: DType.I64}[dtype.bytes]
        x, dtype = b.op("BitCast", x, dtype=bits, to=bits.onnx), bits
    elif not dtype.is_signed:
        return b.expanded(b.constant(False), b.sizes(x))
    return b.op("Less", x, b.cast(0, dtype), dtype=DType.BOOL)


@aten("hypot.default")
def hypot(b: Builder, x: Value, y: Value) -> Value:
    """The length of (x, y): the larger one times a root that cannot overflow."""
    dtype = b.dtype
    x, y = b.op("Abs", b.cast(x, dtype)), b.op("Abs", b.cast(y, dtype))
    high, low = b.op("Max", x, y), b.op("Min", x, y)
    ratio = b.op("Div", low, high)
    one = b.cast(1, dtype)
    length = b.op("Mul", high, b.op("Sqrt", b.op("Add", b.op("Mul", ratio, ratio), one)))
    plain = b.op("Or", b.op("Equal", low, b.cast(0, dtype), dtype=DType.BOOL), b.op("IsInf", high, dtype=DType.BOOL))
    return b.op("Where", plain, high, length, dtype=dtype)


@aten("round.decimals")
def round_decimals(b: Builder, x: Value, *, decimals: int) -> Value:
    """Rounded to so many places after the point."""
    if not b.dtype.is_float or decimals == 0:
        return _rounded("Round", b, x)
    power = b.cast(float(10 ** abs(decimals)), b.dtype)
    there, back = ("Mul", "Div") if decimals > 0 else ("Div", "Mul")
    return b.op(back, b.op("Round", b.op(there, x, power)), power)


@aten("ldexp.Tensor")
def ldexp(b: Builder, x: Value, y: Value) -> Value:
    """x times 2 to the power of y."""
    return pair(b, "Mul", x, b.op("Pow", b.cast(2, b.dtype), b.cast(y, b.dtype)))


@aten("clamp.default", "clamp.Tensor")
def clamp(b: Builder, x: Value, min: Scalar | None = None, max: Scalar | None = None) -> Value:
    """x between limits, of which the upper one decides where they cross."""
    y = b.cast(x, b.dtype)
    for op_type, limit in (("Max", min), ("Min", max)):
        y = y if limit is None else pair(b, op_type, y, limit)
    return y


@aten("clamp_min.default", "clamp_min.Tensor")
def clamp_min(b: Builder, x: Value, min: Scalar) -> Value:
    """x, but no less than a limit."""
    return clamp(b, x, min)


@aten("clamp_max.default", "clamp_max.Tensor")
def clamp_max(b: Builder, x: Value, max: Scalar) -> Value:
    """x, but no more than a limit."""
    return clamp(b, x, None, max)


@aten("atan2.default")
def atan2(b: Builder, y: Value, x: Value) -> Value:
    """The angle of (x, y)."""
    return b.op("Atan2", b.cast(y, b.dtype), b.cast(x, b.dtype), domain=DOMAIN)


def _of_constants(function: np.ufunc, b: Builder, x: Value, y: Value) -> Value:
    """A function of integers that are known. Of others eager mode computes it: each element loops as often as it
    needs, while code without loops divides as often as the largest integers need, 92 times for 64 bits."""
    if x.stored is None or y.stored is None:
        raise UnsupportedError(f"node {b.name!r}: {function.__name__} is supported of constants only")
    dtype = b.dtype.numpy
    return b.constant(function(x.stored.read().astype(dtype), y.stored.read().astype(dtype)))


aten("gcd.default")(partial(_of_constants, np.gcd))
aten("lcm.default")(partial(_of_constants, np.lcm))


@aten("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(b: Builder, condition: Value, x: Scalar, y: Scalar) -> Value:
    """x where the condition holds, else y."""
    chosen = b.cast(condition, DType.BOOL)
    return b.op("Where", chosen, b.cast(x, b.dtype), b.cast(y, b.dtype), dtype=b.dtype)


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(b: Builder, x: Value, mask: Value, value: Scalar) -> Value:
    """The value where the mask holds, else x."""
    return where(b, mask, value, x)


@aten("lerp.Scalar", "lerp.Tensor")
def lerp(b: Builder, x: Value, y: Value, weight: Scalar) -> Value:
    """x + weight (y - x), from the nearer end."""
    dtype = b.dtype
    t, one = b.cast(weight, dtype), b.cast(1, dtype)
    step = b.op("Sub", y, x)
    near = b.op("Add", x, b.op("Mul", t, step))
    far = b.op("Sub", y, b.op("Mul", step, b.op("Sub", one, t)))
    is_near = b.op("Less", b.op("Abs", t), b.cast(0.5, dtype), dtype=DType.BOOL)
    return b.op("Where", is_near, near, far, dtype=dtype)


@aten("addcmul.default")
def addcmul(b: Builder, x: Value, y: Value, z: Value, value: Scalar = 1) -> Value:
    """x + value y z"""
    return pair(b, "Add", x, _times(b, pair(b, "Mul", y, z), value))


@aten("addcdiv.default")
def addcdiv(b: Builder, x: Value, y: Value, z: Value, value: Scalar = 1) -> Value:
    """x + value y / z"""
    return pair(b, "Add", x, _times(b, pair(b, "Div", y, z), value))


# ---------------------------------------------------------------------------------------------------------- one operand

_UNARY = {
    "acos": "Acos",
    "acosh": "Acosh",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "cos": "Cos",
    "cosh": "Cosh",
    "erf": "Erf",
    "exp": "Exp",
    "log": "Log",
    "reciprocal": "Reciprocal",
    "sigmoid": "Sigmoid",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "tan": "Tan",
    "tanh": "Tanh",
}
"""Functions of a float that ONNX has; an integer becomes one."""

_OWN = {
    "digamma": "Digamma",
    "erfc": "Erfc",
    "erfinv": "Erfinv",
    "exp2": "Exp2",
    "expm1": "Expm1",
    "i0": "BesselI0",
    "lgamma": "Lgamma",
    "log10": "Log10",
    "log1p": "Log1p",
    "log2": "Log2",
    "rsqrt": "Rsqrt",
    "special_erfcx": "Erfcx",
    "special_i0e": "BesselI0e",
    "special_i1": "BesselI1",
    "special_i1e": "BesselI1e",
    "special_modified_bessel_i0": "BesselI0",
    "special_modified_bessel_i1": "BesselI1",
    "special_ndtri": "Ndtri",
    "special_spherical_bessel_j0": "SphericalBesselJ0",
}
"""The same that it does not have."""

_WHOLE = {"ceil": "Ceil", "floor": "Floor", "round": "Round"}
"""Rounding, which leaves integers as they are."""


def _unary(op_type: str, domain: str, b: Builder, x: Value) -> Value:
    return b.op(op_type, b.cast(x, b.dtype), domain=domain)


def _rounded(op_type: str, b: Builder, x: Value) -> Value:
    return b.op(op_type, x) if b.dtype.is_float else x


for _name, _operator in _UNARY.items():
    aten(f"{_name}.default")(partial(_unary, _operator, ""))
for _name, _operator in _OWN.items():
    aten(f"{_name}.default")(partial(_unary, _operator, DOMAIN))
for _name, _operator in _WHOLE.items():
    aten(f"{_name}.default")(partial(_rounded, _operator))


@aten("trunc.default", "fix.default")
def trunc(b: Builder, x: Value) -> Value:
    """x towards zero."""
    return _trunc(b, x) if b.dtype.is_float else x


def _trunc(b: Builder, x: Value) -> Value:
    return b.op("Trunc", x, domain=DOMAIN)


@aten("neg.default")
def neg(b: Builder, x: Value) -> Value:
    """-x, wrapped around."""
    return b.op("Neg", x) if b.dtype.is_signed else b.op("Sub", b.cast(0, b.dtype), x)


@aten("abs.default")
def absolute(b: Builder, x: Value) -> Value:
    """|x|"""
    return x if b.dtype is DType.BOOL else b.op("Abs", x)


@aten("sign.default", "sgn.default")
def sign(b: Builder, x: Value) -> Value:
    """-1, 0 or 1; NaN of NaN is 0, as PyTorch has it."""
    if b.dtype is DType.BOOL:
        return x
    found = b.op("Sign", x)
    if not b.dtype.is_float:
        return found
    return b.op("Where", b.op("IsNaN", x, dtype=DType.BOOL), b.cast(0, b.dtype), found, dtype=b.dtype)


@aten("angle.default")
def angle(b: Builder, x: Value) -> Value:
    """Pi where x is negative, else 0; NaN of NaN."""
    y = b.cast(x, b.dtype)
    turn = b.op(
        "Where",
        b.op("Less", y, b.cast(0, b.dtype), dtype=DType.BOOL),
        b.cast(math.pi, b.dtype),
        b.cast(0, b.dtype),
        dtype=b.dtype,
    )
    return b.op("Where", b.op("IsNaN", y, dtype=DType.BOOL), y, turn, dtype=b.dtype)


@aten("special_zeta.default", "special_zeta.self_scalar", "special_zeta.other_scalar")
def zeta(b: Builder, x: Scalar, q: Scalar) -> Value:
    """The sum of (q + k)**-x over k from 0."""
    return b.op("Zeta", b.cast(x, b.dtype), b.cast(q, b.dtype), domain=DOMAIN)


@aten("polygamma.default")
def polygamma(b: Builder, n: int, x: Value) -> Value:
    """The n-th derivative of the digamma function."""
    if not n:
        return _unary("Digamma", DOMAIN, b, x)
    if n == 1:
        return _trigamma(b, b.cast(x, b.dtype))
    scale = math.factorial(n) if n < 171 else math.inf
    return b.op("Mul", zeta(b, n + 1, x), b.cast(scale if n % 2 else -scale, b.dtype))


def _trigamma(b: Builder, x: Value) -> Value:
    """The derivative of the digamma function as PyTorch has it, at its poles too: below 1/2 by that of 1 - x, six steps
    of its recurrence, and an asymptotic series."""

    def number(value: float) -> Value:
        return b.cast(value, b.dtype)

    def inverse_square(value: Value) -> Value:
        return b.op("Div", number(1), b.op("Mul", value, value))

    reflected = b.op("Less", x, number(0.5), dtype=DType.BOOL)
    sine = b.op("Sin", b.op("Mul", x, number(math.pi)))
    other = b.op("Mul", number(math.pi**2), inverse_square(sine))
    x = b.op("Where", reflected, b.op("Sub", number(1), x), x, dtype=b.dtype)
    found = inverse_square(x)
    for _ in range(5):
        x = b.op("Add", x, number(1))
        found = b.op("Add", found, inverse_square(x))
    x = b.op("Add", x, number(1))
    inner = number(1 / 42)
    for term in (1 / 30, 1 / 6):
        inner = b.op("Sub", number(term), b.op("Mul", inverse_square(x), inner))
    tail = b.op("Add", b.op("Add", number(1), b.op("Div", number(0.5), x)), b.op("Mul", inverse_square(x), inner))
    found = b.op("Add", found, b.op("Div", tail, x))
    return b.op("Where", reflected, b.op("Sub", other, found), found, dtype=b.dtype)


@aten("square.default")
def square(b: Builder, x: Value) -> Value:
    """x x"""
    return b.op("Mul", x, x)


@aten("_to_copy.default")
def to_copy(b: Builder, x: Value, **_: Any) -> Value:
    """x in the type of the result, on the same device."""
    return b.cast(x, b.dtype)


@aten("to.dtype", "to.dtype_layout", "to.device", "to.other", "type_as.default", "float.default")
@operator("prims", "convert_element_type.default")
def to(b: Builder, x: Value, *_: Any, **__: Any) -> Value:
    """The same."""
    return b.cast(x, b.dtype)


@aten("copy.default")
def copy(b: Builder, x: Value, source: Value, non_blocking: bool = False) -> Value:
    """The source in the type of x, broadcast to its sizes."""
    cast = b.cast(source, b.dtype)
    return cast if str(b.shape(x)) == str(b.shape(source)) else b.expanded(cast, b.sizes(x))


@aten("alias.default", "clone.default", "detach.default", "lift_fresh_copy.default", "contiguous.default")
def same(b: Builder, x: Value, **_: Any) -> Value:
    """x: values do not change."""
    return x


@aten("dropout.default", "native_dropout.default", "feature_dropout.default", "alpha_dropout.default")
def dropout(b: Builder, x: Value, p: float, train: bool) -> Value:
    """x: nothing is dropped at inference."""
    if train:
        raise UnsupportedError(f"node {b.name!r}: dropout in training; call module.eval() first")
    if isinstance(b.made, list | tuple):
        return (x, b.expanded(b.constant(True), b.sizes(x)))  # type: ignore[return-value]
    return x

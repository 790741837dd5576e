"""Complex numbers: a tensor of them is two tensors of floats, and an operator works on these.

An operator that moves elements, or that is linear with real coefficients, is its own row applied to the real parts and
to the imaginary ones. The others have a row here, of the same form as those of `rows`, in which a complex operand is a
`Complex`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, TypeAlias, cast

import torch

from opweld.frontend.torch.builder import Builder, Number, Value, elements
from opweld.frontend.torch.rows import Row, rows
from opweld.ops.aten.elementwise import DOMAIN
from opweld.tensor.dtype import DType


@dataclass(frozen=True, eq=False)
class Complex:
    """A tensor of complex numbers, by its parts, which have its shape."""

    real: Value
    imag: Value


Operand: TypeAlias = "Complex | Value | Number | complex"

_rows: dict[str, Row] = {}

_BY_PARTS = frozenset(
    f"{name}.{overload}"
    for names, overload in (
        ("view reshape _unsafe_view _reshape_copy view_copy permute permute_copy numpy_T t mT expand", "default"),
        ("expand_copy expand_as unsqueeze unsqueeze_copy squeeze cat concat stack narrow flip roll repeat", "default"),
        ("diagonal diagonal_copy as_strided as_strided_copy tril triu unfold unfold_copy", "default"),
        ("alias clone detach lift_fresh_copy contiguous dropout index_select gather cumsum zeros_like", "default"),
        ("split_with_sizes neg sum mean lift split copy pixel_shuffle", "default"),
        ("transpose select select_copy unbind unflatten", "int"),
        ("slice slice_copy split index _unsafe_index", "Tensor"),
        ("flatten", "using_ints"),
        ("squeeze mean sum", "dim"),
        ("squeeze", "dims"),
        ("sum mean", "dim_IntList"),
        ("where", "self"),
    )
    for name in names.split()
)
"""Overloads whose row is applied to each part."""

_JOINING = ("cat.default", "concat.default", "stack.default", "where.self", "copy.default")
"""Those of which some operands may be real."""


def is_complex(value: Any) -> bool:
    """Whether PyTorch has complex numbers there, or somewhere in it."""
    if isinstance(value, list | tuple):
        return any(is_complex(own) for own in elements(cast("Any", value)))
    return isinstance(value, Complex | complex) or (isinstance(value, torch.Tensor) and value.is_complex())


def complex_row(name: str) -> Row | None:
    """The row of an overload, by name without namespace, for complex operands or a complex result."""
    found = _rows.get(name)
    if found is None and name in _BY_PARTS and f"aten.{name}" in rows():
        return _by_parts(rows()[f"aten.{name}"], name in _JOINING)
    return found


def joined(b: Builder, x: Complex) -> Value:
    """Complex numbers as floats with one more axis, the last one, of two elements."""
    last = b.constant([-1], DType.I64)
    return b.op("Concat", b.op("Unsqueeze", x.real, last), b.op("Unsqueeze", x.imag, last), axis=-1)


def parts(b: Builder, x: Value) -> Complex:
    """The inverse of `joined`."""
    return Complex(*(b.op("Gather", x, b.constant(i, DType.I64), axis=-1) for i in (0, 1)))


def real_meta(made: Any) -> Any:
    """What PyTorch knows of a tensor, as one of its parts."""
    if isinstance(made, list | tuple):
        return [real_meta(own) for own in elements(cast("Any", made))]
    return made.real if isinstance(made, torch.Tensor) and made.is_complex() else made


def _by_parts(row: Row, joins: bool) -> Row:
    """A row applied to each part; to the real one alone where the result is real. joins: operands that are real have
    imaginary parts of 0, but for conditions."""

    def run(b: Builder, *arguments: Any, **keywords: Any) -> Any:
        if not b.complex:
            return row(b, *(_part(a, "real") for a in arguments), **keywords)
        if joins:
            arguments = tuple(_joined_operand(b, own) for own in arguments)
        made = [
            row(b, *(_part(a, which) for a in arguments), **{key: _part(a, which) for key, a in keywords.items()})
            for which in ("real", "imag")
        ]
        if isinstance(made[0], Value):
            return Complex(*made)
        return [Complex(real, imag) for real, imag in zip(*made, strict=True)]

    return run


def _joined_operand(b: Builder, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_joined_operand(b, own) for own in elements(cast("Any", value))]
    is_operand = isinstance(value, Value) and value.dtype is not DType.BOOL
    return _complex(b, value) if is_operand else value


def _part(value: Any, which: str) -> Any:
    """A part of an argument; what tells places, sizes and conditions is the same for both."""
    if isinstance(value, list | tuple):
        return [_part(own, which) for own in elements(cast("Any", value))]
    return getattr(value, which) if isinstance(value, Complex | complex) else value


def _aten(*names: str) -> Callable[[Row], Row]:
    def register(row: Row) -> Row:
        _rows.update(dict.fromkeys(names, row))
        return row

    return register


# ------------------------------------------------------------------------------------------------------------ made of


@_aten("complex.default")
def of_parts(b: Builder, real: Value, imag: Value) -> Complex:
    """real + i imag"""
    x, y = b.cast(real, b.dtype), b.cast(imag, b.dtype)
    return Complex(*(b.op("Expand", own, b.op("Shape", other, dtype=DType.I64)) for own, other in ((x, y), (y, x))))


@_aten("polar.default")
def polar(b: Builder, radius: Value, angle: Value) -> Complex:
    """Numbers of a radius, in a direction."""
    return Complex(b.op("Mul", radius, b.op("Cos", angle)), b.op("Mul", radius, b.op("Sin", angle)))


_aten("view_as_complex.default", "view_as_complex_copy.default")(parts)
_aten("view_as_real.default", "view_as_real_copy.default")(joined)


@_aten("constant_pad_nd.default")
def constant_pad(b: Builder, x: Complex, pad: Sequence[int | Value], value: Number | complex = 0) -> Complex:
    """A number around the last axes."""
    row, number = rows()["aten.constant_pad_nd.default"], complex(value)
    return Complex(row(b, x.real, pad, number.real), row(b, x.imag, pad, number.imag))


@_aten("full.default", "new_full.default")
def full(b: Builder, *arguments: Any, **_: Any) -> Complex:
    """One number everywhere; a shape and the number are the last arguments."""
    size, number = arguments[-2:]
    row, filled = rows()["aten.full.default"], (number, 0) if isinstance(number, Value) else _both(number)
    return Complex(*(row(b, size, own) for own in filled))


@_aten("zeros.default", "new_zeros.default")
def zeros(b: Builder, *arguments: Any, **_: Any) -> Complex:
    """Zeros; a shape is the last argument."""
    return full(b, arguments[-1], 0)


@_aten("ones.default", "new_ones.default")
def ones(b: Builder, *arguments: Any, **_: Any) -> Complex:
    """Ones; a shape is the last argument."""
    return full(b, arguments[-1], 1)


def _both(number: Number | complex) -> tuple[float, float]:
    return complex(number).real, complex(number).imag


def _written(name: str, b: Builder, x: Operand, src: Operand, *places: Any, **keywords: Any) -> Complex:
    """x with a part replaced, either of which may be real."""
    x, src, row = _complex(b, x), _complex(b, src), rows()[f"aten.{name}"]
    return Complex(row(b, x.real, src.real, *places, **keywords), row(b, x.imag, src.imag, *places, **keywords))


for _name in ("select_scatter.default", "slice_scatter.default", "diagonal_scatter.default"):
    _aten(_name)(partial(_written, _name))


@_aten("real.default")
def real(b: Builder, x: Complex) -> Value:
    """The real parts."""
    return x.real


@_aten("imag.default")
def imag(b: Builder, x: Complex) -> Value:
    """The imaginary parts."""
    return x.imag


@_aten("_to_copy.default", "to.dtype")
def to(b: Builder, x: Complex | Value, *_: Any, **__: Any) -> Complex | Value:
    """Of another type; a real one has the real parts."""
    if not b.complex:
        return b.cast(_complex(b, x).real, b.dtype)
    return _promoted(b, x)


def _promoted(b: Builder, x: Operand) -> Complex:
    """An operand of any kind, its parts in the type of those that are made."""
    found = _complex(b, x)
    made = Complex(b.cast(found.real, b.dtype), b.cast(found.imag, b.dtype))
    for part, before in ((made.real, found.real), (made.imag, found.imag)):
        b.known.setdefault(part, b.known.get(before))
    return made


def _complex(b: Builder, x: Operand) -> Complex:
    """An operand of any kind; the imaginary part of what is real is 0."""
    if isinstance(x, Complex):
        return x
    if isinstance(x, Value):
        real = x if b.dtype_of(x).is_float else b.cast(x, b.dtype)
        imaginary = b.op("Expand", b.cast(0, b.dtype_of(real)), b.op("Shape", real, dtype=DType.I64))
        for part in (real, imaginary):
            b.known.setdefault(part, b.known.get(x))
        return Complex(real, imaginary)
    number = complex(x)
    return Complex(b.cast(number.real, b.dtype), b.cast(number.imag, b.dtype))


# --------------------------------------------------------------------------------------------------------- arithmetic


@_aten("add.Tensor", "add.Scalar")
def add(b: Builder, x: Operand, y: Operand, alpha: Number = 1) -> Complex:
    """x + alpha y"""
    return _sum(b, x, y if alpha == 1 else _product(b, y, alpha), "Add")


@_aten("sub.Tensor", "sub.Scalar")
def sub(b: Builder, x: Operand, y: Operand, alpha: Number = 1) -> Complex:
    """x - alpha y"""
    return _sum(b, x, y if alpha == 1 else _product(b, y, alpha), "Sub")


def _sum(b: Builder, x: Operand, y: Operand, op_type: str) -> Complex:
    x, y = _promoted(b, x), _promoted(b, y)
    return Complex(b.op(op_type, x.real, y.real), b.op(op_type, x.imag, y.imag))


@_aten("mul.Tensor", "mul.Scalar")
def mul(b: Builder, x: Operand, y: Operand) -> Complex:
    """x y"""
    return _product(b, x, y)


def _product(b: Builder, x: Operand, y: Operand, op_type: str = "Mul") -> Complex:
    if not is_complex(x) and not is_complex(y):
        return _complex(b, b.op(op_type, _floats(b, x), _floats(b, y)))
    if not is_complex(y):
        x, factor = _promoted(b, x), _floats(b, y)
        return Complex(b.op(op_type, x.real, factor), b.op(op_type, x.imag, factor))
    if not is_complex(x):
        factor, y = _floats(b, x), _promoted(b, y)
        return Complex(b.op(op_type, factor, y.real), b.op(op_type, factor, y.imag))
    x, y = _promoted(b, x), _promoted(b, y)
    return Complex(
        b.op("Sub", b.op(op_type, x.real, y.real), b.op(op_type, x.imag, y.imag)),
        b.op("Add", b.op(op_type, x.real, y.imag), b.op(op_type, x.imag, y.real)),
    )


def _floats(b: Builder, x: Operand) -> Value:
    """A real operand, in the type of the parts."""
    assert isinstance(x, Value | int | float)
    return b.cast(x, b.dtype)


@_aten("mm.default", "bmm.default", "matmul.default", "mv.default")
def matmul(b: Builder, x: Complex | Value, y: Complex | Value) -> Complex:
    """The product of matrices."""
    return _product(b, x, y, "MatMul")


@_aten("einsum.default")
def einsum(b: Builder, equation: str, tensors: Sequence[Complex], **_: Any) -> Complex:
    """A sum of products of letters' indices, by the parts of each operand: i is taken as often as there are imaginary
    ones."""
    parts: list[list[Value]] = [[], []]
    for chosen in itertools.product((False, True), repeat=len(tensors)):
        operands = [own.imag if imaginary else own.real for own, imaginary in zip(tensors, chosen, strict=True)]
        product = b.op("Einsum", *operands, equation=equation.replace(" ", ""))
        parts[sum(chosen) % 2].append(b.op("Neg", product) if sum(chosen) % 4 >= 2 else product)
    return Complex(*(reduce(partial(b.op, "Add"), own) for own in parts))


@_aten("div.Tensor", "div.Scalar")
def div(b: Builder, x: Operand, y: Operand) -> Complex:
    """x / y"""
    if not is_complex(y):
        x, factor = _promoted(b, x), _floats(b, y)
        return Complex(b.op("Div", x.real, factor), b.op("Div", x.imag, factor))
    return _product(b, x, reciprocal(b, _promoted(b, y)))


@_aten("reciprocal.default")
def reciprocal(b: Builder, x: Complex) -> Complex:
    """1 / x, by the larger part: its square may be too large for a float where x is not."""
    swap = b.op("Less", b.op("Abs", x.real), b.op("Abs", x.imag), dtype=DType.BOOL)
    large = b.op("Where", swap, x.imag, x.real, dtype=b.dtype)
    small = b.op("Where", swap, x.real, x.imag, dtype=b.dtype)
    ratio = b.op("Div", small, large)
    scale = b.op("Reciprocal", b.op("Add", large, b.op("Mul", small, ratio)))
    other = b.op("Mul", ratio, scale)
    return Complex(
        b.op("Where", swap, other, scale, dtype=b.dtype),
        b.op("Neg", b.op("Where", swap, scale, other, dtype=b.dtype)),
    )


@_aten("_conj.default", "_conj_physical.default", "conj_physical.default", "conj.default", "_conj_copy.default")
def conj(b: Builder, x: Complex) -> Complex:
    """The conjugate."""
    return Complex(x.real, b.op("Neg", x.imag))


@_aten("resolve_conj.default", "resolve_neg.default")
def resolved(b: Builder, x: Complex) -> Complex:
    """x"""
    return x


@_aten("abs.default")
def absolute(b: Builder, x: Complex) -> Value:
    """The distance from 0."""
    return rows()["aten.hypot.default"](b, x.real, x.imag)


@_aten("angle.default")
def angle(b: Builder, x: Complex) -> Value:
    """The direction from 0."""
    return b.op("Atan2", x.imag, x.real, domain=DOMAIN)


@_aten("exp.default")
def exp(b: Builder, x: Complex) -> Complex:
    """e to the power of x."""
    return polar(b, b.op("Exp", x.real), x.imag)


@_aten("log.default")
def log(b: Builder, x: Complex) -> Complex:
    """The natural logarithm, of the principal branch."""
    return Complex(b.op("Log", absolute(b, x)), angle(b, x))


@_aten("eq.Tensor", "eq.Scalar")
def eq(b: Builder, x: Operand, y: Operand) -> Value:
    """Whether both parts are equal."""
    x, y = _complex(b, x), _complex(b, y)
    same = [b.op("Equal", *pair, dtype=DType.BOOL) for pair in ((x.real, y.real), (x.imag, y.imag))]
    return b.op("And", *same)


# ------------------------------------------------------------------------------------------------- Fourier transforms


def _scale(b: Builder, count: Sequence[int | Value], power: float) -> Value:
    """The product of sizes, to a power."""
    total = b.cast(1, b.dtype)
    for size in count:
        total = b.op("Mul", total, b.cast(size, b.dtype))
    return b.op("Pow", total, b.cast(power, b.dtype))


def _normalized(b: Builder, x: Value, count: Sequence[int | Value], normalization: int, inverse: bool) -> Value:
    """A transform by PyTorch's three normalizations: 0, by the root of the size, by the size. ONNX's inverse is by
    the size anyhow."""
    power = {0: 0.0, 1: -0.5, 2: -1.0}[normalization] + inverse
    if not power:
        return x
    if all(isinstance(size, int) for size in count):
        return b.op("Mul", x, b.cast(math.prod(cast("Sequence[int]", count)) ** power, b.dtype))
    return b.op("Mul", x, _scale(b, count, power))


def _along(
    b: Builder, x: Value, axis: int, *, inverse: bool = False, onesided: bool = False, length: Any = None
) -> Value:
    size = None if length is None else b.cast(length, DType.I64)
    place = b.constant(axis, DType.I64)
    return b.op("DFT", x, size, place, inverse=int(inverse), onesided=int(onesided))


def _axes(b: Builder, x: Complex | Value, dim: Sequence[int]) -> tuple[list[int], list[int | Value]]:
    """Axes from the front, and the sizes along them."""
    own = x.real if isinstance(x, Complex) else x
    axes = [b.axis(axis, b.rank(own)) for axis in dim]
    return axes, [b.sizes(own)[axis] for axis in axes]


@_aten("_fft_c2c.default")
def c2c(b: Builder, x: Complex, dim: Sequence[int], normalization: int, forward: bool) -> Complex:
    """Complex numbers to complex numbers."""
    axes, sizes = _axes(b, x, dim)
    y = joined(b, x)
    for axis in axes:
        y = _along(b, y, axis, inverse=not forward)
    return parts(b, _normalized(b, y, sizes, normalization, not forward))


@_aten("_fft_r2c.default")
def r2c(b: Builder, x: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Complex:
    """Real numbers to complex ones; half of them along the last axis where it is one-sided."""
    axes, sizes = _axes(b, x, dim)
    y = b.op("Unsqueeze", x, b.constant([-1], DType.I64))
    y = _along(b, y, axes[-1], onesided=onesided)
    for axis in axes[:-1]:
        y = _along(b, y, axis)
    return parts(b, _normalized(b, y, sizes, normalization, inverse=False))


@_aten("_fft_c2r.default")
def c2r(b: Builder, x: Complex, dim: Sequence[int], normalization: int, last_dim_size: int | Value) -> Value:
    """Half of the complex numbers along the last axis to as many real ones as are told."""
    axes, sizes = _axes(b, x, dim)
    sizes[-1] = last_dim_size
    y = joined(b, x)
    for axis in axes[:-1]:
        y = _along(b, y, axis, inverse=True)
    y = _along(b, y, axes[-1], inverse=True, onesided=True, length=last_dim_size)
    return _normalized(b, b.op("Squeeze", y, b.constant([-1], DType.I64)), sizes, normalization, inverse=True)

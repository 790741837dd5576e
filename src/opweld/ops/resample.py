"""The input positions of the elements of a resized axis, in exact rational arithmetic on dims."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from opweld.ops.arithmetic import add, apply, count, div, larger, mul, sub, where
from opweld.tensor.dim import Axis, Dim, as_dim, ceildiv, floordiv, maximum, minimum, mod
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, reduce, unary

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
)
MAX_DENOMINATOR = 1000
"""The largest denominator of the fractions that scales stand for."""

FINEST = 1 << 32
"""The denominator for scales that are not short fractions: products with sizes stay far below 2**63."""

ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")

ROUNDING_OF_10 = "of opset 10"
"""The rounding of opset 10, which does not specify it: up along an axis that gets shorter, else down. ONNX's test of
opset 10, `test_resize_downsample_nearest`, takes the third of four elements where a scale of 0.6 gives position 1.67;
ONNX Runtime does the same."""


@dataclass(frozen=True)
class Ratio:
    """numerator / denominator, denominator > 0."""

    numerator: Dim
    denominator: Dim

    def floor(self) -> Dim:
        """Rounded down."""
        return floordiv(self.numerator, self.denominator)

    def ceil(self) -> Dim:
        """Rounded up."""
        return ceildiv(self.numerator, self.denominator)

    def round(self, mode: str) -> Dim:
        """Rounded by one of `ROUNDINGS`; the modes differ at exact halves."""
        if mode == "floor":
            return self.floor()
        if mode == "ceil":
            return self.ceil()
        twice, double = self.numerator * 2, self.denominator * 2
        if mode == "round_prefer_floor":
            return Ratio(twice - self.denominator, double).ceil()
        return Ratio(twice + self.denominator, double).floor()

    def fraction(self, dtype: DType) -> Expr:
        """The remainder above `floor`, in [0, 1), as a value."""
        return div(count(mod(self.numerator, self.denominator), dtype), count(self.denominator, dtype))


@dataclass(frozen=True)
class Resampling:
    """One axis: `size` elements become `out`, by the scale `out_units / in_units`."""

    size: Dim
    out: Dim
    out_units: Dim
    in_units: Dim
    coordinates: str

    @staticmethod
    def to_size(size: Dim, out: Dim, coordinates: str) -> Resampling:
        """Scaled to a given size."""
        return Resampling(size, out, out, size, coordinates)

    @staticmethod
    def by_scale(size: Dim, out_units: Dim, in_units: Dim, coordinates: str) -> Resampling:
        """Scaled by a fraction; the size is rounded down."""
        return Resampling(size, floordiv(size * out_units, in_units), out_units, in_units, coordinates)

    @property
    def is_identity(self) -> bool:
        """Whether every element has the same position in input and output."""
        return self.out is self.size and self.out_units is self.in_units

    def source(self, place: Dim) -> Ratio:
        """The input position, not clamped, of an output position."""
        p, q = self.out_units, self.in_units
        if self.coordinates == "asymmetric":
            return Ratio(place * q, p)
        if self.coordinates == "align_corners":
            return Ratio(place * (self.size - 1), maximum(self.out - 1, 1))
        if self.coordinates == "tf_half_pixel_for_nn":
            return Ratio((place * 2 + 1) * q, p * 2)
        centred = (place * 2 + 1) * q - p
        if self.coordinates == "pytorch_half_pixel":
            # A single element is the first one, not the one in the middle.
            centred = centred * minimum(self.out - 1, 1)
        if self.coordinates == "half_pixel_symmetric":
            # half_pixel plus (size - out / scale) / 2: the part of the input that the rounded size cannot cover
            return Ratio(centred + self.size * p - self.out * q, p * 2)
        return Ratio(centred, p * 2)

    def clamp(self, index: Dim) -> Dim:
        """The nearest index in the axis."""
        return minimum(maximum(index, 0), self.size - 1)

    def nearest(self, place: Dim, rounding: str) -> Dim:
        """The input index of the nearest element."""
        source = self.source(place)
        if rounding == ROUNDING_OF_10:
            shorter = minimum(maximum(self.in_units - self.out_units, 0), 1)
            source, rounding = Ratio(source.numerator + (source.denominator - 1) * shorter, source.denominator), "floor"
        return self.clamp(source.round(rounding))

    def taps(self, place: Dim, dtype: DType, cubic: float | None) -> list[tuple[Dim, Expr]]:
        """(input index, weight) of each element that contributes: two for linear, four for cubic with its
        coefficient."""
        source = self.source(place)
        base, t = source.floor(), source.fraction(dtype)
        if cubic is None:
            return [(self.clamp(base), sub(1, t)), (self.clamp(base + 1), t)]
        return [(self.clamp(base + k - 1), weight) for k, weight in enumerate(cubic_weights(t, cubic))]

    def window(self, reach: int, stretched: bool) -> tuple[Dim, Dim]:
        """(offset of the first element from the floor of the position, number of elements) that a kernel with this
        reach to each side may weight; a stretched kernel is wider by as much as the axis gets shorter."""
        half = ceildiv(self.in_units * reach, self._shortest) if stretched else as_dim(reach)
        return 1 - half, half * 2

    def distance(self, place: Dim, offset: Dim, dtype: DType, stretched: bool) -> Expr:
        """The distance, in units of the kernel, of the element at an offset from the position's floor."""
        apart = sub(count(offset, dtype), self.source(place).fraction(dtype))
        return mul(apart, div(count(self._shortest, dtype), count(self.in_units, dtype))) if stretched else apart

    @property
    def _shortest(self) -> Dim:
        """The numerator of the scale, or of 1 where the axis gets longer."""
        return minimum(self.out_units, self.in_units)


def intended_ratio(scale: float) -> Fraction:
    """The fraction that a positive float32 scale stands for: 1.3 is 13/10, although the float is a little less, so that
    ten elements become thirteen. It is the fraction of the least denominator that rounds to the float; a float that is
    not close to a short fraction stands for itself."""
    denominators = np.arange(1, MAX_DENOMINATOR + 1)
    numerators = np.rint(scale * denominators)
    (short,) = np.nonzero((numerators / denominators).astype(np.float32) == np.float32(scale))
    denominator = int(denominators[short[0]]) if short.size else FINEST
    return Fraction(round(scale * denominator), denominator)


def intended_units(scale: Expr) -> Expr:
    """The denominator of `intended_ratio`, as float64, for a float32 computed at run time."""
    k = Axis("k", as_dim(MAX_DENOMINATOR))
    denominator = count(k.dim + 1, DType.F64)
    quotient = div(nearest_numerator(scale, denominator), denominator)
    fits = binary("eq", cast(quotient, DType.F32), scale)
    return reduce("min", (k,), where(fits, denominator, float(FINEST)))


def nearest_numerator(scale: Expr, denominator: Expr) -> Expr:
    """The numerator of the fraction nearest to a scale, for a denominator; both float64."""
    return unary("round", mul(cast(scale, DType.F64), denominator))


def cubic_weights(t: Expr, a: float) -> list[Expr]:
    """Keys' cubic convolution: the weights of the elements at offsets -1, 0, 1 and 2 from the floor of a position, t
    above it."""

    def outer(x: Expr) -> Expr:
        return sub(mul(add(mul(sub(mul(x, a), 5 * a), x), 8 * a), x), 4 * a)

    def inner(x: Expr) -> Expr:
        return add(mul(mul(sub(mul(x, a + 2), a + 3), x), x), 1)

    return [outer(add(t, 1)), inner(t), inner(sub(1, t)), outer(sub(2, t))]


def kernel_weight(distance: Expr, cubic: float | None) -> Expr:
    """The weight of an element by its distance: a triangle of radius 1, or Keys' kernel of radius 2."""
    x = unary("abs", distance)
    if cubic is None:
        return larger(sub(1, x), 0)
    inner = add(mul(mul(sub(mul(x, cubic + 2), cubic + 3), x), x), 1)
    outer = sub(mul(add(mul(sub(mul(x, cubic), 5 * cubic), x), 8 * cubic), x), 4 * cubic)
    return where(apply("le", x, 1), inner, where(apply("lt", x, 2), outer, 0))

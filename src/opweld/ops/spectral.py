"""DFT, STFT, window functions and mel weights.

A Fourier transform is a matrix product: a matrix of small known size is computed at compile time; elements of larger or
symbolic ones are looked up in a table of one period of a cosine and a sine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import accumulator, add, apply, count, div, mul, sub, where
from opweld.ops.emitted import Emitted, Indices, define, emit
from opweld.ops.fact import Fact
from opweld.ops.fed_axes import by_fed_axes
from opweld.ops.known import known_dims, required_dims
from opweld.ops.matmul import contraction
from opweld.ops.operands import (
    describe,
    given,
    known_integers,
    normalize_axis,
    requested_dtype,
    require_float,
    require_rank,
    required,
)
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.tensor.dim import Axis, Dim, as_dim, floordiv, minimum, mod
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, at_least_zero, cast, const, index, select, unary

Factor: TypeAlias = "Callable[[Dim, Dim, Dim, Dim], Expr]"
"""The factor of part `d` of input `k` in part `c` of output `f`, as a function of (k, d, f, c)."""

MATRIX_LENGTH = 2048
"""The longest transform that is a product with a constant matrix."""


@dataclass(frozen=True)
class Transform:
    """A Fourier transform of `length`: from `inputs` to `outputs` complex numbers, of which only the real parts are
    given or needed where `parts_in` or `parts_out` is 1."""

    length: Dim
    inputs: Dim
    outputs: Dim
    parts_in: int
    parts_out: int
    inverse: bool = False
    halved: bool = False
    """The inputs are the first half of a spectrum whose other half is its conjugate mirror image."""

    def factors(self, scope: Lowering, dtype: DType) -> Factor:
        """The elements of the matrix. Zeros of sines and cosines are exact: the middle of a spectrum of real numbers is
        real, and its angle is never -pi."""
        length, inputs, outputs = self.length.constant, self.inputs.constant, self.outputs.constant
        if length is None or inputs is None or outputs is None or length > MATRIX_LENGTH:
            return self._looked_up(scope, dtype)
        k, d, f, c = np.ogrid[:inputs, : self.parts_in, :outputs, : self.parts_out]
        steps = k * f % length
        angles = steps * (2 * np.pi / max(length, 1))
        cosine = np.where(steps * 4 % (2 * length) == length, 0.0, np.cos(angles))
        sine = np.where(steps * 2 % length == 0, 0.0, np.sin(angles))
        turned = np.where(c == d, cosine, np.where(c > d, -1, 1) * sine * (-1 if self.inverse else 1))
        weights = np.where((k > 0) & (2 * k != length) & self.halved, 2, 1) / (max(length, 1) if self.inverse else 1)
        matrix = Emitted(scope.constant((turned * weights).astype(dtype.numpy), "fourier"), dtype)
        return _element_of(matrix)

    def _looked_up(self, scope: Lowering, dtype: DType) -> Factor:
        def wave(operator: str, i: Indices, zero: Dim) -> Expr:
            angle = mul(div(count(i[0], DType.F64), count(self.length, DType.F64)), 2 * math.pi)
            return cast(where(apply("eq", index(zero), 0), 0, unary(operator, angle)), dtype)

        n = self.length
        cosine = emit(scope, (n,), lambda i: wave("cos", i, mod(i[0] * 4, n * 2) - n), "cosine")
        sine = emit(scope, (n,), lambda i: wave("sin", i, i[0] * 2 - n), "sine")
        sign = -1 if self.inverse else 1

        def factor(k: Dim, d: Dim, f: Dim, c: Dim) -> Expr:
            place = (mod(k * f, self.length),)
            turned = where(at_least_zero(c - d - 1), mul(sine.at(place), -sign), mul(sine.at(place), sign))
            found = select(at_least_zero(c - d), select(at_least_zero(d - c), cosine.at(place), turned), turned)
            if self.halved:
                once = apply("or", apply("eq", index(k), 0), apply("eq", index(k * 2 - self.length), 0))
                found = mul(found, where(once, 1, const(2, dtype)))
            return div(found, count(self.length, dtype)) if self.inverse else found

        return factor


def _element_of(matrix: Emitted) -> Factor:
    return lambda k, d, f, c: matrix.at((k, d, f, c))


def _transform(scope: Inference | Lowering, node: ir.Node) -> tuple[int, Transform]:
    """The axis and the transform of a DFT."""
    x = scope.fact(required(node, 0))
    axis = (known_integers(scope, node, 2, "the axis") or (-2,))[0]
    axis = normalize_axis(axis, x.rank, node)
    inverse, onesided = bool(attribute(node, "inverse", 0)), bool(attribute(node, "onesided", 0))
    parts, size = _parts(node, x), x.shape[axis]
    if axis == x.rank - 1 or (onesided and parts != (2 if inverse else 1)):
        raise ModelError(
            f"{describe(node)}: axis {axis} of shape {list(x.shape)} with inverse={int(inverse)} and "
            f"onesided={int(onesided)} is not defined"
        )
    given_length = known_dims(scope, node, 1, "the length")
    implied = (size - 1) * 2 if inverse and onesided else size
    length = implied if given_length is None else given_length[0]
    half = floordiv(length, 2) + 1
    if inverse and onesided:
        return axis, Transform(length, minimum(size, half), length, 2, 1, inverse=True, halved=True)
    return axis, Transform(length, minimum(size, length), half if onesided else length, parts, 2, inverse=inverse)


def _parts(node: ir.Node, x: Fact) -> int:
    parts = x.shape[-1].constant
    if parts not in (1, 2):
        raise ModelError(f"{describe(node)}: the last axis must have 1 or 2 elements, got shape {list(x.shape)}")
    return parts


def _decide_parts(scope: Inference, node: ir.Node, x: Fact) -> None:
    """Whether the numbers of a symbolic last axis are real or complex depends on its size."""
    parts = x.shape[-1]
    if parts.constant is None and not scope.decide(parts - 1, "zero", node, "the numbers are real"):
        scope.same(parts, as_dim(2), node, "a complex number has two parts")


@infers("DFT")
def infer_dft(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape with the length along the axis, or length / 2 + 1 if one-sided; one or two parts in the last axis."""
    x = require_float(require_rank(scope.fact(required(node, 0)), 2, node), node)
    fed = by_fed_axes(scope, node, 2, x.rank)
    if fed is not None:
        return fed
    _decide_parts(scope, node, x)
    axis, transform = _transform(scope, node)
    scope.at_least(transform.length, 1, node, "the length of a transform")
    return [Fact(x.dtype, (*x.shape[:axis], transform.outputs, *x.shape[axis + 1 : -1], as_dim(transform.parts_out)))]


@lowers("DFT")
def lower_dft(scope: Lowering, node: ir.Node) -> None:
    """A product of the axis and the parts with the matrix of the transform."""
    x = required(node, 0)
    axis, transform = _transform(scope, node)
    factor = transform.factors(scope, accumulator(scope.fact(x).dtype))

    def body(i: Indices) -> Expr:
        k, d = Axis("k", transform.inputs), Axis("d", transform.parts_in)
        element = scope.load(x, (*i[:axis], k.dim, *i[axis + 1 : -1], d.dim))
        return contraction((k, d), element, factor(k.dim, d.dim, i[axis], i[-1]))

    define(scope, node.outputs[0], body)


def _frames(scope: Inference | Lowering, node: ir.Node) -> tuple[Dim, Dim, Transform]:
    """The step between frames, their number, and the transform of each."""
    signal = scope.fact(required(node, 0))
    (step,), window = required_dims(scope, node, 1, "the step"), given(node, 2)
    given_length = known_dims(scope, node, 3, "the length of a frame")
    if given_length is None and window is None:
        raise ModelError(f"{describe(node)}: neither a window nor the length of a frame is given")
    length = given_length[0] if given_length is not None else scope.fact(window).shape[0]
    onesided, parts = bool(attribute(node, "onesided", 1)), 1 if signal.rank == 2 else _parts(node, signal)
    if onesided and parts == 2:
        raise ModelError(f"{describe(node)}: the spectrum of a complex signal has two sides")
    outputs = floordiv(length, 2) + 1 if onesided else length
    return step, floordiv(signal.shape[1] - length, step) + 1, Transform(length, length, outputs, parts, 2)


@infers("STFT")
def infer_stft(scope: Inference, node: ir.Node) -> list[Fact]:
    """[B, L, 1 or 2] -> [B, frames, bins, 2]; a real signal may lack its last axis, as exporters write it."""
    signal = require_float(require_rank(scope.fact(required(node, 0)), 2, node, 3), node)
    (step,), window = required_dims(scope, node, 1, "the step"), given(node, 2)
    scope.at_least(step, 1, node, "the step from frame to frame")
    if signal.rank == 3:
        _decide_parts(scope, node, signal)
    _, frames, transform = _frames(scope, node)
    scope.at_least(transform.length, 1, node, "the length of a frame")
    scope.at_least(signal.shape[1] - transform.length, 0, node, "a frame fits into the signal")
    if window is not None:
        extent = require_rank(scope.fact(window), 1, node, 1).shape[0]
        scope.same(extent, transform.length, node, "the window is as long as a frame")
    return [Fact(signal.dtype, (signal.shape[0], frames, transform.outputs, as_dim(2)))]


@lowers("STFT")
def lower_stft(scope: Lowering, node: ir.Node) -> None:
    """A product of each frame with the matrix of the transform, whose rows the window scales."""
    signal, window = required(node, 0), given(node, 2)
    step, _, transform = _frames(scope, node)
    dtype = accumulator(scope.fact(signal).dtype)
    factor = transform.factors(scope, dtype)
    if window is not None:
        plain, shape = factor, (transform.inputs, as_dim(transform.parts_in), transform.outputs, as_dim(2))
        scaled = emit(scope, shape, lambda i: mul(plain(*i), cast(scope.load(window, i[:1]), dtype)), "windowed")
        factor = _element_of(scaled)

    def body(i: Indices) -> Expr:
        k, d = Axis("k", transform.inputs), Axis("d", transform.parts_in)
        place = (i[0], i[1] * step + k.dim, d.dim)
        element = scope.load(signal, place[: scope.fact(signal).rank])
        return contraction((k, d), element, factor(k.dim, d.dim, i[2], i[3]))

    define(scope, node.outputs[0], body)


WINDOWS: Mapping[str, tuple[float, ...]] = {
    "HannWindow": (0.5, 0.5),
    "HammingWindow": (25 / 46, 21 / 46),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}
"""a, b and c of a - b cos(x) + c cos(2 x), where x runs over one period."""


@infers(*WINDOWS)
def infer_window(scope: Inference, node: ir.Node) -> list[Fact]:
    """One axis, of the size that the input holds."""
    (size,) = required_dims(scope, node, 0, "the size")
    scope.at_least(size, 0, node, "the size of a window")
    return [Fact(requested_dtype(node, int(attribute(node, "output_datatype", 1))), (size,))]


@lowers(*WINDOWS)
def lower_window(scope: Lowering, node: ir.Node) -> None:
    """A sum of cosines over a period of the size, or of one less if it is not periodic."""
    (size,) = scope.fact(node.outputs[0]).shape
    period = size if attribute(node, "periodic", 1) else size - 1

    def body(i: Indices) -> Expr:
        angle = mul(div(count(i[0], DType.F64), count(period, DType.F64)), 2 * math.pi)
        first, second, *third = WINDOWS[node.op_type]
        value = sub(first, mul(unary("cos", angle), second))
        return add(value, mul(unary("cos", mul(angle, 2.0)), third[0])) if third else value

    define(scope, node.outputs[0], body)


@infers("MelWeightMatrix")
def infer_mel_weights(scope: Inference, node: ir.Node) -> list[Fact]:
    """[dft_length / 2 + 1, num_mel_bins]"""
    (bins,), (length,) = (required_dims(scope, node, position, "a size") for position in (0, 1))
    for size in (bins, length):
        scope.at_least(size, 0, node, "a size of the matrix")
    for position in (2, 3, 4):
        if scope.fact(required(node, position)).rank:
            raise ModelError(f"{describe(node)}: input {position} must be a scalar")
    dtype = requested_dtype(node, int(attribute(node, "output_datatype", 1)))
    return [Fact(dtype, (floordiv(length, 2) + 1, bins))]


@lowers("MelWeightMatrix")
def lower_mel_weights(scope: Lowering, node: ir.Node) -> None:
    """Column b rises from edge b to edge b + 1 and falls to edge b + 2, where the edges are evenly spaced in mel."""
    (bins,), (length,) = (required_dims(scope, node, position, "a size") for position in (0, 1))
    rate, low, high = (required(node, position) for position in (2, 3, 4))

    def mel(frequency: ir.Value) -> Expr:
        return mul(unary("log1p", div(cast(scope.load(frequency, ()), DType.F64), 700.0)), 2595 / math.log(10))

    def edge(i: Indices) -> Expr:
        step = div(sub(mel(high), mel(low)), count(bins + 2, DType.F64))
        hertz = mul(
            sub(unary("exp", mul(add(mul(count(i[0], DType.F64), step), mel(low)), math.log(10) / 2595)), 1), 700
        )
        return unary("floor", div(mul(hertz, count(length + 1, DType.F64)), cast(scope.load(rate, ()), DType.F64)))

    edges = emit(scope, (bins + 2,), edge, "edges")

    def body(i: Indices) -> Expr:
        place = count(i[0], DType.F64)
        left, centre, right = (edges.at((i[1] + step,)) for step in range(3))
        rise = where(apply("eq", left, centre), 1, div(sub(place, left), sub(centre, left)))
        rising = apply("and", apply("ge", place, left), apply("le", place, centre))
        falling = apply("and", apply("ge", place, centre), apply("lt", place, right))
        fall = div(sub(right, place), sub(right, centre))
        return where(falling, fall, where(rising, rise, 0))

    define(scope, node.outputs[0], body)

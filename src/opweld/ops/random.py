"""Random numbers, and Dropout, which needs them.

A model holds no state, so every run draws the same numbers: element i is the i-th output of SplitMix64 (Steele, Lea and
Flood, 2014) from a seed. The seed is the attribute; a node without one has a seed derived from its name, so that no
two nodes draw the same numbers.
"""

from __future__ import annotations

import math
import struct
import zlib

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import accumulator, add, div, larger, mul, sub, where
from opweld.ops.emitted import Indices, define, emit
from opweld.ops.fact import Fact
from opweld.ops.operands import (
    describe,
    elements_of,
    given,
    requested_dtype,
    require_float,
    require_rank,
    required,
    wanted,
)
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers, required_attribute
from opweld.tensor.dim import ZERO, Axis, Dim, as_dim, row_major
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, const, index, reduce, unary

GAMMA = 0x9E3779B97F4A7C15
"""The increment of the generator's state: odd, and near 2**64 divided by the golden ratio."""


def seed_of(node: ir.Node) -> int:
    """A seed of 64 bits: the attribute's bits, or derived from the node's name."""
    seed = attribute(node, "seed", None)
    if seed is None:
        return zlib.crc32((node.name or "").encode()) << 32
    return int.from_bytes(struct.pack("<d", float(seed)), "little")


def random_bits(seed: int, position: Dim) -> Expr:
    """The 64 random bits of a position, as U64."""

    def number(value: int) -> Expr:
        return const(value % (1 << 64), DType.U64)

    def mixed(x: Expr, shift: int) -> Expr:
        return binary("bitxor", x, binary("shr", x, number(shift)))

    steps = binary("mul", cast(index(position + 1), DType.U64), number(GAMMA))
    x = binary("add", number(seed), steps)
    x = binary("mul", mixed(x, 30), number(0xBF58476D1CE4E5B9))
    x = binary("mul", mixed(x, 27), number(0x94D049BB133111EB))
    return mixed(x, 31)


_DIGITS = {DType.F64: 53, DType.F16: 11, DType.BF16: 8}


def uniform(seed: int, position: Dim, dtype: DType) -> Expr:
    """A number in [0, 1) that the dtype holds exactly, in its accumulator's dtype."""
    digits = _DIGITS.get(dtype, 24)
    bits = binary("shr", random_bits(seed, position), const(64 - digits, DType.U64))
    return mul(cast(bits, accumulator(dtype)), 2.0**-digits)


def normal(seed: int, position: Dim, dtype: DType) -> Expr:
    """A number of the standard normal distribution (Box and Muller, 1958)."""
    exact = DType.F64 if dtype is DType.F64 else DType.F32
    radius = unary("sqrt", mul(unary("log", sub(1, uniform(seed, position * 2, exact))), -2))
    return mul(radius, unary("cos", mul(uniform(seed, position * 2 + 1, exact), 2 * math.pi)))


@infers("RandomUniform", "RandomNormal")
def infer_random(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape and dtype from the attributes."""
    shape = [int(extent) for extent in required_attribute(node, "shape")]
    if min(shape, default=0) < 0:
        raise ModelError(f"{describe(node)}: shape {shape} has a negative size")
    return [_float_fact(node, tuple(map(as_dim, shape)), requested_dtype(node, int(attribute(node, "dtype", 1))))]


@infers("RandomUniformLike", "RandomNormalLike")
def infer_random_like(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape of the input, and its dtype unless the attribute `dtype` is given."""
    fact, declared = scope.fact(required(node, 0)), attribute(node, "dtype", None)
    return [_float_fact(node, fact.shape, fact.dtype if declared is None else requested_dtype(node, int(declared)))]


def _float_fact(node: ir.Node, shape: tuple[Dim, ...], dtype: DType) -> Fact:
    return require_float(Fact(dtype, shape), node)


@lowers("RandomUniform", "RandomUniformLike")
def lower_random_uniform(scope: Lowering, node: ir.Node) -> None:
    """low + uniform * (high - low)"""
    fact, seed = scope.fact(node.outputs[0]), seed_of(node)
    low, high = float(attribute(node, "low", 0.0)), float(attribute(node, "high", 1.0))

    def body(i: Indices) -> Expr:
        return add(mul(uniform(seed, row_major(i, fact.shape), fact.dtype), high - low), low)

    define(scope, node.outputs[0], body)


@lowers("RandomNormal", "RandomNormalLike")
def lower_random_normal(scope: Lowering, node: ir.Node) -> None:
    """mean + normal * scale"""
    fact, seed = scope.fact(node.outputs[0]), seed_of(node)
    mean, scale = float(attribute(node, "mean", 0.0)), float(attribute(node, "scale", 1.0))
    define(
        scope,
        node.outputs[0],
        lambda i: add(mul(normal(seed, row_major(i, fact.shape), fact.dtype), scale), mean),
    )


@infers("Bernoulli")
def infer_bernoulli(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape of the probabilities, and their dtype unless the attribute `dtype` is given."""
    fact, declared = require_float(scope.fact(required(node, 0)), node), attribute(node, "dtype", None)
    return [Fact(fact.dtype if declared is None else requested_dtype(node, int(declared)), fact.shape)]


@lowers("Bernoulli")
def lower_bernoulli(scope: Lowering, node: ir.Node) -> None:
    """uniform < probability"""
    x, seed = required(node, 0), seed_of(node)
    fact = scope.fact(x)
    exact = DType.F64 if fact.dtype is DType.F64 else DType.F32

    def body(i: Indices) -> Expr:
        return binary("lt", uniform(seed, row_major(i, fact.shape), exact), cast(scope.load(x, i), exact))

    define(scope, node.outputs[0], body)


@infers("Multinomial")
def infer_multinomial(scope: Inference, node: ir.Node) -> list[Fact]:
    """[B, classes] log-probabilities -> [B, sample_size] classes"""
    fact = require_float(require_rank(scope.fact(required(node, 0)), 2, node, 2), node)
    scope.at_least(fact.shape[1], 1, node, "there is a class to draw")
    dtype, samples = requested_dtype(node, int(attribute(node, "dtype", 6))), int(attribute(node, "sample_size", 1))
    if dtype not in (DType.I32, DType.I64) or samples < 0:
        raise ModelError(f"{describe(node)}: {samples} samples of {dtype!r} are not defined")
    return [Fact(dtype, (fact.shape[0], as_dim(samples)))]


@lowers("Multinomial")
def lower_multinomial(scope: Lowering, node: ir.Node) -> None:
    """The class of the largest logarithm after Gumbel noise is added, which samples the distribution."""
    x, seed = required(node, 0), seed_of(node)
    shape, classes = scope.fact(node.outputs[0]).shape, scope.fact(x).shape[1]
    dtype = accumulator(scope.fact(x).dtype)

    def body(i: Indices) -> Expr:
        c = Axis("c", classes)
        # Zero would give infinite noise.
        drawn = larger(uniform(seed, row_major((*i, c.dim), (*shape, classes)), dtype), 2.0**-25)
        noise = unary("neg", unary("log", unary("neg", unary("log", drawn))))
        return reduce("argmax", (c,), add(cast(scope.load(x, (i[0], c.dim)), dtype), noise))

    define(scope, node.outputs[0], body)


@infers("Dropout")
def infer_dropout(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input, and a mask of the elements that are kept."""
    fact = scope.fact(required(node, 0))
    for position in (1, 2):
        value = given(node, position)
        if value is not None and not all(dim.constant == 1 for dim in scope.fact(value).shape):
            raise ModelError(f"{describe(node)}: input {value.name!r} must be a scalar")
    return [fact if _training(scope, node) is False else Fact(fact.dtype, fact.shape), Fact(DType.BOOL, fact.shape)]


@lowers("Dropout")
def lower_dropout(scope: Lowering, node: ir.Node) -> None:
    """The input unchanged; in training mode, which may be decided at run time, elements are dropped with probability
    `ratio` and the rest scaled up."""
    x, ratio, training = required(node, 0), given(node, 1), given(node, 2)
    fact, seed, mask = scope.fact(x), seed_of(node), wanted(node, 1)
    if _training(scope, node) is False:
        scope.alias(node.outputs[0], scope.tensor(x))
        return define(scope, mask, lambda _: const(True, DType.BOOL)) if mask is not None else None
    assert training is not None
    dtype = DType.F64 if fact.dtype is DType.F64 else DType.F32

    def scalar(value: ir.Value) -> Expr:
        return scope.load(value, [ZERO] * scope.fact(value).rank)

    def dropped() -> Expr:
        return const(0.5, dtype) if ratio is None else cast(scalar(ratio), dtype)

    def kept(i: Indices) -> Expr:
        drawn = uniform(seed, row_major(i, fact.shape), dtype)
        return where(scalar(training), binary("ge", drawn, dropped()), True)

    keep = emit(scope, fact.shape, kept, "keep")

    def body(i: Indices) -> Expr:
        element = cast(scope.load(x, i), dtype)
        scaled = div(element, sub(1, dropped()))
        return where(scalar(training), where(keep.at(i), scaled, 0), element)

    define(scope, node.outputs[0], body)
    return define(scope, mask, keep.at) if mask is not None else None


def _training(scope: Inference | Lowering, node: ir.Node) -> bool | None:
    """Whether the node is in training mode; None when that is decided at run time."""
    value = given(node, 2)
    if value is None:
        return False
    elements = elements_of(scope.fact(value))
    return None if elements is None or not elements.size else bool(elements.flat[0])

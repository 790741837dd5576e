"""Matrix products: MatMul, Gemm and Einsum as sums of products over one or more axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import accumulator, add, mul, widen
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, given, require_rank, require_same_dtype, required
from opweld.ops.registry import Inference, Lowering, attribute, fresh_axes, infers, lowers, required_attribute
from opweld.tensor.dim import ONE, Axis, Dim
from opweld.tensor.expr import Expr, cast, load, reduce


@infers("MatMul")
def infer_matmul(scope: Inference, node: ir.Node) -> list[Fact]:
    """[..., M, K] x [..., K, N] -> [..., M, N]; a 1-D operand is a row or column, and its axis is not in the result."""
    a, b = (require_rank(scope.fact(required(node, position)), 1, node) for position in (0, 1))
    return [Fact(require_same_dtype([a, b], node), product_shape(scope, node, a, b))]


def product_shape(scope: Inference, node: ir.Node, a: Fact, b: Fact) -> tuple[Dim, ...]:
    """The shape of a matrix product of operands of rank >= 1, whose inner dims must agree."""
    depth_b = b.shape[-2] if b.rank > 1 else b.shape[0]
    scope.same(a.shape[-1], depth_b, node, f"{describe(node)} sums over it")
    batch = scope.broadcast([a.shape[:-2], b.shape[:-2]], node)
    rows = a.shape[-2:-1] if a.rank > 1 else ()
    columns = b.shape[-1:] if b.rank > 1 else ()
    return (*batch, *rows, *columns)


@lowers("MatMul")
def lower_matmul(scope: Lowering, node: ir.Node) -> None:
    """sum over k of a[..., m, k] * b[..., k, n]"""
    a_value, b_value = required(node, 0), required(node, 1)
    a, b = scope.fact(a_value), scope.fact(b_value)
    out = scope.fact(node.outputs[0]).shape
    axes, total = product_of(out, a, b, lambda at: scope.load(a_value, at), lambda at: scope.load(b_value, at))
    scope.result(node.outputs[0], axes, total)


Element: TypeAlias = Callable[[Sequence[Dim]], Expr]
"""Reads an element of a tensor, given the indices of the result (it handles broadcasting)."""


def product_of(out: Sequence[Dim], a: Fact, b: Fact, left: Element, right: Element) -> tuple[tuple[Axis, ...], Expr]:
    """The axes and the body of the matrix product of two tensors."""
    axes = fresh_axes(out)
    inner = len(axes) - (a.rank > 1) - (b.rank > 1)
    batch, rest = [axis.dim for axis in axes[:inner]], [axis.dim for axis in axes[inner:]]
    k = Axis("k", a.shape[-1])
    row = [rest[0]] if a.rank > 1 else []
    column = [rest[-1]] if b.rank > 1 else []
    x = left([*(batch if a.rank > 2 else []), *row, k.dim])
    w = right([*(batch if b.rank > 2 else []), k.dim, *column])
    return axes, contraction((k,), x, w)


def contraction(axes: tuple[Axis, ...], x: Expr, w: Expr) -> Expr:
    """The sum of products over the axes, accumulated in fp32 for 16-bit floats and rounded once."""
    return cast(reduce("sum", axes, mul(widen(x), widen(w))), x.dtype)


@infers("Gemm")
def infer_gemm(scope: Inference, node: ir.Node) -> list[Fact]:
    """[M, K] x [K, N] -> [M, N], each side possibly transposed; the third input broadcasts to the result."""
    a, b = (require_rank(scope.fact(required(node, position)), 2, node, 2) for position in (0, 1))
    m, depth_a = a.shape[::-1] if attribute(node, "transA", 0) else a.shape
    depth_b, n = b.shape[::-1] if attribute(node, "transB", 0) else b.shape
    scope.same(depth_a, depth_b, node, f"{describe(node)} sums over it")
    addend = given(node, 2)
    facts = [a, b] if addend is None else [a, b, scope.fact(addend)]
    if addend is not None:
        m, n = _broadcast_onto(scope, (m, n), facts[2].shape, node)
    return [Fact(require_same_dtype(facts, node), (m, n))]


def _broadcast_onto(
    scope: Inference, shape: tuple[Dim, Dim], addend: tuple[Dim, ...], node: ir.Node
) -> tuple[Dim, ...]:
    """The shape; ModelError unless the addend broadcasts to it."""
    if len(addend) > 2:
        raise ModelError(f"{describe(node)}: input C of shape {list(addend)} does not broadcast to {list(shape)}")
    for size, extent in zip(shape[2 - len(addend) :], addend, strict=True):
        if extent is not ONE:
            scope.same(size, extent, node, f"{describe(node)} adds input C to its product")
    return shape


@lowers("Gemm")
def lower_gemm(scope: Lowering, node: ir.Node) -> None:
    """alpha * (sum over k of a[m, k] * b[k, n]) + beta * c[m, n]"""
    a_value, b_value, addend = required(node, 0), required(node, 1), given(node, 2)
    out = scope.fact(node.outputs[0])
    axes = m, n = fresh_axes(out.shape)
    across_a, across_b = bool(attribute(node, "transA", 0)), bool(attribute(node, "transB", 0))
    alpha, beta = float(attribute(node, "alpha", 1.0)), float(attribute(node, "beta", 1.0))
    k = Axis("k", scope.fact(a_value).shape[0 if across_a else 1])
    x = scope.load(a_value, (k.dim, m.dim) if across_a else (m.dim, k.dim))
    w = scope.load(b_value, (n.dim, k.dim) if across_b else (k.dim, n.dim))
    plain = contraction((k,), x, w)
    if alpha == 1 and (addend is None or beta == 0):
        scope.result(node.outputs[0], axes, plain)
        return
    product = scope.emit(axes, plain, "product")
    axes = fresh_axes(out.shape)
    indices = tuple(axis.dim for axis in axes)
    body = load(product, out.dtype, indices)
    if alpha != 1:
        body = mul(body, alpha)
    if addend is not None and beta != 0:
        c = scope.load(addend, indices)
        body = add(body, c if beta == 1 else mul(c, beta))
    scope.result(node.outputs[0], axes, body)


@dataclass(frozen=True)
class Equation:
    """An Einsum: the letters of each input's axes and of the result's. Digits are the axes of an ellipsis."""

    inputs: tuple[str, ...]
    output: str


def parse_equation(node: ir.Node, ranks: list[int]) -> Equation:
    """The equation with ellipses spelled out for inputs of the ranks; ModelError when they do not fit."""
    text = str(required_attribute(node, "equation")).replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ModelError(f"{describe(node)}: equation {text!r} has {len(terms)} terms for {len(ranks)} inputs")
    hidden = [rank - len(term) + 3 if "..." in term else 0 for term, rank in zip(terms, ranks, strict=True)]
    most = max(hidden)
    digits = "0123456789"[:most]
    if most > 9 or min(hidden) < 0:
        raise ModelError(f"{describe(node)}: equation {text!r} does not fit inputs of ranks {ranks}")
    spelled = [term.replace("...", digits[most - count :]) for term, count in zip(terms, hidden, strict=True)]
    for term, rank in zip(spelled, ranks, strict=True):
        if len(term) != rank or not all(letter.isascii() and letter.isalnum() for letter in term):
            raise ModelError(f"{describe(node)}: equation {text!r} does not fit inputs of ranks {ranks}")
    letters = "".join(spelled)
    implicit = digits + "".join(sorted(x for x in set(letters) if letters.count(x) == 1 and x not in digits))
    output = right.replace("...", digits) if arrow else implicit
    if not set(output) <= set(letters) or len(set(output)) < len(output):
        raise ModelError(f"{describe(node)}: the result of equation {text!r} must name each axis of an input once")
    return Equation(tuple(spelled), output)


@infers("Einsum")
def infer_einsum(scope: Inference, node: ir.Node) -> list[Fact]:
    """One dim for each letter of the result."""
    facts = [scope.fact(value) for value in node.inputs]
    equation = parse_equation(node, [fact.rank for fact in facts])
    extents = _extents(equation, facts)
    for term, fact in zip(equation.inputs, facts, strict=True):
        for letter, extent in zip(term, fact.shape, strict=True):
            if extent is not ONE:
                extents[letter] = scope.same(extents[letter], extent, node, f"{describe(node)} uses both as {letter!r}")
    return [Fact(require_same_dtype(facts, node), tuple(extents[letter] for letter in equation.output))]


def _extents(equation: Equation, facts: list[Fact]) -> dict[str, Dim]:
    """The dim of each letter: that of the first input where it is not one."""
    extents: dict[str, Dim] = {}
    for term, fact in zip(equation.inputs, facts, strict=True):
        for letter, extent in zip(term, fact.shape, strict=True):
            if extents.get(letter, ONE) is ONE:
                extents[letter] = extent
    return extents


@lowers("Einsum")
def lower_einsum(scope: Lowering, node: ir.Node) -> None:
    """The sum, over the letters that the result does not have, of the product of all inputs."""
    facts = [scope.fact(value) for value in node.inputs]
    equation = parse_equation(node, [fact.rank for fact in facts])
    out = scope.fact(node.outputs[0])
    axes = {
        letter: Axis(letter if letter.isalpha() else f"batch{letter}", extent)
        for letter, extent in _extents(equation, facts).items()
    }
    axes.update((letter, Axis(axes[letter].name, dim)) for letter, dim in zip(equation.output, out.shape, strict=True))
    summed = tuple(axis for letter, axis in axes.items() if letter not in equation.output)
    factors = [
        widen(scope.load(value, [axes[letter].dim for letter in term]))
        for value, term in zip(node.inputs, equation.inputs, strict=True)
        if value is not None
    ]
    body = factors[0]
    for factor in factors[1:]:
        body = mul(body, factor)
    assert body.dtype is accumulator(out.dtype)
    result_axes = tuple(axes[letter] for letter in equation.output)
    scope.result(node.outputs[0], result_axes, cast(reduce("sum", summed, body), out.dtype))

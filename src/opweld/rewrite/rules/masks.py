"""Masks in the form that attention operators need: one addend of four axes, the last two of queries and keys.

Masks are shared by all attentions of most models: nodes created for one are reused for the next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rules.scores import Mask
from opweld.rewrite.scope import Array, Scope, operand
from opweld.tensor.dim import ONE, Dim
from opweld.tensor.dtype import DType

REDUCED_BY_INPUT = 18
"""The opset in which the axes of ReduceMax became an input."""

_LOWEST = {DType.F32: float(np.finfo(np.float32).min), DType.F64: float(np.finfo(np.float64).min)}

Lengths = Sequence[tuple[ir.Value, int]]
"""For queries and keys, a value and its axis that indexes them."""


def of_four(value: ir.Value, scope: Scope) -> tuple[Dim, ...]:
    """The shape of a value, extended to four axes."""
    shape = scope.shape(value) or ()
    return (ONE,) * (4 - len(shape)) + shape


def total(masks: Sequence[Mask], near: ir.Node, scope: Scope) -> ir.Value | None:
    """The sum of all masks; None if there are none."""
    whole: ir.Value | None = None
    for mask in masks:
        value = _scaled(mask, near, scope) if mask.filled is None else _filled(mask, mask.filled, near, scope)
        if whole is not None:
            pairs = zip(of_four(whole, scope), of_four(value, scope), strict=True)
            rank = max(len(scope.shape(part) or ()) for part in (whole, value))
            shape = tuple(p if q is ONE else q for p, q in pairs)[4 - rank :]
            value = scope.tell(scope.add(near, "Add", [whole, value]), shape, near.outputs[0])
        whole = value
    return whole


def seen(mask: ir.Value, near: ir.Node, scope: Scope) -> tuple[ir.Value, ir.Value]:
    """A mask with 0 in rows of only -inf; and a condition, with last axis 1, that is true for all other rows."""
    shape = scope.shape(mask) or ()
    rows = (*shape[:-1], ONE)
    best = _made("ReduceMax", mask, rows, scope)
    if best is None:
        last = [len(shape) - 1]
        if scope.opset >= REDUCED_BY_INPUT:
            best = scope.add(near, "ReduceMax", [mask, scope.store(near, np.array(last, np.int64))])
        else:
            best = scope.add(near, "ReduceMax", [mask], axes=last)
        scope.tell(best, rows, mask)
    left = _made("Greater", best, rows, scope, -math.inf)
    if left is None:
        left = scope.add(near, "Greater", [best, _number(-math.inf, near, scope)])
        scope.tell(left, rows, mask)
    kept = _made("Where", left, shape, scope)
    if kept is None:
        kept = scope.tell(scope.add(near, "Where", [left, mask, _number(0, near, scope)]), shape, mask)
    return kept, left


def raised(mask: ir.Value, near: ir.Node, scope: Scope) -> ir.Value:
    """A mask with half of the lowest number in its place, which masks as well: ONNX Runtime's Attention treats rows of
    only the lowest number as rows of only -inf, whose result is 0 and not the mean."""
    lowest, shape = _lowest(near, scope), scope.shape(mask) or ()
    if lowest is None or not _may_be(mask, lowest, scope):
        return mask
    chosen = scope.producer(mask, "Where")
    sides = [] if chosen is None else [scope.single(side) for side in chosen.inputs[1:]]
    numbers = [lowest / 2 if side == lowest else side for side in sides if side is not None]
    if chosen is not None and chosen.inputs[0] is not None and len(numbers) == len(sides):
        return _chosen(chosen.inputs[0], numbers, shape, near, scope)
    same = _made("Equal", mask, shape, scope, lowest)
    if same is None:
        same = scope.tell(scope.add(near, "Equal", [mask, _number(lowest, near, scope)]), shape, mask)
    made = _made("Where", same, shape, scope)
    if made is None:
        made = scope.tell(scope.add(near, "Where", [same, _number(lowest / 2, near, scope), mask]), shape, mask)
    return made


def _may_be(value: ir.Value | None, number: float, scope: Scope) -> bool:
    """Whether a value is not known to be -inf everywhere."""
    known, node = scope.constant(value), scope.producer(value, "Where", "Expand", "Unsqueeze", "Reshape")
    if known is not None:
        return bool((known == number).any())
    if node is None:
        return True
    parts = node.inputs[1:] if node.op_type == "Where" else node.inputs[:1]
    return any(_may_be(part, number, scope) for part in parts)


def raised_alone(masks: Sequence[Mask], near: ir.Node, scope: Scope) -> Sequence[Mask]:
    """As `raised`, for scores filled with a number."""
    lowest = _lowest(near, scope)
    if lowest is None or len(masks) != 1 or masks[0].filled is None or not math.isfinite(masks[0].filled):
        return masks
    return [replace(masks[0], filled=max(masks[0].filled, lowest / 2))]


def _lowest(near: ir.Node, scope: Scope) -> float | None:
    """The lowest finite number, for types in which half of it masks as well."""
    fact = scope.fact(near.outputs[0])
    return _LOWEST.get(DType.F32 if fact is None else fact.dtype)


def without_heads(value: ir.Value, near: ir.Node, scope: Scope) -> ir.Value:
    """[batch, 1, queries, 1] as [batch, queries, 1]; lower ranks are unchanged."""
    shape = scope.shape(value) or ()
    if len(shape) < 4:
        return value
    wanted = (shape[0], *shape[2:])
    made = _made("Reshape", value, wanted, scope)
    if made is None:
        made = scope.add(near, "Reshape", [value, scope.store(near, np.array([0, -1, 1], np.int64))])
        scope.tell(made, wanted, value)
    return made


def expanded(mask: ir.Value, scores: Sequence[Dim], lengths: Lengths, near: ir.Node, scope: Scope) -> ir.Value:
    """A mask of four axes, the last two of which are those of the scores."""
    own = of_four(mask, scope)
    wanted = (*own[:2], *scores[2:])
    if scope.shape(mask) == wanted:
        return mask
    made = _made("Expand", mask, wanted, scope)
    if made is not None:
        return made
    known = scope.constant(mask)
    if known is not None and math.prod(dim.constant or 0 for dim in wanted) == known.size:
        return scope.store(near, known.reshape([dim.constant or 0 for dim in wanted]))
    numbers = [1 if own[axis] is not ONE else scores[axis].constant for axis in (2, 3)]
    if None not in numbers:
        target = scope.store(near, np.array([1, 1, *numbers], np.int64))
    else:
        parts = [scope.store(near, np.array([1, 1], np.int64))]
        for number, (value, axis) in zip(numbers, lengths, strict=True):
            known = None if number is None else np.array([number], np.int64)
            parts.append(_size(value, axis, near, scope) if known is None else scope.store(near, known))
        target = scope.add(near, "Concat", parts, axis=0)
    return scope.tell(scope.add(near, "Expand", [mask, target]), wanted, mask)


def _made(operator: str, source: ir.Value, shape: Sequence[Dim], scope: Scope, *numbers: float) -> ir.Value | None:
    """The result, of this shape, of the same node with the same operands, created for another attention."""
    for reader in scope.readers(source):
        fresh = reader in scope.added and reader.op_type == operator and operand(reader, 0) is source
        same = not numbers or [scope.single(value) for value in reader.inputs[1:]] == list(numbers)
        if fresh and same and scope.shape(reader.outputs[0]) == tuple(shape):
            return reader.outputs[0]
    return None


def _scaled(mask: Mask, near: ir.Node, scope: Scope) -> ir.Value:
    """A value as an addend."""
    if mask.factor == 1:
        return mask.value
    factor, shape = _rounded(mask.factor, near, scope), scope.shape(mask.value) or ()
    made = _made("Mul", mask.value, shape, scope, float(factor))
    if made is not None:
        return made
    return scope.tell(scope.add(near, "Mul", [mask.value, scope.store(near, factor)]), shape, mask.value)


def _filled(mask: Mask, filled: float, near: ir.Node, scope: Scope) -> ir.Value:
    """A condition as an addend."""
    sides = (filled, 0.0) if mask.where else (0.0, filled)
    return _chosen(mask.value, sides, scope.shape(mask.value) or (), near, scope)


def _chosen(condition: ir.Value, sides: Sequence[float], shape: Sequence[Dim], near: ir.Node, scope: Scope) -> ir.Value:
    """One number where a condition holds, and another where it does not."""
    rounded = [_rounded(side, near, scope) for side in sides]
    made = _made("Where", condition, shape, scope, *(float(side) for side in rounded))
    if made is not None:
        return made
    value = scope.add(near, "Where", [condition, *(scope.store(near, side) for side in rounded)])
    return scope.tell(value, shape, near.outputs[0])


def _number(number: float, near: ir.Node, scope: Scope) -> ir.Value:
    return scope.store(near, _rounded(number, near, scope))


def _rounded(number: float, near: ir.Node, scope: Scope) -> Array:
    with np.errstate(over="ignore"):
        return np.array(number, np.float64).astype(_dtype(near, scope))


def _dtype(near: ir.Node, scope: Scope) -> np.dtype[np.generic]:
    fact = scope.fact(near.outputs[0])
    return np.dtype(np.float32) if fact is None else fact.dtype.numpy


def _size(value: ir.Value, axis: int, near: ir.Node, scope: Scope) -> ir.Value:
    """[the size of an axis]"""
    first, last = (scope.store(near, np.array([at], np.int64)) for at in (axis, axis + 1))
    return scope.add(near, "Slice", [scope.add(near, "Shape", [value]), first, last])

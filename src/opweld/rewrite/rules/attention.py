"""Scaled dot-product attention as one node: softmax(number * q k^T + masks) v, in any arrangement of the number, the
masks and the transpositions.

It is Attention from opset 23 on, before that MultiHeadAttention for ONNX Runtime. Heads of keys and values that are
repeated are read once if the operator supports it. Results differ by rounding in float32."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from opweld.frontend.contributed import MICROSOFT
from opweld.rewrite.rule import Proposal, Refusal, Rule, second_reader
from opweld.rewrite.rules.heads import Heads, as_rows, from_rows, heads_of, laid_out, unrepeated
from opweld.rewrite.rules.masks import Lengths, expanded, of_four, raised, raised_alone, seen, total, without_heads
from opweld.rewrite.rules.scores import Scores, scores_of, weights_of
from opweld.rewrite.scope import Scope, operand
from opweld.tensor.dim import ONE, Dim

SINCE = 23
"""The opset that introduced Attention."""


class Attention(Rule):
    """softmax(number * q k^T + masks) v"""

    name = "rewrite.attention"
    operators = ("MatMul",)
    formula = True

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        softmax, guard = weights_of(operand(node, 0), scope)
        if softmax is None:
            return None
        scores = scores_of(softmax.inputs[0], scope)
        if scores is None or isinstance(scores, Refusal):
            return scores
        nodes = (node, *guard, softmax, *scores.nodes)
        queries, right = heads_of(scores.left, scope), heads_of(scores.right, scope)
        values = heads_of(operand(node, 1), scope, factors=False)
        if queries is None or right is None or values is None:
            rank = len(scope.shape(node.outputs[0]) or ())
            return Refusal("its heads are no axis of their own", {"rank": rank}, nodes[1:])
        found = _Found(node, queries, right.swapped(), values, scores, guard, nodes)
        refusal = second_reader(nodes) or _unclear(found, scope)
        if refusal is not None:
            return refusal
        if scope.opset >= SINCE:
            write = _standard
        elif scope.contributed:
            write = _multi_head
        else:
            failed = {"opset": scope.opset, "needed": SINCE}
            return Refusal(f"Attention exists since opset {SINCE}", failed, nodes[1:])
        weights = softmax.outputs[0]
        reason = f"{len(nodes)} nodes are attention"
        if guard:
            infinite = _may_be_infinite(found, scope)
            reason += ", 0 for rows of -inf alone" if infinite else ": without -inf a row is NaN where its scores are"
        return Proposal(reason, lambda: write(found, scope), nodes[1:], scope.traffic(weights))


@dataclass(frozen=True)
class _Found:
    """An attention, whose last node is `node`."""

    node: ir.Node
    queries: Heads
    keys: Heads
    values: Heads
    scores: Scores
    guard: tuple[ir.Node, ...]
    nodes: tuple[ir.Node, ...]

    @property
    def number(self) -> float:
        """The factor of the scores."""
        return self.scores.number * self.queries.number * self.keys.number

    @property
    def shape(self) -> tuple[Dim, Dim, Dim, Dim]:
        """The sizes of the scores."""
        batch, heads, length, _ = self.queries.shape
        return batch, heads, length, self.keys.shape[2]


def _unclear(found: _Found, scope: Scope) -> Refusal | None:
    """Why no operator can express it, else None."""
    queries, keys, values, inner = found.queries, found.keys, found.values, found.nodes[1:]
    fact = scope.fact(found.node.outputs[0])
    shapes = {"q": queries.shape, "k": keys.shape, "v": values.shape}
    failed: dict[str, int | str] = {name: "x".join(map(str, shape)) for name, shape in shapes.items()}
    if fact is None or not fact.dtype.is_float:
        return Refusal("its type is not certain", {"value": found.node.outputs[0].name or ""}, inner)
    outer = {shape[:2] for shape in shapes.values()}
    if len(outer) > 1 or queries.shape[3] != keys.shape[3] or keys.shape[2] != values.shape[2]:
        return Refusal("queries, keys and values differ in batch, heads or length", failed, inner)
    if None in (queries.shape[1].constant, queries.shape[3].constant, values.shape[3].constant):
        return Refusal("the number of heads or their size is not known", failed, inner)
    if found.number == 0 or not math.isfinite(found.number):
        return Refusal("the scale is 0 or not a number", {"scale": str(found.number)}, inner)
    for mask in found.scores.masks:
        shape = scope.shape(mask.value)
        if shape is None or not _broadcasts(shape, found.shape):
            text = "not known" if shape is None else "x".join(map(str, shape))
            failed = {"mask": text, "scores": "x".join(map(str, found.shape))}
            return Refusal("the mask does not broadcast to the scores", failed, inner)
        if found.guard and _may_be_infinite(found, scope) and of_four(mask.value, scope)[1] is not ONE:
            failed = {"mask": "x".join(map(str, shape))}
            return Refusal("rows of -inf alone are 0, and the mask differs from head to head", failed, inner)
    return None


def _may_be_infinite(found: _Found, scope: Scope) -> bool:
    return not all(mask.is_finite(scope) for mask in found.scores.masks)


def _broadcasts(shape: tuple[Dim, ...], wanted: tuple[Dim, ...]) -> bool:
    if len(shape) > 4:
        return False
    own = (ONE,) * (4 - len(shape)) + shape
    return all(dim is ONE or dim == size for dim, size in zip(own, wanted, strict=True))


# ---------------------------------------------------------------------------------------------------- output nodes --


def _multi_head(found: _Found, scope: Scope) -> None:
    """MultiHeadAttention of ONNX Runtime: queries as rows, keys and values as rows or heads."""
    node, both = found.node, (found.keys, found.values)
    rows = all(heads.is_rows for heads in both)
    query = as_rows(found.queries, node, scope)
    key, value = (as_rows(heads, node, scope) if rows else laid_out(heads, node, scope) for heads in both)
    mask, left = _masks(found, ((query, 1), (key, 1 if rows else 2)), scope, standard=False)
    inputs = [query, key, value, *([] if mask is None else [None, None, mask])]
    batch, heads, length, _ = found.queries.shape
    made = scope.add(node, "MultiHeadAttention", inputs, MICROSOFT, num_heads=heads.constant, scale=found.number)
    if left is not None:
        made = scope.add(node, "Where", [without_heads(left, node, scope), made, _zero(node, scope)])
    shape = (batch, heads, length, found.values.shape[3])
    scope.replace(node.outputs[0], from_rows(made, shape, node.outputs[0], node, scope))


def _standard(found: _Found, scope: Scope) -> None:
    """Attention of ONNX: of rows if all three are rows, else of heads; keys and values without repetitions."""
    node, output = found.node, found.node.outputs[0]
    batch, heads, length, _ = found.queries.shape
    three = found.queries, unrepeated(found.keys, scope), unrepeated(found.values, scope, factors=False)
    if three[1].shape[1] != three[2].shape[1]:
        three = found.queries, found.keys, found.values
    number = three[0].number * three[1].number * found.scores.number
    rows = all(part.is_rows for part in three)
    query, key, value = (as_rows(part, node, scope) if rows else laid_out(part, node, scope) for part in three)
    mask, left = _masks(found, ((query, 1 if rows else 2), (key, 1 if rows else 2)), scope, standard=True)
    inputs = [query, key, value, *([] if mask is None else [mask])]
    if not rows:
        made = scope.add(node, "Attention", inputs, scale=number)
        if left is not None:
            made = scope.add(node, "Where", [left, made, _zero(node, scope)])
        scope.replace(output, made)
        return
    shared = three[1].shape[1].constant or 0
    made = scope.add(node, "Attention", inputs, scale=number, q_num_heads=heads.constant or 0, kv_num_heads=shared)
    if left is not None:
        made = scope.add(node, "Where", [without_heads(left, node, scope), made, _zero(node, scope)])
    shape = (batch, heads, length, found.values.shape[3])
    scope.replace(output, from_rows(made, shape, output, node, scope))


def _masks(found: _Found, lengths: Lengths, scope: Scope, standard: bool) -> tuple[ir.Value | None, ir.Value | None]:
    """The sum of masks; and, where rows of only -inf give 0, a condition that is true for all other rows."""
    near, masks = found.node, found.scores.masks
    mask, left = total(raised_alone(masks, near, scope) if standard else masks, near, scope), None
    if mask is None:
        return None, None
    if found.guard and _may_be_infinite(found, scope):
        mask, left = seen(mask, near, scope)
    if standard:
        mask = raised(mask, near, scope)
    return expanded(mask, found.shape, lengths, near, scope), left


def _zero(near: ir.Node, scope: Scope) -> ir.Value:
    fact = scope.fact(near.outputs[0])
    return scope.store(near, np.zeros((), np.float32 if fact is None else fact.dtype.numpy))

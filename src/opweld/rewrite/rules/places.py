"""A convolution with a single output position is a matrix product: the layer after a global pool."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.rules.permuted import RESHAPES, UNARY
from opweld.rewrite.scope import Array, Scope, attribute, kept, operand
from opweld.tensor.dim import ONE, Dim

_CERTAIN = {"group": 1, "auto_pad": "NOTSET"}


class OnePlace(Rule):
    """A Conv whose kernel covers its input, followed by a reshape to rows, is a Gemm of rows."""

    name = "rewrite.one_place"
    operators = ("Conv",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        before, after, kernel = (scope.shape(value) for value in (node.inputs[0], node.outputs[0], operand(node, 1)))
        data, bias = node.inputs[0], operand(node, 2)
        if data is None or before is None or after is None or kernel is None or set(after[2:]) - {ONE}:
            return None
        if kernel[1:] != before[1:] or any(attribute(node, n, usual) != usual for n, usual in _CERTAIN.items()):
            return None
        if any(attribute(node, "pads", ())):
            return None
        weights = scope.constant(operand(node, 1))
        if weights is None:
            return Refusal("the weights are computed", {"weights": (operand(node, 1) or data).name or ""})
        between, last = _until_laid_out(node, scope)
        if last is None or scope.shape(last.outputs[0]) != after[:2]:
            # A Gemm would need a reshape before and one after it.
            return Refusal("its result is not reshaped to rows", {"nodes": 3, "now": 1}, between)
        if not scope.only_reader(node.inputs[1] or data):
            return Refusal(
                "the weights are read by more than one node", {"weights": (node.inputs[1] or data).name or ""}
            )
        rows = _rows(data, before, scope)

        def apply() -> None:
            _apply(node, between, last, rows, weights, bias, after[:2], scope)

        return Proposal("there is one output position", apply, (*between, last))


def _until_laid_out(node: ir.Node, scope: Scope) -> tuple[tuple[ir.Node, ...], ir.Node | None]:
    """The element-wise nodes after a result, and the reshape after them."""
    between: list[ir.Node] = []
    value = node.outputs[0]
    while scope.only_reader(value):
        (reader,) = scope.readers(value)
        if reader.graph is not scope.graph or reader.domain not in ("", "ai.onnx") or reader.inputs[0] is not value:
            break
        if reader.op_type in RESHAPES:
            return tuple(between), reader
        if reader.op_type not in UNARY:
            break
        between.append(reader)
        value = reader.outputs[0]
    return tuple(between), None


def _rows(data: ir.Value, shape: Sequence[Dim], scope: Scope) -> ir.Value | None:
    """The rows that a value is a reshape of; else None."""
    producer = scope.producer(data, *RESHAPES)
    source = None if producer is None else producer.inputs[0]
    known = scope.shape(source)
    if source is None or known is None or len(known) != 2 or known[0] != shape[0]:
        return None
    return source


def _apply(
    node: ir.Node,
    between: Sequence[ir.Node],
    last: ir.Node,
    rows: ir.Value | None,
    weights: Array,
    bias: ir.Value | None,
    shape: Sequence[Dim],
    scope: Scope,
) -> None:
    flat = weights.reshape(weights.shape[0], -1)
    if rows is None:
        source = node.inputs[0]
        while producer := scope.producer(source, *UNARY):
            source = producer.inputs[0]
        if before := scope.producer(source, "Conv"):
            scope.touch(before)  # its result is rows from now on
        rows = scope.add(node, "Flatten", [node.inputs[0]], axis=1)
        known = scope.shape(node.inputs[0])
        assert known is not None
        scope.tell(rows, (known[0], known[1] * int(np.prod(weights.shape[2:]))), node.outputs[0])
    if bias is None:
        made = scope.add(node, "MatMul", [rows, scope.store(node, flat.T)])
    else:
        made = scope.add(node, "Gemm", [rows, scope.store(node, flat), bias], transB=1)
    scope.tell(made, shape, node.outputs[0])
    for each in between:
        made = scope.add(each, each.op_type, [made, *each.inputs[1:]], **kept(each))
        scope.tell(made, shape, each.outputs[0])
    scope.replace(last.outputs[0], made)

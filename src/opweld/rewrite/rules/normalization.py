"""Replaces written-out normalisations of rows by one node of the model's opset or of the target runtime.

Sums are in the order of the runtime's kernel: results differ by rounding in float32."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from opweld.frontend.contributed import MICROSOFT
from opweld.rewrite.rule import Proposal, Refusal, Rule, second_reader
from opweld.rewrite.rules.normalised import Found, NearlyNormalised, Normalised, normalised
from opweld.rewrite.scope import Scope, attribute, operand
from opweld.tensor.dim import ONE

SMALL = 256
"""Bytes up to which ones are stored where a scale is absent: fewer than the removed nodes take."""

_OPERATORS = {"LayerNormalization": True, "RMSNormalization": False}
"""Whether the mean is subtracted."""


class _Normalization(Rule):
    """A written-out normalisation, centred or not, from opset `since` on as `operator`."""

    operators = ("Add", "Mul", "Div")
    formula = True
    operator: str
    since: int

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        found = _largest(node, scope)
        if found is None or found.centred is not _OPERATORS[self.operator]:
            return None
        if isinstance(found, NearlyNormalised):
            return found
        refusal = second_reader(found.nodes) or _unwritable(found, scope)
        if refusal is not None:
            return refusal
        output, inner = node.outputs[0], found.nodes[1:]
        if scope.opset < self.since:
            failed = {"opset": scope.opset, "needed": self.since}
            return Refusal(f"{self.operator} exists since opset {self.since}", failed, inner)

        def apply() -> None:
            inputs = [found.x, parameter(found.scale, found, node, scope)]
            if found.bias is not None:
                inputs.append(parameter(found.bias, replace(found, number=1.0), node, scope))
            rank = len(scope.shape(found.x) or ())
            made = scope.add(node, self.operator, inputs, axis=found.axis - rank, epsilon=found.epsilon)
            scope.replace(output, made)

        return Proposal(f"{len(found.nodes)} nodes are {self.operator}", apply, inner, scope.traffic(output))


class LayerNormalization(_Normalization):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias"""

    name = "rewrite.layer_normalization"
    operator, since = "LayerNormalization", 17


class RmsNormalization(_Normalization):
    """x / sqrt(mean square + epsilon) * scale"""

    name = "rewrite.rms_normalization"
    operator, since = "RMSNormalization", 23


def _largest(node: ir.Node, scope: Scope) -> Found:
    """What a node normalises; None if a later node only scales or shifts that, and will match instead."""
    found = normalised(node, scope)
    if found is None or (node.op_type == "Add" and not found.centred):
        return None  # without a mean there is no bias: the scaled rows match, and the sum remains
    reader = _only_reader(node, scope)
    if reader is not None and reader.op_type == "Cast":
        reader = _only_reader(reader, scope)  # a scale may come after it
    takes = ("Add", "Mul", "Div") if found.centred else ("Mul", "Div")
    if reader is not None and reader.op_type in takes and normalised(reader, scope) is not None:
        return None
    return found


def _only_reader(node: ir.Node, scope: Scope) -> ir.Node | None:
    """The one node, of ONNX's own, that reads the first output of a node, if it is the only reader."""
    readers = scope.readers(node.outputs[0])
    if len(readers) != 1 or not scope.only_reader(node.outputs[0]):
        return None
    (reader,) = readers
    return reader if reader.graph is scope.graph and reader.domain in ("", "ai.onnx") else None


def _unwritable(found: Normalised, scope: Scope) -> Refusal | None:
    """Why no operator can express it: its type, or parameters that are computed but would have to be stored."""
    fact, shape = scope.fact(found.nodes[0].outputs[0]), scope.shape(found.x)
    if fact is None or not fact.dtype.is_float or shape is None or fact.shape != shape:
        return Refusal("its type and size are not certain", {"value": found.x.name or ""}, found.nodes[1:])
    if found.scale is not None and found.number != 1 and scope.constant(found.scale) is None:
        failed = {"scale": found.scale.name or "", "number": str(found.number)}
        return Refusal("the scale is computed, and there is another computed factor", failed, found.nodes[1:])
    if found.scale is None and any(dim.constant is None for dim in shape[found.axis :]):
        failed = {"shape": "x".join(map(str, shape[found.axis :]))}
        return Refusal("there is no scale, and no known number of ones", failed, found.nodes[1:])
    return None


def parameter(value: ir.Value | None, found: Normalised, near: ir.Node, scope: Scope) -> ir.Value:
    """A scale or bias [row...], times the factor of the normalisation; ones if absent."""
    row = [dim.constant or 0 for dim in (scope.shape(found.x) or ())[found.axis :]]
    fact = scope.fact(found.x)
    stored = scope.constant(value)
    if value is not None and (stored is None or (list(stored.shape) == row and found.number == 1)):
        return value
    dtype = np.dtype(np.float32) if fact is None else fact.dtype.numpy
    if stored is None and math.prod(row) * dtype.itemsize > SMALL:
        one = ir.tensor(np.array([found.number], dtype))
        return scope.add(near, "ConstantOfShape", [scope.store(near, np.array(row, np.int64))], value=one)
    wide = np.float64(1) if stored is None else stored.astype(np.float64)
    if wide.ndim > len(row):
        wide = wide.reshape(wide.shape[wide.ndim - len(row) :])
    return scope.store(near, np.broadcast_to(wide * found.number, row).astype(dtype))


class SkipNormalization(Rule):
    """The normalisation of a sum, fused in ONNX Runtime: over the last axis, with stored scale.

    Other readers of the sum get it from the fused node. Where there is an operator for the normalisation alone, the
    fused kernel takes longer on CPUs than two nodes (ONNX Runtime 1.31: 3 to 5 times with a mean, else up to 1.3)."""

    name = "rewrite.skip_normalization"
    operators = ("LayerNormalization", "RMSNormalization", "Add", "Mul", "Div")

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        if not scope.contributed:
            return None
        found = _written(node, scope) if node.op_type in _OPERATORS else _largest(node, scope)
        if not isinstance(found, Normalised):
            return None
        added = scope.producer(found.x, "Add")
        shape = scope.shape(found.x)
        if added is None or shape is None or any(scope.shape(side) != shape for side in added.inputs):
            return None
        refusal = second_reader(found.nodes) or _unwritable(found, scope) or _unskippable(found, scope)
        if refusal is not None:
            return refusal
        sides, biases = self._sides(added, shape[-1].constant, scope)
        operator = "SkipLayerNormalization" if found.centred else "SkipSimplifiedLayerNormalization"
        output, total = node.outputs[0], added.outputs[0]
        kept = total.is_graph_output() or any(use.node not in found.nodes for use in total.uses())

        def apply() -> None:
            parameters: list[ir.Value | None] = [parameter(found.scale, found, node, scope)]
            if found.centred:
                plain = replace(found, number=1.0)
                parameters.append(None if found.bias is None else parameter(found.bias, plain, node, scope))
            inputs = [*sides, *parameters, *biases]
            while inputs[-1] is None:
                inputs.pop()
            outputs = (True, False, False, True) if kept else (True,)
            made = scope.add_several(node, operator, inputs, outputs, MICROSOFT, epsilon=found.epsilon)
            scope.replace(output, made[0])
            if kept:
                scope.replace(total, made[3])

        slower = found.centred or scope.opset >= RmsNormalization.since
        return Proposal(
            f"a sum and its normalisation are {operator}",
            apply,
            (added, *found.nodes[1:]),
            scope.traffic(total),
            "ONNX Runtime is faster on CPUs with a node for each" if slower else "",
        )

    def _sides(
        self, added: ir.Node, width: int | None, scope: Scope
    ) -> tuple[list[ir.Value | None], list[ir.Value | None]]:
        """The two terms of a sum, and the bias of one of them, if it is a stored vector."""
        sides = list(added.inputs)
        for position, side in enumerate(sides):
            inner = scope.producer(side, "Add") if side is not None and scope.only_reader(side) else None
            for data, bias in (inner.inputs, inner.inputs[::-1]) if inner is not None else ():
                stored = scope.constant(bias)
                if stored is not None and stored.shape == (width,) and scope.shape(data) == scope.shape(side):
                    sides[position] = data
                    return sides, [bias]
        return sides, []


def _written(node: ir.Node, scope: Scope) -> Normalised | None:
    """A node that normalises, as a normalisation; None if its other outputs are used."""
    x, scale = operand(node, 0), operand(node, 1)
    shape = scope.shape(x)
    if x is None or scale is None or not shape or any(other.uses() for other in node.outputs[1:]):
        return None
    if any(other.is_graph_output() for other in node.outputs[1:]) or int(attribute(node, "stash_type", 1)) != 1:
        return None
    axis = int(attribute(node, "axis", -1)) % len(shape)
    epsilon = float(attribute(node, "epsilon", 1e-5))
    return Normalised(x, axis, epsilon, _OPERATORS[node.op_type], 1.0, scale, operand(node, 2), (node,))


def _unskippable(found: Normalised, scope: Scope) -> Refusal | None:
    """Why ONNX Runtime's operator cannot express it."""
    shape, inner = scope.shape(found.x) or (), found.nodes[1:]
    if len(shape) not in (2, 3):
        return Refusal("the sum has not 2 or 3 axes", {"rank": len(shape)}, inner)
    if found.axis != len(shape) - 1:
        return Refusal("it normalises more than the last axis", {"axis": found.axis, "rank": len(shape)}, inner)
    for value, title in ((found.scale, "scale"), (found.bias, "bias")):
        if value is not None and scope.constant(value) is None:
            return Refusal(f"the {title} is computed", {title: value.name or ""}, inner)
    if shape[found.axis] is ONE:
        return Refusal("rows have one element", {"shape": "x".join(map(str, shape))}, inner)
    return None

"""Folds linear operators after a product or a convolution into its weights and its bias, and a scale of its operand
into its weights.

Weights are combined in float64 and rounded once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.rules.activations import is_gelu
from opweld.rewrite.rules.rounding import unfit, unfit_bias
from opweld.rewrite.scope import Array, Scope, attribute, kept, operand, operands

_CONVOLUTIONS = ("Conv", "ConvTranspose")


@dataclass(frozen=True)
class Linear:
    """A product whose weights are stored: its weights in float64, the axes of the weights that index its results, its
    bias."""

    node: ir.Node
    weights: Array
    bias: Array
    dtype: np.dtype[np.generic]

    @property
    def outputs(self) -> int:
        """The number of results for each position."""
        return self.bias.size

    @property
    def group(self) -> int:
        """The number of groups of a convolution, else 1."""
        return int(attribute(self.node, "group", 1))

    @property
    def inputs(self) -> int:
        """The number of inputs for each position."""
        if self.node.op_type == "Conv":
            return self.weights.shape[1] * self.group
        return self.weights.shape[1 if self._is_across else 0]

    @property
    def _is_across(self) -> bool:
        return self.node.op_type == "Gemm" and bool(attribute(self.node, "transB", 0))

    def scaled(self, factor: Array) -> Array:
        """The weights with each result times its factor."""
        if self.node.op_type == "Conv":
            return self.weights * factor.reshape(-1, *[1] * (self.weights.ndim - 1))
        if self.node.op_type == "ConvTranspose":
            own = factor.reshape(self.group, 1, -1, *[1] * (self.weights.ndim - 2))
            return (self.weights.reshape(self.group, -1, *self.weights.shape[1:]) * own).reshape(self.weights.shape)
        return self.weights * (factor[:, None] if self._is_across else factor)

    def scaled_inputs(self, factor: Array) -> Array:
        """The weights with each input scaled by its factor."""
        if self.node.op_type == "Conv":
            own = factor.reshape(self.group, 1, -1, *[1] * (self.weights.ndim - 2))
            return (self.weights.reshape(self.group, -1, *self.weights.shape[1:]) * own).reshape(self.weights.shape)
        return self.weights * (factor if self._is_across else factor.reshape(-1, *[1] * (self.weights.ndim - 1)))


def linear(node: ir.Node | None, scope: Scope, *, alone: bool = True) -> Linear | Refusal | None:
    """A node as a product of stored weights; if `alone`, a refusal where its result or its weights have other
    readers."""
    if node is None or node.op_type not in (*_CONVOLUTIONS, "Gemm", "MatMul"):
        return None
    weights, bias = scope.constant(operand(node, 1)), operand(node, 2)
    if weights is None:
        return Refusal(
            "the weights are computed", {"weights": (operand(node, 1) or node.outputs[0]).name or ""}, (node,)
        )
    if weights.dtype.kind != "f":
        return None
    if node.op_type == "MatMul" and weights.ndim != 2:
        return None
    if node.op_type == "Gemm" and (attribute(node, "alpha", 1.0) != 1 or attribute(node, "beta", 1.0) != 1):
        return Refusal("the product is scaled", {"alpha": str(attribute(node, "alpha", 1.0))}, (node,))
    added = scope.constant(bias)
    if bias is not None and added is None:
        return Refusal("the bias is computed", {"bias": bias.name or ""}, (node,))
    for read, title in ((node.outputs[0], "the result is"), (operand(node, 1), "the weights are")):
        if alone and read is not None and not scope.only_reader(read):
            return Refusal(f"{title} read by more than one node", {"readers": len(scope.readers(read))}, (node,))
    count = _outputs(node, weights)
    if added is not None and (added.size not in (1, count) or added.shape[-1:] not in ((), (added.size,))):
        return None  # a bias that varies by row
    wide = np.zeros(count) if added is None else np.broadcast_to(added.astype(np.float64).reshape(-1), count)
    return Linear(node, weights.astype(np.float64), wide, weights.dtype)


def _outputs(node: ir.Node, weights: Array) -> int:
    if node.op_type == "Conv" or (node.op_type == "Gemm" and attribute(node, "transB", 0)):
        return weights.shape[0]
    return weights.shape[1] * (int(attribute(node, "group", 1)) if node.op_type == "ConvTranspose" else 1)


def along(values: Array, found: Linear, scope: Scope) -> Array | None:
    """A number for each result, from an operand broadcast against the results; None if it varies otherwise."""
    rank = len(scope.shape(found.node.outputs[0]) or ()) or (found.weights.ndim if _is_convolution(found) else 0)
    return _vector(values, found.outputs, 1 if _is_convolution(found) else rank - 1, rank)


def along_inputs(values: Array, found: Linear, scope: Scope) -> Array | None:
    """A number for each input, from an operand broadcast against the data; None if it varies otherwise."""
    rank = len(scope.shape(found.node.inputs[0]) or ()) or (found.weights.ndim if _is_convolution(found) else 0)
    first = found.node.op_type == "Gemm" and attribute(found.node, "transA", 0)
    return _vector(values, found.inputs, 1 if _is_convolution(found) else 0 if first else rank - 1, rank)


def _vector(values: Array, count: int, axis: int, rank: int) -> Array | None:
    """An operand broadcast against `rank` axes, as a number for each of `count` indices of one axis."""
    if values.size == 1 and values.ndim <= max(rank, 1):
        return np.broadcast_to(values.astype(np.float64).reshape(-1), count)
    if not rank or values.ndim > rank:
        return None
    shape = (1,) * (rank - values.ndim) + values.shape
    return values.astype(np.float64).reshape(-1) if values.size == count == shape[axis] else None


def _is_convolution(found: Linear) -> bool:
    return found.node.op_type in _CONVOLUTIONS


def rewrite(found: Linear, last: ir.Node, factor: Array | None, shift: Array, scope: Scope) -> None:
    """Replaces the product and the node after it by a product with the changed weights and bias."""
    node = found.node
    data, weights = node.inputs[0], node.inputs[1]
    if factor is not None:
        weights = scope.store(node, found.scaled(factor).astype(found.dtype))
    bias = scope.store(node, shift.astype(found.dtype))
    if node.op_type == "MatMul":
        made = scope.add(last, "MatMul", [data, weights])
        made = scope.add(last, "Add", [made, bias])
    else:
        made = scope.add(last, node.op_type, [data, weights, bias], **kept(node))
    scope.replace(last.outputs[0], made)


class BatchNormalization(Rule):
    """alpha = gamma / sqrt(variance + epsilon): weights times alpha, bias (b - mean) alpha + beta."""

    name = "rewrite.batch_normalization"
    operators = ("BatchNormalization",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        trains = attribute(node, "training_mode", 0) or (scope.opset < 7 and not attribute(node, "is_test", 0))
        if trains or any(other.uses() or other.is_graph_output() for other in node.outputs[1:]):
            return Refusal("it is in training mode and normalises by the batch", {"training_mode": 1})
        before = scope.producer(operand(node, 0))
        found = linear(before, scope)
        if found is None:
            title = "an input" if before is None else before.op_type
            return Refusal("the node before it has no weights", {"before": title})
        if isinstance(found, Refusal):
            return found
        parameters = [scope.constant(operand(node, position)) for position in range(1, 5)]
        if any(values is None for values in parameters):
            return Refusal("its parameters are computed", {"parameters": "computed"})
        if attribute(node, "spatial", 1) == 0:
            return Refusal("it normalises each position by itself", {"spatial": 0})
        if found.node.op_type in ("Gemm", "MatMul") and len(scope.shape(node.inputs[0]) or ()) != 2:
            return Refusal("its channels are not the columns of the product", {"rank": "not 2"}, (found.node,))
        gamma, beta, mean, variance = (np.asarray(values, np.float64).reshape(-1) for values in parameters)
        if gamma.size != found.outputs:
            return None
        with np.errstate(all="ignore"):
            alpha = gamma / np.sqrt(variance + float(attribute(node, "epsilon", 1e-5)))
            shift = (found.bias - mean) * alpha + beta
        refusal = _unfit(found, alpha, shift)
        if refusal is not None:
            return refusal
        return Proposal(
            "a scale and a shift of each channel of a product",
            lambda: rewrite(found, node, alpha, shift, scope),
            (found.node,),
            scope.traffic(node.outputs[0]),
        )


def _with_stored(node: ir.Node, scope: Scope) -> Iterator[tuple[ir.Node, Array]]:
    """The product and the stored numbers that a node combines; subtrahends and divisors come second."""
    for data, other in operands(node):
        made, values = scope.producer(data, *_CONVOLUTIONS, "Gemm"), scope.constant(other)
        if made is not None and values is not None:
            yield made, values


class Shift(Rule):
    """A number added to each channel of a convolution, or column of a Gemm, is its bias."""

    name = "rewrite.bias"
    operators = ("Add", "Sub")

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        for made, values in _with_stored(node, scope):
            found = linear(made, scope)
            if found is None or isinstance(found, Refusal):
                return found
            shift = along(values, found, scope)
            if shift is None:
                return Refusal("what is added differs from place to place", {"shape": str(values.shape)}, (made,))
            total = found.bias - shift if node.op_type == "Sub" else found.bias + shift
            refusal = unfit_bias(total, found.dtype, (made,))
            if refusal is not None:
                return refusal
            return Proposal(
                "one number is added to each channel",
                lambda found=found, total=total: rewrite(found, node, None, total, scope),
                (made,),
                scope.traffic(node.outputs[0]),
            )
        return None


class Scale(Rule):
    """A number that multiplies each channel of a product belongs to its weights."""

    name = "rewrite.scale"
    operators = ("Mul", "Div")

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        for made, values in _with_stored(node, scope):
            found = linear(made, scope)
            if found is None or isinstance(found, Refusal):
                return found
            factor = along(values, found, scope)
            if factor is None:
                return Refusal("the factor differs from place to place", {"shape": str(values.shape)}, (made,))
            with np.errstate(all="ignore"):
                factor = 1 / factor if node.op_type == "Div" else factor
                shift = found.bias * factor
            refusal = _unfit(found, factor, shift)
            if refusal is not None:
                return refusal
            return Proposal(
                "one factor for each channel",
                lambda found=found, factor=factor, shift=shift: rewrite(found, node, factor, shift, scope),
                (made,),
                scope.traffic(node.outputs[0]),
            )
        return None


class ScaleBefore(Rule):
    """A number that multiplies each channel that a product reads belongs to its weights. Zeros around it stay zeros."""

    name = "rewrite.scale_before"
    operators = (*_CONVOLUTIONS, "Gemm", "MatMul")

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        data, weights = operand(node, 0), operand(node, 1)
        scaling = scope.producer(data, "Mul", "Div")
        source, values = (None, None) if scaling is None else _stored_factor(scaling, scope)
        if data is None or weights is None or scaling is None or source is None or values is None:
            return None
        found = linear(node, scope, alone=False)
        if not isinstance(found, Linear):
            return found
        if values.ndim and (scope.shape(source) is None or scope.shape(source) != scope.shape(data)):
            return Refusal("the scaled value is broadcast", {"shape": str(values.shape)}, (scaling,))
        for read, title in ((data, "the scaled value is"), (weights, "the weights are")):
            if not scope.only_reader(read):
                return Refusal(f"{title} read by more than one node", {"readers": len(scope.readers(read))}, (scaling,))
        factor = along_inputs(values, found, scope)
        if factor is None:
            return Refusal("the factor differs from place to place", {"shape": str(values.shape)}, (scaling,))
        with np.errstate(all="ignore"):
            wide = found.scaled_inputs(1 / factor if scaling.op_type == "Div" else factor)
        refusal = unfit("weights", wide, found.dtype, found.weights, (scaling,))
        if refusal is not None:
            return refusal

        def apply() -> None:
            inputs = [source, scope.store(node, wide.astype(found.dtype)), *node.inputs[2:]]
            scope.replace(node.outputs[0], scope.add(node, node.op_type, inputs, **kept(node)))

        unwanted = "ONNX Runtime fuses a Gelu with this factor, which is faster" if is_gelu(scaling, scope) else ""
        return Proposal("one factor for each channel that is read", apply, (scaling,), scope.traffic(data), unwanted)


def _stored_factor(scaling: ir.Node, scope: Scope) -> tuple[ir.Value | None, Array | None]:
    """The value that a node scales, and the stored factors."""
    for data, other in operands(scaling):
        values = scope.constant(other)
        if values is not None:
            return data, values
    return None, None


def _unfit(found: Linear, factor: Array, shift: Array) -> Refusal | None:
    """Why scaled weights or a shifted bias do not fit into the type of the product."""
    with np.errstate(all="ignore"):
        scaled = found.scaled(factor)
    return unfit("weights", scaled, found.dtype, found.weights, (found.node,)) or unfit_bias(
        shift, found.dtype, (found.node,)
    )


class Padding(Rule):
    """Folds zero padding of the data into the convolution."""

    name = "rewrite.padding"
    operators = ("Conv",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        pad = scope.producer(operand(node, 0), "Pad")
        weights = scope.shape(operand(node, 1))
        if pad is None or pad.inputs[0] is None or weights is None:
            return None
        rank = len(weights)
        mode = attribute(pad, "mode", "constant")
        if mode not in ("constant", b"constant"):
            return Refusal("it does not pad with zeros", {"mode": str(mode)}, (pad,))
        filling = float(attribute(pad, "value", 0.0))
        if operand(pad, 2) is not None:
            known = scope.single(operand(pad, 2))
            if known is None:
                return Refusal("the padded value is computed", {"value": "computed"}, (pad,))
            filling = known
        if filling != 0:
            return Refusal("it does not pad with zeros", {"value": str(filling)}, (pad,))
        if attribute(node, "auto_pad", "NOTSET") not in ("NOTSET", b"NOTSET", "VALID", b"VALID"):
            return Refusal("the convolution pads by itself", {"auto_pad": str(attribute(node, "auto_pad"))}, (pad,))
        pads = scope.integers(pad, "pads", 1)
        axes = list(range(rank))
        if operand(pad, 3) is not None:
            named = scope.integers(pad, "axes", 3)
            if named is None:
                return Refusal("the padded axes are computed", {"axes": "computed"}, (pad,))
            axes = [axis % rank for axis in named]
        if pads is None or len(pads) != 2 * len(axes):
            return Refusal("the pads are computed", {"pads": "computed"}, (pad,))
        before, after = dict.fromkeys(range(rank), 0), dict.fromkeys(range(rank), 0)
        before.update(zip(axes, pads[: len(axes)], strict=True))
        after.update(zip(axes, pads[len(axes) :], strict=True))
        if min(pads, default=0) < 0 or any(before[axis] or after[axis] for axis in (0, 1)):
            return Refusal("it crops, or pads images or channels", {"pads": str(pads)}, (pad,))
        if not scope.only_reader(pad.outputs[0]):
            return Refusal(
                "the padded value has other readers", {"readers": len(scope.readers(pad.outputs[0]))}, (pad,)
            )
        own = [int(number) for number in attribute(node, "pads", [0] * (2 * (rank - 2)))]
        spatial = range(2, rank)
        total = [own[axis - 2] + before[axis] for axis in spatial]
        total += [own[rank - 2 + axis - 2] + after[axis] for axis in spatial]

        def apply() -> None:
            kept = {n: a.value for n, a in node.attributes.items() if n not in ("pads", "auto_pad")}
            made = scope.add(node, "Conv", [pad.inputs[0], *node.inputs[1:]], pads=total, **kept)
            scope.replace(node.outputs[0], made)

        return Proposal("a convolution pads with zeros itself", apply, (pad,), scope.traffic(pad.outputs[0]))


class Gemm(Rule):
    """A matrix product and an addition are one Gemm."""

    name = "rewrite.gemm"
    operators = ("Add",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        for data, other in ((0, 1), (1, 0)):
            made, added = scope.producer(operand(node, data), "MatMul"), operand(node, other)
            values = scope.constant(added)
            if made is None or values is None:
                continue
            left, right = scope.shape(made.inputs[0]), scope.shape(made.inputs[1])
            if left is None or right is None or len(left) != 2 or len(right) != 2:
                return None
            if scope.shape(node.outputs[0]) != (left[0], right[1]) or values.ndim > 2 or values.dtype.kind != "f":
                return None
            if not scope.only_reader(made.outputs[0]):
                return Refusal(
                    "the product is read elsewhere too", {"readers": len(scope.readers(made.outputs[0]))}, (made,)
                )

            def apply(made: ir.Node = made, added: ir.Value | None = added) -> None:
                scope.replace(node.outputs[0], scope.add(node, "Gemm", [*made.inputs, added]))

            return Proposal("a product of matrices and a sum", apply, (made,), scope.traffic(node.outputs[0]))
        return None


class OneSlope(Rule):
    """PRelu with one slope for all channels is LeakyRelu."""

    name = "rewrite.one_slope"
    operators = ("PRelu",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        slope = scope.single(operand(node, 1))
        fact = scope.fact(node.outputs[0])
        if slope is None:
            return Refusal("the slopes differ, or are computed", {"slope": "not one"})
        if fact is None or not fact.dtype.is_float or fact.shape != scope.shape(node.inputs[0]):
            return None
        if float(np.float32(slope)) != slope:
            return Refusal("the slope of LeakyRelu is a float32", {"slope": str(slope)})

        def apply() -> None:
            scope.replace(node.outputs[0], scope.add(node, "LeakyRelu", [node.inputs[0]], alpha=slope))

        return Proposal("one slope for all channels", apply)

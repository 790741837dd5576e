"""Folds a number that is added to each input channel of a convolution or Gemm into its bias.

    W (x + d) + b is W x + (b + W d)

ONNX Runtime computes chains of convolutions and activations in a blocked layout, and converts from it for a sum with
one number; this saves that too. Biases are combined in float64 and rounded once."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.rules.linear import Linear, along_inputs, linear
from opweld.rewrite.rules.rounding import unfit_bias
from opweld.rewrite.scope import Array, Scope, attribute, kept, operand, operands


class ShiftBefore(Rule):
    """Folds a sum with each channel before a product by stored weights into the product's bias."""

    name = "rewrite.shift_before"
    operators = ("Conv", "Gemm")

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        data = operand(node, 0)
        added = scope.producer(data, "Add", "Sub")
        source, values = (None, None) if added is None else _stored_shift(added, scope)
        if data is None or added is None or source is None or values is None or values.dtype.kind != "f":
            return None
        found = linear(node, scope, alone=False)
        if not isinstance(found, Linear):
            return found
        if scope.shape(source) is None or scope.shape(source) != scope.shape(data):
            return Refusal("the shifted value is broadcast", {"shape": str(values.shape)}, (added,))
        if not scope.only_reader(data):
            return Refusal(
                "the shifted value is read by more than one node", {"readers": len(scope.readers(data))}, (added,)
            )
        shift = along_inputs(values, found, scope)
        if shift is None:
            return Refusal("the shift differs from place to place", {"shape": str(values.shape)}, (added,))
        pads = _padding(node)
        if pads is not None:
            return Refusal("its padding is not shifted", {"pads": pads}, (added,))
        if node.op_type == "Gemm" and attribute(node, "transA", 0):
            return None
        with np.errstate(all="ignore"):
            wide = found.bias + _through(found, -shift if added.op_type == "Sub" else shift)
        refusal = unfit_bias(wide, found.dtype, (added,))
        if refusal is not None:
            return refusal

        def apply() -> None:
            inputs = [source, node.inputs[1], scope.store(node, wide.astype(found.dtype))]
            scope.replace(node.outputs[0], scope.add(node, node.op_type, inputs, **kept(node)))

        return Proposal("one number is added to each channel that is read", apply, (added,), scope.traffic(data))


def _stored_shift(added: ir.Node, scope: Scope) -> tuple[ir.Value | None, Array | None]:
    """The value that a node shifts, and the stored numbers."""
    for data, other in operands(added):
        values = scope.constant(other)
        if values is not None:
            return data, values
    return None, None


def _padding(node: ir.Node) -> str | None:
    """How a convolution pads, if it does."""
    mode = attribute(node, "auto_pad", "NOTSET")
    if mode not in ("NOTSET", b"NOTSET", "VALID", b"VALID"):
        return str(mode)
    pads = [int(number) for number in attribute(node, "pads", ())]
    return ", ".join(map(str, pads)) if any(pads) else None


def _through(found: Linear, shift: Array) -> Array:
    """The product of one number for each input, equal at all positions."""
    if found.node.op_type == "Gemm":
        return found.weights @ shift if attribute(found.node, "transB", 0) else shift @ found.weights
    places = found.weights.reshape(found.group, -1, *found.weights.shape[1:])  # [group, outputs, inputs, ...]
    sums = places.sum(axis=tuple(range(3, places.ndim)))
    return np.einsum("goi,gi->go", sums, shift.reshape(found.group, -1)).reshape(-1)

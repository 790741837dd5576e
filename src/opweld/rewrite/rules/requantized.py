"""A DequantizeLinear and a QuantizeLinear with the same parameters cancel."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule, handed_on
from opweld.rewrite.scope import Array, Scope, attribute, operand

_INTEGERS = {"int8": 8, "uint8": 8, "int16": 16, "uint16": 16}
"""Supported integer types, with their bits."""


class Requantized(Rule):
    """QuantizeLinear(DequantizeLinear(q)) by the same scale and zero point is q."""

    name = "rewrite.requantized"
    operators = ("QuantizeLinear",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        first = scope.producer(operand(node, 0), "DequantizeLinear")
        source = None if first is None else operand(first, 0)
        if first is None or source is None:
            return None
        before, after = scope.fact(source), scope.fact(node.outputs[0])
        if before is None or after is None or before.dtype.name.lower() != after.dtype.name.lower():
            return Refusal("it becomes another type", {"value": source.name or ""}, (first,))
        scales = [scope.constant(operand(made, 1)) for made in (first, node)]
        if scales[0] is None or scales[1] is None:
            return Refusal("a scale is computed", {"value": first.outputs[0].name or ""}, (first,))
        if not _equal(scales[0], scales[1]):
            return Refusal("the scales differ", {"scale": _text(scales[0]), "other": _text(scales[1])}, (first,))
        zeros = [_zero(made, after.dtype.numpy, scope) for made in (first, node)]
        if zeros[0] is None or zeros[1] is None or not _equal(zeros[0], zeros[1]):
            return Refusal("the zero points differ, or are computed", {"value": source.name or ""}, (first,))
        for name, usual in (("axis", 1), ("block_size", 0)):
            if scales[0].size > 1 and attribute(first, name, usual) != attribute(node, name, usual):
                return Refusal("the scales have different axes", {name: str(attribute(node, name, usual))}, (first,))
        lossy = _lossy(scales[0], str(after.dtype.numpy), node)
        if lossy is not None:
            return Refusal(lossy, {"scale": _text(scales[0]), "type": str(after.dtype.numpy)}, (first,))
        return handed_on(node, source, scope, "the same scale both ways", first)


def _lossy(scale: Array, integers: str, node: ir.Node) -> str | None:
    """Why rounding may give another integer: the product and the quotient are rounded once each."""
    if integers not in _INTEGERS:
        return "it is no integer of 8 or 16 bits"
    info = np.finfo(str(scale.dtype))
    if str(attribute(node, "precision", 0)) not in ("0", str(int(ir.DataType.from_numpy(scale.dtype)))):
        return "it is computed in another type"
    farthest = 2.0 ** (_INTEGERS[integers] + 1)  # from a zero point to an integer
    numbers = scale.astype(np.float64)
    if np.any(numbers < float(info.smallest_normal)) or np.any(numbers * farthest > float(info.max)):
        return "the scale is too small or too large for its type"
    return "the type of the scale rounds too much" if farthest * float(info.eps) >= 0.5 else None


def _equal(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and bool(np.array_equal(a.reshape(-1), b.reshape(-1)) if a.size == b.size else False)


def _zero(node: ir.Node, dtype: np.dtype[np.generic], scope: Scope) -> Array | None:
    """The zero points, 0 if absent."""
    if operand(node, 2) is None:
        scale = scope.constant(operand(node, 1))
        return None if scale is None else np.zeros(scale.shape, dtype)
    return scope.constant(operand(node, 2))


def _text(numbers: Array) -> str:
    return f"{float(numbers.reshape(-1)[0]):g}" if numbers.size else "none"

"""Operators expanded to a standard one between conversions: channels-last ones between transpositions, quantized ones
between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opweld import ir
from opweld.ops.expansion import Expansion
from opweld.ops.fact import Fact
from opweld.ops.microsoft.domain import MICROSOFT
from opweld.ops.operands import given, require_rank, required
from opweld.ops.registry import Inference, attribute, infers
from opweld.ops.scales import check_scale
from opweld.tensor.dtype import DType


class _Form(Expansion):
    """The nodes of an expansion, with the conversions among them."""

    def __init__(self, scope: Inference, node: ir.Node) -> None:
        super().__init__(node)
        self._scope, self._written = scope, node

    def moved(self, value: ir.Value, order: Sequence[int]) -> ir.Value:
        """The value with its axes in another order."""
        return self.emit("Transpose", value, perm=list(order))[0]

    def channels_first(self, value: ir.Value, rank: int) -> ir.Value:
        """[N, spatial..., C] -> [N, C, spatial...]"""
        return self.moved(value, (0, rank - 1, *range(1, rank - 1)))

    def channels_last(self, value: ir.Value, rank: int) -> ir.Value:
        """[N, C, spatial...] -> [N, spatial..., C]"""
        return self.moved(value, (0, *range(2, rank), 1))

    def real(self, position: int, scale: int, zero: int, axis: int = 0) -> ir.Value:
        """A dequantized input, by its scale and zero point, each for the tensor or along an axis."""
        value = required(self._written, position)
        numbers = required(self._written, scale), given(self._written, zero)
        return self.emit("DequantizeLinear", value, *numbers, axis=axis)[0]

    def quantized(self, value: ir.Value, scale: int, zero: int, like: int) -> ir.Value:
        """A result quantized to the type of its zero point, or of an input where that is absent."""
        point = given(self._written, zero)
        dtype = self._scope.fact(required(self._written, like)).dtype
        chosen: dict[str, Any] = {} if point is not None else {"output_dtype": dtype.onnx}
        return self.emit("QuantizeLinear", value, required(self._written, scale), point, **chosen)[0]

    def attributes(self, *without: str) -> dict[str, Any]:
        """The attributes of the node that the standard operator has too."""
        return {name: found for name, found in self._written.attributes.items() if name not in without}


# -------------------------------------------------------------------------------------------------------- channels last


@infers("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def infer_nhwc_conv(scope: Inference, node: ir.Node) -> list[Fact]:
    """[N, spatial..., C] -> [N, spatial..., O], as (Fused)Conv; of NhwcConv the weights have channels last too."""
    form, x, w = _Form(scope, node), required(node, 0), required(node, 1)
    rank = require_rank(scope.fact(x), 3, node).rank
    require_rank(scope.fact(w), rank, node, rank)
    fused = node.op_type == "NhwcFusedConv"
    addend = given(node, 3) if fused else None
    inputs = [form.channels_first(x, rank), w if fused else form.channels_first(w, rank), given(node, 2)]
    if addend is not None:
        require_rank(scope.fact(addend), rank, node, rank)
        inputs.append(form.channels_first(addend, rank))
    kind, domain = ("FusedConv", MICROSOFT) if fused else ("Conv", "")
    (y,) = form.emit(kind, *inputs, domain=domain, **form.attributes())
    return form.infer(scope, form.channels_last(y, rank))


@infers("NhwcMaxPool", domain=MICROSOFT)
def infer_nhwc_max_pool(scope: Inference, node: ir.Node) -> list[Fact]:
    """[N, spatial..., C] -> [N, places..., C], as MaxPool."""
    form, x = _Form(scope, node), required(node, 0)
    rank = require_rank(scope.fact(x), 3, node).rank
    (y,) = form.emit("MaxPool", form.channels_first(x, rank), **form.attributes())
    return form.infer(scope, form.channels_last(y, rank))


@infers("QLinearConv", domain=MICROSOFT)
def infer_qlinear_conv(scope: Inference, node: ir.Node) -> list[Fact]:
    """As QLinearConv of ONNX; channels of x and y, not of the weights, may be last."""
    form, x = _Form(scope, node), required(node, 0)
    rank, last = require_rank(scope.fact(x), 3, node).rank, bool(attribute(node, "channels_last", 0))
    rest = [given(node, position) for position in range(1, len(node.inputs))]
    data = form.channels_first(x, rank) if last else x
    (y,) = form.emit("QLinearConv", data, *rest, **form.attributes("channels_last"))
    return form.infer(scope, form.channels_last(y, rank) if last else y)


# ------------------------------------------------------------------------------------------------------------ quantized


@infers("QLinearAveragePool", domain=MICROSOFT)
def infer_qlinear_average_pool(scope: Inference, node: ir.Node) -> list[Fact]:
    """As AveragePool of dequantized x; channels may be last."""
    form = _Form(scope, node)
    rank = require_rank(scope.fact(required(node, 0)), 3, node).rank
    last, real = bool(attribute(node, "channels_last", 0)), form.real(0, 1, 2)
    data = form.channels_first(real, rank) if last else real
    (y,) = form.emit("AveragePool", data, **form.attributes("channels_last"))
    return form.infer(scope, form.quantized(form.channels_last(y, rank) if last else y, 3, 4, like=0))


@infers("QLinearWhere", domain=MICROSOFT)
def infer_qlinear_where(scope: Inference, node: ir.Node) -> list[Fact]:
    """As Where, of both dequantized operands."""
    form = _Form(scope, node)
    (chosen,) = form.emit("Where", required(node, 0), form.real(1, 2, 3), form.real(4, 5, 6))
    return form.infer(scope, form.quantized(chosen, 7, 8, like=1))


@infers("QGemm", domain=MICROSOFT)
def infer_qgemm(scope: Inference, node: ir.Node) -> list[Fact]:
    """alpha * (a b) + c, exactly in int32, of which c is; float32 where the result has no scale."""
    form = _Form(scope, node)
    check_scale(scope, node, 1)
    check_scale(scope, node, 4)
    sides = list[ir.Value]()
    for position, name in ((0, "transA"), (3, "transB")):
        side = required(node, position)
        require_rank(scope.fact(side), 2, node, 2)
        sides.append(form.moved(side, (1, 0)) if attribute(node, name, 0) else side)
    (total,) = form.emit("MatMulInteger", *sides, given(node, 2), given(node, 5))
    addend, alpha = given(node, 6), float(attribute(node, "alpha", 1.0))
    if addend is not None:
        (total,) = form.emit("Add", total, addend)
    (unit,) = form.emit("Mul", required(node, 1), required(node, 4))
    if alpha != 1:
        (unit,) = form.emit("Mul", unit, form.constant(np.float32(alpha)))
    (real,) = form.emit("Mul", form.emit("Cast", total, to=DType.F32.onnx)[0], unit)
    return form.infer(scope, real if given(node, 7) is None else form.quantized(real, 7, 8, like=0))


@infers("QAttention", domain=MICROSOFT)
def infer_qattention(scope: Inference, node: ir.Node) -> list[Fact]:
    """As Attention, of the dequantized input and weights."""
    form = _Form(scope, node)
    operands = form.real(0, 3, 6), form.real(1, 4, 7, axis=1), required(node, 2), given(node, 5), given(node, 8)
    made = form.emit("Attention", *operands, domain=MICROSOFT, outputs=len(node.outputs), **form.attributes())
    return form.infer(scope, *made)


@infers("QEmbedLayerNormalization", domain=MICROSOFT)
def infer_qembed(scope: Inference, node: ir.Node) -> list[Fact]:
    """As EmbedLayerNormalization, of the dequantized tables, scale and shift."""
    form = _Form(scope, node)
    tables = [form.real(p, p + 6, p + 11) if given(node, p) is not None else None for p in (2, 3, 4)]
    gamma, beta = form.real(5, 11, 16), form.real(6, 12, 17)
    operands = required(node, 0), given(node, 1), *tables, gamma, beta, given(node, 7)
    made = form.emit(
        "EmbedLayerNormalization", *operands, domain=MICROSOFT, outputs=len(node.outputs), **form.attributes()
    )
    return form.infer(scope, *made)

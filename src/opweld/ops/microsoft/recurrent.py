"""DynamicQuantizeLSTM: an LSTM whose weights are 8-bit, and whose inputs and hidden states are quantized to 8 bits."""

from __future__ import annotations

import numpy as np

from opweld import ir
from opweld.ops.expansion import Expansion
from opweld.ops.fact import Fact
from opweld.ops.microsoft.domain import MICROSOFT
from opweld.ops.operands import given, required
from opweld.ops.registry import Inference, infers
from opweld.tensor.dtype import DType


@infers("DynamicQuantizeLSTM", domain=MICROSOFT)
def infer_dynamic_lstm(scope: Inference, node: ir.Node) -> list[Fact]:
    """X [T, B, I], W [D, I, 4 * H], R [D, H, 4 * H], then as LSTM; each of W and R has a scale and a zero point, for a
    direction [D] or for each of its rows [D, 4 * H]. Expanded to an LSTM of the dequantized values."""
    made = Expansion(node)
    (x,) = made.emit("DequantizeLinear", *made.emit("DynamicQuantizeLinear", required(node, 0), outputs=3))
    w = _weights(scope, made, node, 1, 8)
    r = _weights(scope, made, node, 2, 10)
    rest = (given(node, position) for position in range(3, 8))
    return made.infer(scope, *made.own("LSTM", x, w, r, *rest, outputs=len(node.outputs), **node.attributes))


def _weights(scope: Inference, made: Expansion, node: ir.Node, position: int, scaling: int) -> ir.Value:
    """Weights as LSTM takes them: float32, with the rows of the gates as the first axis."""
    axes = made.constant(np.array([1] if scope.fact(required(node, scaling)).rank == 2 else [1, 2], np.int64))
    (whole,) = made.emit("Cast", required(node, position), to=DType.I32.onnx)
    zero = given(node, scaling + 1)
    if zero is not None:
        (offset,) = made.emit("Unsqueeze", *made.emit("Cast", zero, to=DType.I32.onnx), axes)
        (whole,) = made.emit("Sub", whole, offset)
    (scale,) = made.emit("Unsqueeze", required(node, scaling), axes)
    (wide,) = made.emit("Mul", *made.emit("Cast", whole, to=DType.F32.onnx), scale)
    return made.emit("Transpose", wide, perm=[0, 2, 1])[0]

"""Operators with the semantics of those of the same name in ONNX."""

from __future__ import annotations

from opweld.ops.grid_sample import infer_grid_sample, lower_grid_sample
from opweld.ops.microsoft.domain import MICROSOFT
from opweld.ops.movement import infer_trilu, lower_trilu
from opweld.ops.quantize import infer_dequantize, infer_quantize, lower_dequantize, lower_quantize
from opweld.ops.registry import infers, lowers

infers("QuantizeLinear", domain=MICROSOFT)(infer_quantize)
lowers("QuantizeLinear", domain=MICROSOFT)(lower_quantize)
infers("DequantizeLinear", domain=MICROSOFT)(infer_dequantize)
lowers("DequantizeLinear", domain=MICROSOFT)(lower_dequantize)
infers("Trilu", domain=MICROSOFT)(infer_trilu)
lowers("Trilu", domain=MICROSOFT)(lower_trilu)
infers("GridSample", domain=MICROSOFT)(infer_grid_sample)
lowers("GridSample", domain=MICROSOFT)(lower_grid_sample)

"""How exporters write ideas of neural networks, as ONNX text: one file for each kind of idea, all of them in `ideas`.

Of torch it is what 2.13 writes, of each exporter: at the last opset that lacks the operator, or from a module that
writes the formula itself, as most models do. Of paddle2onnx, LayerNorm, GELU, SiLU and HardSwish are what stands in
PP-OCR and layout_cdla, of tf2onnx, GELU by tanh and softmax what stands in magika; their other ideas are put together
from the nodes that they write for each operator of the formula, and no real file was seen. Other ways, by people and by
scripts, are `by hand`. All are put at an opset at which the idea has an operator.
"""

"""Reads models: an ONNX file becomes a graph at one opset, and the graph becomes variants with known shapes."""

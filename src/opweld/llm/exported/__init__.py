"""Folders of ONNX files: of ONNX Runtime GenAI's model builder, and of Optimum."""

"""The domain of ONNX Runtime's own operators."""

MICROSOFT = "com.microsoft"

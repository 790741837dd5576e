"""The domain of the operators of classical machine learning."""

ML = "ai.onnx.ml"

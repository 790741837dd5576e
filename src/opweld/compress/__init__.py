"""Fewer weights: an ONNX model in, one of lower rank, fewer channels or more zeros out, kept where it is faster."""

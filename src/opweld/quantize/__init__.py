"""Post-training quantisation: an ONNX model in, one of fewer bits out, with Q/DQ pairs that any runtime loads."""

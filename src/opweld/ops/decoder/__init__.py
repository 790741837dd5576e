"""Operators of language models that ONNX has no words for: integers in blocks, rotary embedding by angles that are fed,
keys and values in blocks of a pool."""

from opweld.ops.decoder import blocked, paged, rotary

__all__ = ["blocked", "paged", "rotary"]

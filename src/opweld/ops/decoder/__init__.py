"""Operators of language models that ONNX has no words for: integers in blocks, rotary embedding by angles that are fed,
keys and values in blocks of a pool, products of the experts that tokens chose, of rows
rounded to 8 bits."""

from opweld.ops.decoder import blocked, experts, paged, rotary, rounded

__all__ = ["blocked", "experts", "paged", "rotary", "rounded"]

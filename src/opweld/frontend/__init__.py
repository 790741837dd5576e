"""Models in: a file becomes a graph at one opset, and the graph becomes variants with known shapes."""

from opweld.frontend.explore import Variant, variants
from opweld.frontend.onnx import load

__all__ = ["Variant", "load", "variants"]

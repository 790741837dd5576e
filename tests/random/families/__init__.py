"""What random graphs are made of; importing this registers every family."""

from tests.random.families import elementwise, idioms, indexing, movement, products, quantized, recurrent, rows
from tests.random.families.registry import FAMILIES

__all__ = ["FAMILIES", "elementwise", "idioms", "indexing", "movement", "products", "quantized", "recurrent", "rows"]

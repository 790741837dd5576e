"""How many bodies of an inner loop to lay out in a row, so that its registers suffice."""

from __future__ import annotations

import re

from opweld.codegen.c.vector import Assign, Define, Do, VectorStatement

_FEWEST_TRIPS = 8
_FEWEST_PRODUCTS = 4
_MOST_POINTERS = 9
_POINTER = re.compile(r"\b(?:in|out|io|tmp)\d+(?:_\d+)?\b")


def unroll_factor(body: tuple[VectorStatement, ...], trips: int | None, lanes: int) -> int:
    """The number of bodies; 1 leaves the loop to the compiler.

    Only loops of multiply-adds profit: four bodies are 4 to 15% faster than one. With more pointers than there are
    integer registers to hold them, as rows at run-time distances need, clang spills as soon as it unrolls."""
    if trips is not None and trips < _FEWEST_TRIPS:
        return 1
    if not all(isinstance(item, Do | Define | Assign) for item in body):
        return 1
    products = [item for item in body if isinstance(item, Do) and " += " in item.text and " * " in item.text]
    if len(products) < _FEWEST_PRODUCTS:
        return 1
    values = " ".join(item.value or "" for item in body if isinstance(item, Define | Assign))
    pointers = set(_POINTER.findall(values))
    if len(pointers) > _MOST_POINTERS:
        return 1
    accumulators = {item.text.split(" ", 1)[0] for item in products}
    registers = 16 if lanes == 8 else 32
    return 4 if len(accumulators) <= registers - 4 else 1

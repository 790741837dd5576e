"""How many bodies of an inner loop to lay out in a row, so that its registers suffice."""

from __future__ import annotations

from opweld.codegen.c.vector import Assign, Define, Do, VectorStatement

_FEWEST_TRIPS = 8


def unroll_factor(body: tuple[VectorStatement, ...], trips: int | None, rows: int, lanes: int) -> int:
    """The number of bodies; 1 leaves the loop to the compiler.

    Only loops of multiply-adds profit. With more than 8 rows, or nearly all registers taken, clang spills."""
    if trips is not None and trips < _FEWEST_TRIPS:
        return 1
    if not all(isinstance(item, Do | Define | Assign) for item in body):
        return 1
    accumulators = {item.text.split(" ", 1)[0] for item in body if isinstance(item, Do) and " += " in item.text}
    products = sum(isinstance(item, Do) and " += " in item.text and " * " in item.text for item in body)
    if products < 4 or rows > 8:
        return 1
    registers = 32 if lanes != 8 else 16
    if 2 * len(accumulators) <= registers:
        return 4
    return 2 if 4 * len(accumulators) <= 3 * registers else 1



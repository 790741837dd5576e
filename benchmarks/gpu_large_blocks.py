"""Kernels of large blocks, for Triton's interpreter.

The interpreter takes some milliseconds for each step of a program, however much the step computes: a model of 4 GMAC
in float32, by blocks of 64 x 32 results and 16 of what is summed at a time, has 130,000 steps of products. With blocks
that no card has registers for, of the same templates, it has a hundredth of them. What is shown then is that the
templates are right and what surrounds them: places of values, addresses, masks, order. That blocks of the sizes of a
card are right, is shown on small graphs (`tests/backends`)."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

ELEMENTS = 1 << 15
"""Elements of an elementwise program, and of the rows of a program."""
ROWS = COLUMNS = 256
DEPTH = 512
"""Of a product, at most."""


@contextmanager
def large_blocks() -> Generator[None]:
    """What is compiled within has kernels of large blocks. The caller sees to a cache of compiled models of its own."""
    from opweld.codegen.triton import realise

    power, realiser, launched = realise._power, realise.Realiser, realise.Launched

    def of_elements(self: Any, nest: Any) -> Any:
        count = self._expected.product(axis.extent for axis in nest.axes)
        return launched((min(ELEMENTS, power(max(32, count))),), 4)

    def of_rows(self: Any, rows: Any, columns: Any) -> Any:
        (_, width), count = of_card(self, rows, columns).block, self._expected.product(rows)
        return launched((max(1, min(power(count), ELEMENTS // width)), width), 4)

    def of_product(self: Any, shape: Any, sizes: tuple[int, int, int, int], precision: str) -> Any:
        _, m, n, k = sizes
        bounds = ((m, ROWS), (n, COLUMNS), (k, DEPTH))
        return launched(tuple(max(16, min(most, power(size))) for size, most in bounds), 4, 3)

    of_card = realiser._of_rows
    replaced = {"_of_elements": of_elements, "_of_rows": of_rows, "_of_wide_product": of_product}
    before = {name: getattr(realiser, name) for name in replaced}
    try:
        for name, method in replaced.items():
            setattr(realiser, name, method)
        yield
    finally:
        for name, method in before.items():
            setattr(realiser, name, method)

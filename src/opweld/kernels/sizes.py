"""Sizes of tiles and grids."""

from __future__ import annotations


def ceil_div(size: int, part: int) -> int:
    """How many parts cover the size."""
    return -(-size // part)


def power_of_2(size: int) -> int:
    """The least power of 2 that is not below the size, which is at least 1."""
    return 1 << (size - 1).bit_length()

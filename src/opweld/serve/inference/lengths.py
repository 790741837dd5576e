"""The length that rows of a run have whose calls have unequal ones."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

STEP: Final = 8
"""What is padded at all is padded to a multiple of this: each pair of rows and length is a plan of its own, which takes
about a millisecond to make, and 256 of them are kept."""


def padded(longest: int) -> int:
    """The length of all rows where some are shorter than the longest."""
    return -(-longest // STEP) * STEP


def common(lengths: Collection[int]) -> int:
    """The length of all rows: theirs where they are equal."""
    longest = max(lengths)
    return longest if min(lengths) == longest else padded(longest)

"""Parts are the same rows, and their batches too, whatever blocks a dataset is cut into."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from opweld.ray.packages import package
from opweld.ray.parts import Piece, Sized, batches_of, parts_of

pa = package("pyarrow")

SIZES = st.lists(st.integers(0, 7), max_size=8)


def blocks_of(sizes: Sequence[int]) -> list[Any]:
    ends = np.cumsum([0, *sizes])
    return [pa.table({"id": np.arange(a, b)}) for a, b in pairwise(ends)]


@given(SIZES, st.integers(1, 9), st.integers(1, 5))
def test_every_row_is_in_one_part_and_one_batch_in_order(sizes: list[int], rows: int, batch: int) -> None:
    blocks = blocks_of(sizes)
    # A block stands for its reference.
    sized = [Sized(Piece(block, 0, block.num_rows), 1) for block in blocks]
    at, parts = 0, list(parts_of(sized, rows))
    for number, part in enumerate(parts):
        assert part.number == number
        assert part.rows == rows or number == len(parts) - 1
        cuts = [(piece.start, piece.stop) for piece in part.pieces]
        made = [b["id"].tolist() for b in batches_of([piece.block for piece in part.pieces], cuts, batch)]
        ids = list(range(at, at + part.rows))
        assert made == [ids[start : start + batch] for start in range(0, len(ids), batch)]
        at += part.rows
    assert at == sum(sizes)


def test_rows_of_different_shapes_in_two_blocks_make_one_batch() -> None:
    blocks = [pa.table({"x": [[1.0], [2.0]]}), pa.table({"x": [[3.0, 4.0]]})]
    (batch,) = batches_of(blocks, [(0, 2), (0, 1)], 8)
    assert [row.tolist() for row in batch["x"]] == [[1.0], [2.0], [3.0, 4.0]]

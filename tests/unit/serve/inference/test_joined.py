"""Calls as rows of one run, and back."""

from __future__ import annotations

import numpy as np
import pytest

from opweld.errors import RunError
from opweld.serve.inference.joined import Rows

PADDED = Rows(8, {"x": 1}, {"x": -1}, {0: 2})


def test_rows_below_each_other() -> None:
    rows = Rows(8)
    calls = [{"x": np.full((count, 2), count), "y": np.full((count,), -count)} for count in (1, 3)]
    joined = rows.join(calls)
    assert joined["x"][:, 0].tolist() == [1, 3, 3, 3] and joined["y"].tolist() == [-1, -3, -3, -3]
    first, second = rows.split([joined["x"]], [(1, 1), (3, 1)])
    assert first[0].tolist() == [[1, 1]] and second[0].shape == (3, 2)


def test_padding_is_written_behind_and_cut_back() -> None:
    calls = [{"x": np.ones((1, 2), np.int32)}, {"x": np.ones((2, 3), np.int32)}]
    joined = PADDED.join(calls)["x"]
    assert joined.tolist() == [[1] * 2 + [-1] * 6, [1] * 3 + [-1] * 5, [1] * 3 + [-1] * 5] and joined.dtype == np.int32
    output = np.arange(3 * 5 * 8).reshape(3, 5, 8)
    first, second = PADDED.split([output], [(1, 2), (2, 3)])
    assert first[0].tolist() == output[:1, :, :2].tolist() and first[0].flags.c_contiguous
    assert second[0].tolist() == output[1:, :, :3].tolist()


def test_outputs_of_other_rows_are_not_split() -> None:
    for output in (np.zeros((5, 2)), np.zeros(())):
        with pytest.raises(RunError, match="output 1 of a run of 4 rows has the shape"):
            Rows(8).split([np.zeros((4, 2)), output], [(1, 1), (3, 1)])


def test_kinds() -> None:
    def kind(rows: Rows, *shape: int, other: int = 0) -> object:
        return rows.kind({"x": np.zeros(shape), "y": np.zeros((other or shape[0],))})

    plain = Rows(8)
    assert kind(plain, 1, 3) == kind(plain, 1, 3) and plain.kind({"x": np.zeros((4, 3))})[1:] == (4, 1)
    assert kind(plain, 1, 3)[0] == kind(plain, 2, 3)[0] != kind(plain, 1, 4)[0]  # pyright: ignore[reportIndexIssue]
    for shape, other in (((2, 3), 3), ((0, 3), 0)):
        assert kind(plain, *shape, other=other)[0] is None  # pyright: ignore[reportIndexIssue]
    assert PADDED.kind({"x": np.zeros((2, 7))})[1:] == (2, 7)
    assert PADDED.kind({"x": np.zeros((2, 7))})[0] == PADDED.kind({"x": np.zeros((1, 9))})[0]

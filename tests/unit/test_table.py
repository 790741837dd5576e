"""Tables and text that are to fit a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opweld.table import Column, cells_of, fit, of_names, of_words, shortened, wrapped

COLUMNS = (of_names("node", least=8), Column("ms"), Column("p90", 2), of_words("bound", 1))
ROWS = (("/model/layer.0/attention/MatMul", "1.53e-06", "12.5", "memory"), ("short", "2", "3", "latency"))


def test_a_table_without_a_width_is_as_wide_as_it_is() -> None:
    fitted = fit(COLUMNS, ROWS, None)
    assert (fitted.columns, fitted.rows, fitted.left_out) == (COLUMNS, ROWS, ())
    assert fitted.lines()[1:3] == [
        "-------------------------------  --------  ----  -------",
        "/model/layer.0/attention/MatMul  1.53e-06  12.5  memory",
    ]


def test_names_are_shortened_before_a_column_goes() -> None:
    fitted = fit(COLUMNS, ROWS, 45)
    assert fitted.left_out == ()
    assert max(map(len, fitted.lines())) == 45
    assert [row[0] for row in fitted.rows] == ["/model…ention/MatMul", "short"]


def test_columns_go_by_rank_and_what_they_free_goes_to_names() -> None:
    assert fit(COLUMNS, ROWS, 31).left_out == ("p90",)
    fitted = fit(COLUMNS, ROWS, 26)
    assert fitted.left_out == ("p90", "bound")
    assert fitted.rows[0] == ("/mode…ion/MatMul", "1.53e-06")


def test_where_nothing_may_go_names_become_shorter_than_they_should() -> None:
    fitted = fit(COLUMNS, ROWS, 14)
    assert fitted.rows[0] == ("/…ul", "1.53e-06")


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6),
    st.integers(20, 100),
    st.data(),
)
def test_numbers_stay_whole_and_lines_fit(kinds: list[tuple[int, bool]], room: int, data: st.DataObject) -> None:
    columns = [Column(f"c{i}", max(rank, i > 0), 6 * named, left=named) for i, (rank, named) in enumerate(kinds)]
    rows = [
        [data.draw(st.text("abc/", max_size=40 if named else 12), label="cell") for _, named in kinds] for _ in range(3)
    ]
    fitted = fit(columns, rows, room)
    assert all(len(line) <= room for line in fitted.lines())
    titles = [column.title for column in fitted.columns]
    assert sorted([*titles, *fitted.left_out]) == [column.title for column in columns]
    for column, cells in zip(fitted.columns, zip(*fitted.rows, strict=True), strict=True):
        own = [row[[c.title for c in columns].index(column.title)] for row in rows]
        for cell, before in zip(cells, own, strict=True):
            assert cell == before or (column.least and "…" in cell)


@pytest.mark.parametrize("room", [3, 5, 8, 11])
def test_letters_that_take_two_characters_are_counted_so(room: int) -> None:
    text = "层/注意力/乘法a"
    assert cells_of(text) == 15
    assert cells_of(shortened(text, room)) in (room - 2, room - 1, room)
    assert cells_of("e\u0301") == 1


def test_lines_are_broken_between_words_and_go_on_below_their_last_column() -> None:
    line = "  fuse.chain  12 of 30  computed inside the user"
    assert wrapped(line, 40) == ["  fuse.chain  12 of 30  computed inside", "                        the user"]
    assert wrapped("a sentence of words", 12) == ["a sentence", "  of words"]
    assert wrapped("at /a/name/that/is/long (users = 2)", 16) == ["at", "  /a/name/that/is/long", "  (users = 2)"]
    assert wrapped(line, None) == [line]

"""Regions as text, and back."""

from __future__ import annotations

import pytest

from opweld.errors import OpweldError
from opweld.fuse.text import parse_regions, print_regions
from opweld.fuse.verify import verify_regions
from tests.unit.tile.pipeline import compile_text
from tests.unit.tile.programs import PROGRAMS, dense, symbols


@pytest.mark.parametrize("level", ["none", "all"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_regions_come_back_from_their_text(name: str, level: str) -> None:
    text = print_regions(compile_text(PROGRAMS[name], level=level).regions)
    again = parse_regions(text)
    verify_regions(again)
    assert print_regions(again) == text


def test_sizes_may_be_symbols() -> None:
    text = print_regions(compile_text(dense("N", 7, 33, symbols(N="0 of x"))).regions)
    assert "tensor result f32[i0: N, i1: 33]" in text and print_regions(parse_regions(text)) == text


def test_a_block_says_what_its_members_share() -> None:
    text = print_regions(compile_text(PROGRAMS["attention"]).regions)
    region = text[text.index("region result") :]
    assert "  block row 2\n  member contraction\n" in region
    assert "    space rows (2, 3, 7) columns (7)\n    at top (row 0, row 1, row 2)\n" in region
    assert "    same shares\n" in region and "    rows i0: 0, i2: 1, i1: 2\n" in region


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("region result", "regions result", "expected 'region', found 'regions'"),
        ("member contraction", "member product", "expected one of map, contraction, window, rowwise, found 'product'"),
        ("  member contraction", "  extern", "expected members, since 'result' comes from no extern, found 'extern'"),
        ("place [i0, i1]", "place [i0, i7]", "expected a size or an index that is known here, found 'i7'"),
        ("member contraction\n", "member contraction same b\n", "expected a tensor of the program, found 'b'"),
    ],
)
def test_what_is_not_understood_is_told_with_its_line(old: str, new: str, expected: str) -> None:
    text = print_regions(compile_text(PROGRAMS["dense"]).regions)
    head, _, tail = text.rpartition(old)
    with pytest.raises(OpweldError, match=r"regions, line [0-9]+: ") as raised:
        parse_regions(head + new + tail)
    assert expected in str(raised.value)


def test_nested_too_deeply() -> None:
    text = print_regions(compile_text(PROGRAMS["transpose"]).regions)
    deep = text.replace("= add(", "= " + "exp(" * 100_000, 1)
    with pytest.raises(OpweldError, match="regions: an expression is nested too deeply"):
        parse_regions(deep)

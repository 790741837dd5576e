"""Placed regions as text, and back: the same text, and the same kernels."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opweld.errors import OpweldError
from opweld.ledger import Ledger
from opweld.place.placed import Placed
from opweld.place.text import parse_placed, print_placed
from opweld.place.verify import verify_placed
from opweld.schedule.expected import expected_sizes
from opweld.tensor.label import labels
from opweld.tensor.parse import parse_program
from opweld.tensor.simplify import simplify_program
from opweld.tile.kernels import realise, schedule
from opweld.tile.text import print_kernel
from tests.unit.tile.pipeline import TARGET, compile_text, realised, with_data
from tests.unit.tile.programs import PROGRAMS, convolution, symbols

SYMBOLIC = {"symbolic": convolution(3, 10, "H", "W", 1, "N", symbols(N="0 of x", H="2 of x", W="3 of x"))}


def placed_by_stage(text: str, level: str) -> dict[str, Placed]:
    """What each stage that places values makes of a program."""
    found: dict[str, Placed] = {}

    def kept(name: str, run: Any, /, *args: Any, **kwargs: Any) -> Any:
        made = run(*args, **kwargs)
        if isinstance(made, Placed):
            found[name] = made
        return made

    program = simplify_program(with_data(parse_program(text)))
    realised(program, TARGET, Ledger(level=level), stage=kept)
    return found


def data_of(placed: Placed) -> dict[str, Any]:
    return {name: constant.read() for name, constant in placed.constants.items()}


def kernels_of(placed: Placed) -> list[str]:
    """The text of each kernel."""
    ledger, expected = Ledger(), expected_sizes(placed.program)
    ledger.variant(placed.program.name, labels(placed.program))
    plans = schedule(placed, expected, TARGET, ledger)
    return [print_kernel(item.kernel) for item in realise(placed, plans, expected, TARGET, ledger)[1]]


@pytest.mark.parametrize("level", ["none", "all"])
@pytest.mark.parametrize("name", [*PROGRAMS, *SYMBOLIC])
def test_placed_regions_come_back_from_their_text(name: str, level: str) -> None:
    found = placed_by_stage((PROGRAMS | SYMBOLIC)[name], level)
    assert list(found) == ["place", "pack", "split_k", "reuse"]
    for placed in found.values():
        verify_placed(placed)
        text = print_placed(placed)
        again = parse_placed(text, data_of(placed))
        verify_placed(again)
        assert print_placed(again) == text


@pytest.mark.parametrize("name", [*PROGRAMS, *SYMBOLIC])
def test_kernels_are_the_same_after_text(name: str) -> None:
    placed = compile_text((PROGRAMS | SYMBOLIC)[name]).placed
    assert kernels_of(parse_placed(print_placed(placed), data_of(placed))) == kernels_of(placed)


@pytest.mark.parametrize("name", ["in", "region", "extern", "same", "value", "one", "at", 'quo"te', "a, b", "i0", "ü"])
def test_any_name_comes_back(name: str) -> None:
    text = PROGRAMS["residual"].replace("tensor b ", f"tensor {json.dumps(name)} ")
    placed = compile_text(text.replace("b[", f"{json.dumps(name)}[")).placed
    assert name in placed.storages
    again = parse_placed(print_placed(placed))
    assert print_placed(again) == print_placed(placed) and list(again.storages) == list(placed.storages)


def test_storage_reads_like_an_address() -> None:
    text = print_placed(compile_text(PROGRAMS["concatenation"]).placed)
    assert "value right f32[225] in joined at 105 of i1 by 15, i2 by 5, i3 by 1\n" in text
    assert "value w0_packed0 f32[24] of i0 % 8 by 1, i1 by 8, i3 by 24, i2 by 24, i0 // 8 by 24\n" in text
    text = print_placed(compile_text(PROGRAMS["convolution"]).placed)
    halo = "halo (0, 0), (0, 0), (1, 1), (1, 1) fill 0.0"
    assert f"value relu f32[630] of i1 by 63, i2 + 1 by 9, i3 + 1 by 1 {halo}\n" in text


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("of i0 by 33", "of r0 by 33", "expected an axis (i0, i1, ..), found 'r0'"),
        ("lanes i1 vectors", "lanes i9 vectors", "expected an axis of this tensor, found 'i9'"),
        ("along w[r0, i1]", "along 3.0", "expected a load, found '3.0'"),
        ("value b", "storage b", "expected 'value', found 'storage'"),
    ],
)
def test_what_is_not_understood_is_told_with_its_line(old: str, new: str, expected: str) -> None:
    text = print_placed(compile_text(PROGRAMS["dense"]).placed)
    assert old in text
    with pytest.raises(OpweldError, match=r"placed regions, line [0-9]+: ") as raised:
        parse_placed(text.replace(old, new))
    assert expected in str(raised.value)

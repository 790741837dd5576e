"""Constants that are next to nothing, as sums use them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opweld.ledger import Ledger
from opweld.place.flush import tiny, without_tiny
from opweld.tensor.parse import parse_program
from tests.unit.tile import programs
from tests.unit.tile.pipeline import Compiled, compile_with, with_data

Array = np.ndarray[Any, Any]


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("values", "count"),
    [
        ((1.0, 1e-40, -1e-40, 1e-35, 0.0, -0.0, 1e-29), 3),
        ((1e-30, 1e-40), 0),  # 1e-40 is no less beside 1e-30 than 1e-10 beside 1
        ((1e30, 1e-29, 1e-32), 1),  # 1e-29 is next to nothing beside 1e30, and not beside 1
        ((np.inf, 1e-40), 0),
        ((np.nan, 1e-40), 0),
        ((0.0, 0.0), 0),
        ((), 0),
    ],
)
def test_what_is_next_to_nothing(values: tuple[float, ...], count: int) -> None:
    array = floats(*values)
    assert tiny(array) == count
    made = without_tiny(array)
    assert tiny(made) == 0
    assert int((made != array).sum()) - int(np.isnan(array).sum()) == count
    assert not made[made != array][~np.isnan(array[made != array])].any()


def test_other_elements_keep_their_bits() -> None:
    array = np.random.default_rng(0).standard_normal((7, 70_000), np.float32)
    array[3, ::5], array[2, 7] = 1e-41, -0.0
    made = without_tiny(array.T)
    kept = np.float32(1e-41) != array.T
    assert made.shape == (70_000, 7)
    assert made[kept].tobytes() == array.T[kept].tobytes()
    assert not made[~kept].any()


def of(name: str, disable: tuple[str, ...] = (), level: str = "all") -> Compiled:
    """A program of which a few elements of each constant are tiny."""
    program = with_data(parse_program(programs.PROGRAMS[name]))

    def dying(array: Array) -> Array:
        made = np.array(array)
        made.reshape(-1)[::5] = 1e-40
        return made

    constants = tuple(replace(c, read=lambda c=c: dying(c.read())) for c in program.constants)
    return compile_with(replace(program, constants=constants), Ledger(disable, level=level))


@pytest.mark.parametrize("name", ["dense", "convolution", "separable"])
def test_products_and_what_is_added_have_none(name: str) -> None:
    compiled = of(name)
    _, images = compiled.assembled
    assert images
    assert not any(tiny(image) for image in images)
    found = [decision for decision in compiled.ledger if decision.rule == "place.flush"]
    assert found and all(decision.fired and "next to nothing" in decision.reason for decision in found)


@pytest.mark.parametrize(("disable", "level"), [(("place.flush",), "all"), ((), "basic")])
def test_they_are_kept_when_it_is_disabled_and_at_low_levels(disable: tuple[str, ...], level: str) -> None:
    _, images = of("dense", disable, level).assembled
    assert any(tiny(image) for image in images)


@pytest.mark.parametrize(
    "body",
    [
        "select(gt(w[i1], x[i0, i1]), 1.0, 0.0)",
        "select(ge(sum<r0>(mul(x[i0, r0], z[r0, i1])), w[i1]), 1.0, 0.0)",
        "div(sum<r0>(mul(x[i0, r0], z[r0, i1])), w[i1])",
    ],
)
def test_what_is_told_from_zero_is_kept(body: str) -> None:
    """A comparison and a division tell 1e-40 from 0, wherever they are computed."""
    text = f"""program told
input x f32[4, 8]
input z f32[8, 8]
constant w f32[8]
tensor y f32[i0: 4, i1: 8] from "Node"
  {"over r0: 8" if "r0" in body else ""}
  = {body}
output y = y
"""
    program, data = parse_program(text), floats(1, 1e-40, 2, 3, 1e-41, 4, 5, 6)
    constants = tuple(replace(c, read=lambda: data) for c in program.constants)
    compiled = compile_with(replace(program, constants=constants), Ledger())
    assert not [decision for decision in compiled.ledger if decision.rule == "place.flush"]

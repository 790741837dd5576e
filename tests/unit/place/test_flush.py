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
from tests.unit.tile.pipeline import Compiled, compile_with, run, with_data

Array = np.ndarray[Any, Any]


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("values", "count"),
    [
        ((1.0, 1e-40, -1e-40, 1e-37, 0.0, -0.0, 1e-35), 3),
        ((1e-30, 1e-40), 0),  # 1e-40 is no less beside 1e-30 than 1e-10 beside 1
        ((1e-25, 1e-42, 1e-44), 1),  # 1e-42 is no less beside 1e-25 than 1e-17 beside 1
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
        "select(gt(mul(sum<r0>(mul(x[i0, r0], z[r0, i1])), w[i1]), 0.0), 1.0, 0.0)",
        "div(sum<r0>(mul(x[i0, r0], z[r0, i1])), mul(w[i1], z[i0, i1]))",
        "log(mul(sum<r0>(mul(x[i0, r0], z[r0, i1])), w[i1]))",
        "div(z[i0, i1], sum<r0>(mul(x[i0, r0], w[8*r0 + i1])))",
    ],
)
def test_what_is_told_from_zero_is_kept(body: str) -> None:
    """A comparison, a division and a logarithm tell 1e-40 from 0, whatever lies between."""
    text = f"""program told
input x f32[4, 8]
input z f32[8, 8]
constant w f32[{64 if "8*r0" in body else 8}]
tensor y f32[i0: 4, i1: 8] from "Node"
  {"over r0: 8" if "r0" in body else ""}
  = {body}
output y = y
"""
    program, data = parse_program(text), floats(1, 1e-40, 2, 3, 1e-41, 4, 5, 6)
    constants = tuple(replace(c, read=lambda c=c: np.resize(data, c.shape)) for c in program.constants)
    compiled = compile_with(replace(program, constants=constants), Ledger())
    assert not [decision for decision in compiled.ledger if decision.rule == "place.flush"]


def test_who_divides_by_a_constant_reads_it_as_it_is() -> None:
    """A product and a window pack the same constant in the same way, and only the product has 0 for 1e-40."""
    text = """program shared
input u f32[7, 4, 3]
input x f32[7, 12, 24]
constant w f32[24, 3]
tensor a f32[i0: 7, i1: 4, i2: 6] from "MatMul"
  over r0: 3
  = sum<r0>(mul(u[i0, i1, r0], w[6*i1 + i2, r0]))
tensor b f32[i0: 7, i1: 10, i2: 24] from "Window"
  over r0: 3
  = sum<r0>(div(x[i0, i1 + r0, i2], w[i2, r0]))
output a = a
output b = b
"""
    program = parse_program(text)
    data = np.random.default_rng(0).uniform(1, 2, (24, 3)).astype(np.float32)
    data[5] = 1e-37
    compiled = compile_with(replace(program, constants=(replace(program.constants[0], read=lambda: data),)), Ledger())
    feeds = {"u": np.ones((7, 4, 3), np.float32), "x": np.full((7, 12, 24), 1e-20, np.float32)}
    assert [d.taken for d in compiled.ledger if d.rule == "place.flush"] == ["zero"]
    assert np.isfinite(run(compiled, feeds)["b"]).all()

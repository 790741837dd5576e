"""Denormal weights: larger ones are multiplied, and answers stay what they were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opweld.fuse.denormals import CHUNK, FACTOR, RULE, denormals, scale_denormals
from opweld.ledger import Decision, Ledger
from opweld.target import Target
from opweld.tensor.interpret import interpret
from opweld.tensor.parse import parse_program
from opweld.tensor.program import TensorProgram
from opweld.tensor.verify import verify
from tests.unit.tile import programs
from tests.unit.tile.pipeline import check_compiled, compile_with, with_data

Array = np.ndarray[Any, Any]

TARGET = Target.of("x86-64-v3")
LEAST = np.finfo(np.float32).smallest_normal


def scattered(shape: tuple[int, ...], part: float = 0.3, seed: int = 0) -> Array:
    """Weights of which a part is denormal, of every size."""
    random = np.random.default_rng(seed)
    found = random.standard_normal(shape)
    small = random.standard_normal(shape) * 10.0 ** random.uniform(-45, -38, shape)
    return np.where(random.random(shape) < part, small, found).astype(np.float32)


def dying(shape: tuple[int, ...], axis: int, seed: int = 0) -> Array:
    """Weights of which every third channel of an axis has died."""
    held = np.moveaxis(scattered(shape, 0.01, seed), axis, 0).copy()
    held[::3] *= np.float32(1e-40)
    return np.moveaxis(held, 0, axis).copy()


def program_of(text: str, weights: Mapping[str, Array]) -> TensorProgram:
    program = with_data(parse_program(text))
    constants = tuple(
        replace(constant, read=lambda data=weights[constant.name]: data) if constant.name in weights else constant
        for constant in program.constants
    )
    return replace(program, constants=constants)


def decided(program: TensorProgram, ledger: Ledger | None = None) -> tuple[TensorProgram, list[Decision]]:
    ledger = Ledger() if ledger is None else ledger
    found = scale_denormals(program, ledger)
    verify(found)
    return found, [decision for decision in ledger if decision.rule == RULE]


def feeds_of(program: TensorProgram, seed: int = 1) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        value.name: random.standard_normal([dim.constant or 3 for dim in value.shape]).astype(np.float32)
        for value in program.inputs
    }


def has_denormals(program: TensorProgram, name: str) -> bool:
    (held,) = (constant.read() for constant in program.constants if constant.name == name)
    return bool(((held != 0) & (abs(held) < LEAST)).any())


def test_weights_are_larger_and_sums_the_same_to_the_bit() -> None:
    program = program_of(programs.dense(5, 12, 7), {"w": scattered((12, 7))})
    found, (decision,) = decided(program)
    assert decision.taken == "scaled" and has_denormals(program, "w") and not has_denormals(found, "w_scaled")
    assert [constant.name for constant in found.constants] == ["b", "w_scaled"]
    for seed in range(5):
        feeds = feeds_of(program, seed)
        np.testing.assert_array_equal(interpret(found, feeds)["y"], interpret(program, feeds)["y"])


def test_results_that_are_denormal_stay() -> None:
    """Of a column whose weights are all tiny: what a scale of later brings back."""
    weights = scattered((12, 7), 0.1)
    weights[:, 3] *= np.float32(1e-41)
    program = program_of(programs.dense(5, 12, 7).replace("y = result", "y = product"), {"w": weights})
    found, _ = decided(program)
    feeds = feeds_of(program)
    before, after = (interpret(p, feeds)["y"] for p in (program, found))
    assert (abs(after[:, 3]) > 0).all() and (abs(after[:, 3]) < LEAST).all()
    exact = interpret(program, feeds, float64=True)["y"]
    # Half of the least denormal number for the rounding of the result; 12 of them for those of the sum before.
    np.testing.assert_allclose(after[:, 3], exact[:, 3], rtol=0, atol=0.5 * 2.0**-149)
    np.testing.assert_allclose(before[:, 3], exact[:, 3], rtol=0, atol=12 * 2.0**-149)


def test_what_dead_channels_compute_is_scaled_too() -> None:
    """By whoever computes it, in registers."""
    weights = {"w1": dying((6, 1, 3, 3), 0), "w2": dying((4, 6, 1, 1), 1)}
    program = program_of(programs.separable(4, 6, 5, 7), weights)
    found, decisions = decided(program)
    assert [decision.taken for decision in decisions] == ["scaled", "scaled"]
    assert "clipped_scaled" in found.signatures
    (scales,) = (constant.read() for constant in found.constants if constant.name == "scales_of_dead_channels")
    assert scales.tolist() == [FACTOR, 1, 1, FACTOR, 1, 1]
    feeds = feeds_of(program)
    np.testing.assert_array_equal(interpret(found, feeds)["y"], interpret(program, feeds)["y"])
    made = compile_with(program, Ledger(), TARGET)
    members = [member for region in made.regions.regions for member in region.members]
    assert [member.tensors[-1].name for member in members] == ["wide", "clipped_scaled", "result"]
    check_compiled(program, made, {}, feeds=feeds)


def test_steps_of_recurrences() -> None:
    text = programs.lstm(4, 2, 3, 5)
    names = [constant.name for constant in parse_program(text).constants]
    shapes = {constant.name: constant.shape for constant in parse_program(text).constants}
    weights = {name: scattered(shapes[name]) for name in names if len(shapes[name]) > 1}
    program = program_of(text, weights)
    found, decisions = decided(program)
    assert decisions and {decision.taken for decision in decisions} == {"scaled"}
    feeds = feeds_of(program)
    for name, wanted in interpret(program, feeds).items():
        np.testing.assert_array_equal(interpret(found, feeds)[name], wanted)


def test_infinities_and_nan_stay() -> None:
    program = program_of(programs.dense(4, 6, 7), {"w": dying((6, 7), 0)})
    found, _ = decided(program)
    x = feeds_of(program)["x"]
    x[0, 0], x[1, 1], x[2, 2], x[3, 3] = np.inf, -np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        before, after = (interpret(p, {"x": x})["y"] for p in (program, found))
    assert np.isinf(before).any() and np.isnan(before).any()
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("largest", [1e25, np.inf, np.nan])
def test_weights_that_cannot_be_scaled_stay(largest: float) -> None:
    weights = scattered((12, 7))
    weights[3, 3] = largest
    program = program_of(programs.dense(5, 12, 7), {"w": weights})
    found, (decision,) = decided(program)
    assert found is program and decision.taken == "as they are" and decision.failed


def test_it_is_a_decision_that_can_be_undone() -> None:
    program = program_of(programs.dense(5, 12, 7), {"w": scattered((12, 7))})
    found, (decision,) = decided(program, Ledger(disable=(RULE,)))
    assert found is program and decision.taken == "as they are"


def test_nothing_is_decided_about_other_weights() -> None:
    weights = np.array([[1, 0, -0.0, LEAST, -2, 3, 4]] * 12, np.float32)
    program = program_of(programs.dense(5, 12, 7), {"w": weights})
    found, decisions = decided(program)
    assert found is program and not decisions


def test_denormal_numbers_are_counted_wherever_they_lie() -> None:
    weights = np.ones(2 * CHUNK + 3, np.float32)
    assert denormals(weights) == (0, 0)
    weights[[0, CHUNK - 1, CHUNK, -1]] = [1e-45, -1e-39, 0, 1e-40]
    weights[5] = -7
    assert denormals(weights) == (3, 7)
    assert denormals(np.zeros((0, 3), np.float32)) == (0, 0)

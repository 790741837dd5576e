"""ONNX's own tests on AArch64: every third of those whose feeds and answers are tensors that NumPy knows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from benchmarks.onnx_cases import Case, cases
from opweld.errors import OpweldError
from tests.aarch64.emulated import Array, Emulator, RunError, compiled, names
from tests.onnx_backend.test_suite import excluded

pytestmark = pytest.mark.slow

SHARDS = 8
LEAST = 50
"""Tests of a shard that were run: not to compare nothing."""


@pytest.fixture(scope="module")
def chosen() -> Mapping[str, Case]:
    """Tests by name: small ones, which pass here."""
    known, kept = cases(), excluded()
    return {name: known[name] for name in sorted(known)[::3] if name not in kept and known[name].found.kind == "node"}


@pytest.mark.parametrize("shard", range(SHARDS))
def test_answers_as_expected(shard: int, chosen: Mapping[str, Case], emulator: Emulator, tmp_path: Path) -> None:
    problems: list[str] = []
    ran = 0
    for name in sorted(chosen)[shard::SHARDS]:
        case = chosen[name]
        if not all(_plain(value) for side in case.data_sets() for values in side for value in values):
            continue
        folder = tmp_path / name
        try:
            made = compiled(case.model, folder)
            _check(case, made, emulator, tmp_path)
        except (OpweldError, RunError, AssertionError) as error:
            problems.append(f"{name}: {' '.join(str(error).split())[:300]}")
        ran += 1
    assert not problems, "\n".join(problems)
    assert ran >= LEAST


def _plain(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.isbuiltin == 1 and value.dtype.kind in "fiub"


def _check(case: Case, made: Path, emulator: Emulator, place: Path) -> None:
    stored = {tensor.name for tensor in case.model.graph.initializer}
    fed = [value.name for value in case.model.graph.input if value.name not in stored]
    for number, (values, expected) in enumerate(case.data_sets()):
        given: dict[str, Array] = dict(zip(fed, values, strict=False))
        feeds = {name: given[name] for name in names(made) if name in given}
        found = emulator.run(made, feeds, place / f"{case.name} {number}")
        assert len(found) == len(expected)
        for output, right in zip(found, expected, strict=True):
            assert (output.dtype, output.shape) == (right.dtype, right.shape)
            relative, absolute = case.tolerances
            np.testing.assert_allclose(
                output.astype(np.float64), right.astype(np.float64), rtol=relative, atol=absolute, equal_nan=True
            )

"""ONNX's own tests, compiled and run. What does not pass is excluded with its reason, and must not pass.

exclusions.txt is what `python -m benchmarks.onnx_suite --exclusions` prints: reasons after `#`, names below.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks import onnx_suite
from benchmarks.onnx_cases import Case
from benchmarks.onnx_cases import cases as suite_cases
from opweld.errors import OpweldError

pytestmark = pytest.mark.slow

EXCLUSIONS = Path(__file__).parent / "exclusions.txt"

LEAST_PASSED = 1965
"""Of 2033. An empty list of tests, or an exclusion of everything, is no success."""


def excluded() -> dict[str, str]:
    """The reason for each test that does not pass."""
    reasons: dict[str, str] = {}
    reason = ""
    for line in EXCLUSIONS.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            reason = line.removeprefix("#").strip()
        elif line:
            assert reason, f"{line}: no reason stands above it"
            assert line not in reasons, f"{line} is excluded twice"
            reasons[line] = reason
    return reasons


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    """The suite's tests by name."""
    return suite_cases()


def test_the_exclusions_are_tests_of_the_suite(cases: dict[str, Case]) -> None:
    assert not set(excluded()) - set(cases)
    assert len(cases) - len(excluded()) >= LEAST_PASSED


@pytest.mark.parametrize("shard", range(32))
def test_passes_unless_excluded(shard: int, cases: dict[str, Case]) -> None:
    reasons = excluded()
    problems: list[str] = []
    for name in sorted(cases)[shard::32]:
        try:
            onnx_suite.check(cases[name])
        except (OpweldError, AssertionError) as error:
            if name not in reasons:
                problems.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
            continue
        if name in reasons:
            problems.append(f"{name} passes, but is excluded: {reasons[name]}")
    assert not problems, "\n".join(problems)


def test_the_backend_is_one() -> None:
    import numpy as np
    import onnx
    from onnx.backend.base import Backend

    from opweld import backend

    assert issubclass(backend.OpweldBackend, Backend)
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA") and not backend.supports_device("TPU:1")
    x = np.array([[-1.0, 2.0]], np.float32)
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    (y,) = backend.run_node(node, [x])
    np.testing.assert_array_equal(y, [[0.0, 2.0]])
    assert os.environ["OPWELD_CACHE"]

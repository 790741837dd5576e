from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from opweld.verification.compare import compare, relative_error

INF, NAN = math.inf, math.nan


def f32(*values: float) -> Any:
    return np.array(values, np.float32)


def f64(*values: float) -> Any:
    return np.array(values, np.float64)


def test_error_is_a_part_of_the_scale() -> None:
    comparison = compare("y", f32(1, 200.001), f64(1, 200))
    assert comparison.scale == 200
    assert comparison.error == pytest.approx(0.001 / 200, rel=0.02)
    assert comparison.worst == (1,)
    assert comparison.tolerance == 1e-5
    assert comparison.passed


def test_outside_the_tolerance_fails_and_says_where() -> None:
    comparison = compare("y", f32(1, 201), f64(1, 200))
    assert not comparison.passed
    assert "at [1] is 201.0, expected 200.0: error 5.00e-03 of scale, tolerance 1.00e-05" in comparison.problem


def test_the_peers_error_widens_the_tolerance_fourfold() -> None:
    reference, peer = f64(0, 100), f32(0.01, 100)
    assert compare("y", f32(0.03, 100), reference, peer).passed
    assert not compare("y", f32(0.05, 100), reference, peer).passed
    assert compare("y", f32(0.03, 100), reference, peer).peer_error == pytest.approx(1e-4, rel=1e-3)


def test_a_peer_that_is_wholly_wrong_excuses_nothing() -> None:
    assert not compare("y", f32(2), f64(1), f32(NAN)).passed
    assert compare("y", f32(2), f64(1), f32(1, 2)).peer_error is None


@pytest.mark.parametrize(
    ("actual", "reference", "same"),
    [
        (NAN, NAN, True),
        (INF, INF, True),
        (-INF, -INF, True),
        (INF, -INF, False),
        (NAN, 1, False),
        (1, NAN, False),
        (INF, 1e30, False),
        (1e30, INF, False),
        (NAN, INF, False),
        (-0.0, 0.0, True),
    ],
)
def test_nan_and_infinity_must_be_where_the_reference_has_them(actual: float, reference: float, same: bool) -> None:
    comparison = compare("y", f32(actual, 1), f64(reference, 1))
    assert comparison.passed == same
    assert same or math.isinf(comparison.error)


def test_infinity_is_no_scale() -> None:
    assert compare("y", f32(INF, 2), f64(INF, 2)).scale == 2
    assert compare("y", f32(NAN, NAN), f64(NAN, NAN)).scale == 1
    assert compare("y", f32(0), f64(0)).scale == 1


def test_integers_and_booleans_are_equal_or_wrong() -> None:
    assert compare("y", np.array([1, 2]), np.array([1, 2])).passed
    assert not compare("y", np.array([1, 2]), np.array([1, 3]), np.array([1, 2])).passed
    assert not compare("y", np.array([True]), np.array([False])).passed
    big = 2**62
    assert not compare("y", np.array([big]), np.array([big + 1])).passed, "float64 cannot tell these apart"


def test_shapes_must_agree() -> None:
    comparison = compare("y", f32(1, 2), f64(1))
    assert comparison.problem == "shape is [2], expected [1]"
    assert json.loads(json.dumps(comparison.to_json(), allow_nan=False))["error"] == "infinity"


def test_nothing_is_equal_to_nothing() -> None:
    assert compare("y", np.zeros((0, 3), np.float32), np.zeros((0, 3))).error == 0


def test_given_tolerances_replace_the_usual_ones() -> None:
    assert compare("y", f32(1.01), f64(1), rtol=0.02).passed
    assert compare("y", f32(101), f64(100), atol=1).passed
    assert not compare("y", f32(1.0000001), f64(1), rtol=0.0).passed


@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=4), elements=st.floats(width=32)))
def test_everything_equals_itself(values: Any) -> None:
    assert relative_error(values, values.astype(np.float64))[0] == 0.0


@given(
    hnp.arrays(np.float32, (4,), elements=st.floats(-100, 100, width=32)),
    st.integers(0, 3),
    st.floats(0.125, 100, width=32),
)
def test_a_change_is_seen(values: Any, index: int, change: float) -> None:
    changed = values.copy()
    changed[index] += np.float32(change)
    error, worst = relative_error(changed, values.astype(np.float64))
    assert error > 0
    assert worst == (index,)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opweld.errors import AssumptionError, ModelError, UnsupportedError
from opweld.tensor.expr import Reduce, walk
from opweld.tensor.program import Tensor
from tests.unit.ops.one_node import check, integers, make_model, normal, programs_of, run

SUMS = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"]
NORMS = ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"]
AXES: list[list[int] | None] = [[0], [-1], [0, 2], [1], [0, 1, 2], None]


def operands(x: Any, axes: list[int] | None) -> list[Any]:
    return [x] if axes is None else [x, np.array(axes, np.int64)]


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("op_type", SUMS + NORMS)
def test_reduction(op_type: str, axes: list[int] | None, keep: int) -> None:
    for shape in ((3, 4, 5), (1, 1, 1), (2, 1, 13)):
        x = normal(*shape)
        if op_type == "ReduceLogSum":
            x = np.abs(x) + 0.1
        check(op_type, operands(x, axes), constant=(1,), keepdims=keep, tolerance=1e-5)


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean", "ReduceL1"])
def test_reduction_of_integers(op_type: str) -> None:
    def reference(x: Any, _: Any) -> Any:
        if op_type == "ReduceMean":
            total = x.sum(1, keepdims=True)
            return np.where(total < 0, -(-total // 4), total // 4).astype(x.dtype)
        functions: dict[str, Any] = {
            "ReduceSum": np.sum,
            "ReduceMax": np.max,
            "ReduceMin": np.min,
            "ReduceProd": np.prod,
            "ReduceL1": lambda x, **k: np.abs(x).sum(**k),
        }
        return functions[op_type](x, axis=1, keepdims=True).astype(x.dtype)

    for dtype in (np.int32, np.int64):
        x = integers(3, 4, 20, dtype=dtype)
        check(op_type, operands(x, [1]), constant=(1,), reference=reference)


@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMin"])
def test_reduction_of_truths(op_type: str) -> None:
    function = np.any if op_type == "ReduceMax" else np.all
    check(
        op_type,
        operands(normal(3, 5) > 0, [1]),
        constant=(1,),
        reference=lambda x, _: function(x, axis=1, keepdims=True),
    )


def test_no_axes_can_mean_nothing_to_do() -> None:
    check("ReduceSum", [normal(3, 4), np.array([], np.int64)], constant=(1,), noop_with_empty_axes=1)
    check("ReduceSum", [normal(3, 4), np.array([], np.int64)], constant=(1,), noop_with_empty_axes=0)


def test_log_sum_exp_does_not_overflow() -> None:
    x = np.array([[1000, 999], [-np.inf, -np.inf], [np.inf, 0], [np.nan, 0], [-1000, -1001]], np.float32)
    with np.errstate(all="ignore"):
        expected = np.logaddexp.reduce(x.astype(np.float64), axis=1).astype(np.float32)
    check("ReduceLogSumExp", operands(x, [1]), constant=(1,), keepdims=0, reference=lambda *_: expected)


def test_nan_wins() -> None:
    x = np.array([[1, np.nan, 2], [np.inf, 1, -np.inf]], np.float32)
    for op_type in ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean"):
        check(op_type, operands(x, [1]), constant=(1,))


def test_dynamic_reduction() -> None:
    more = [operands(normal(*shape), [1, 2]) for shape in ((1, 1, 1), (2, 7, 3))]
    check(
        "ReduceMean",
        operands(normal(2, 3, 4), [1, 2]),
        constant=(1,),
        dims={0: ("N", "H", "W")},
        more=more,
    )


def test_the_reduction_is_at_the_root_of_its_tensor() -> None:
    (program,) = programs_of(make_model("ReduceMean", operands(normal(3, 4), [1]), constant=(1,)))
    bodies = [item.body for item in program.items if isinstance(item, Tensor)]
    for body in bodies:
        assert isinstance(body, Reduce) or not any(isinstance(node, Reduce) for node in walk(body))


def test_axes_out_of_range_are_refused() -> None:
    with pytest.raises(ModelError, match="axis 5"):
        programs_of(make_model("ReduceSum", operands(normal(3, 4), [5]), constant=(1,)))


def test_large_data_dependent_axes_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="axes"):
        programs_of(make_model("ReduceSum", operands(normal(3, 4), [0]), dims={1: ("K",)}))


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_arg(op_type: str, last: int, keep: int, axis: int) -> None:
    x = integers(3, 5, 4, low=0, high=3).astype(np.float32)
    check(op_type, [x], axis=axis, keepdims=keep, select_last_index=last)
    check(op_type, [integers(7, 5, 2, dtype=np.int32)], axis=axis, keepdims=keep, select_last_index=last)


@pytest.mark.parametrize("keepdims", [0, 1])
def test_axes_that_are_fed(keepdims: int) -> None:
    """A variant for each axis that may come."""
    x = normal(3, 4, 5)
    feeds = [[x, np.array([axis], np.int64)] for axis in range(-3, 3)]
    check("ReduceSum", feeds[0], more=feeds[1:], keepdims=keepdims)
    programs = check("ReduceMean", feeds[0], keepdims=keepdims)
    assert len(programs) == 3, "an axis counted from the end is the same one"
    for axis in (3, -4):
        with pytest.raises(AssumptionError):
            run(programs, {"x0": x, "x1": np.array([axis], np.int64)})


def test_sets_of_axes_that_are_fed() -> None:
    """A variant for each set, in whatever order it is named."""
    x = normal(3, 4, 5, 2)
    feeds = [[x, np.array([i, j], np.int64)] for i in range(-4, 4) for j in range(-4, 4) if (i - j) % 4]
    programs = check("ReduceMax", feeds[0], more=feeds[1:])
    assert len(programs) == 6
    for axes in ((1, 1), (2, -2), (0, 4)):
        with pytest.raises(AssumptionError):
            run(programs, {"x0": x, "x1": np.array(axes, np.int64)})
    assert len(check("ReduceMax", [x, np.array([3, -2, 0, 1], np.int64)])) == 1
    with pytest.raises(ModelError, match="5 axes are given for a value of rank 4"):
        programs_of(make_model("ReduceMax", [x, np.arange(5)]))

from __future__ import annotations

import numpy as np
import pytest

from opweld.errors import AssumptionError, ModelError, OpweldError
from opweld.tensor.dim import Value, atoms_of
from opweld.tensor.expr import dims_of, walk
from opweld.tensor.program import Tensor, TensorProgram
from tests.unit.ops.one_node import Array, check, integers, make_model, normal, programs_of, run


def ints(values: object) -> np.ndarray:
    return np.array(values, np.int64)


def has_run_time_index(program: TensorProgram) -> bool:
    bodies = [item.body for item in program.items if isinstance(item, Tensor)]
    return any(isinstance(a, Value) for node in walk(*bodies) for dim in dims_of(node) for a in atoms_of(dim))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_gather(axis: int, dtype: type[np.generic]) -> None:
    indices = integers(2, 3, low=-3, high=3, dtype=dtype)
    check("Gather", [normal(3, 4, 5), indices], dims={0: [3, 4, 5], 1: ["a", 3]}, axis=axis)


@pytest.mark.parametrize("indices", [2, -1, [0], [0, 1, 2], [-3, -2, -1], [2, 0], [[0, 2], [1, 3]], [0, -1], []])
def test_gather_by_known_indices(indices: object) -> None:
    check("Gather", [normal(2, 4), ints(indices)], constant=(1,), dims={0: ["n", 4]}, axis=1)


@pytest.mark.parametrize(
    ("indices", "affine"), [(1, True), ([1, 3], True), ([[0, 2], [1, 3]], True), ([0, 1, 3], False)]
)
def test_evenly_spaced_indices_are_index_arithmetic(indices: object, affine: bool) -> None:
    (program,) = programs_of(make_model("Gather", [normal(4), ints(indices)], constant=(1,)))
    assert has_run_time_index(program) is not affine


def test_gather_out_of_range() -> None:
    with pytest.raises(ModelError, match="out of range"):
        programs_of(make_model("Gather", [normal(4), ints([4])], constant=(1,)))
    programs = programs_of(make_model("Gather", [normal(4), ints([0] * 9)]))
    with pytest.raises(OpweldError):
        run(programs, {"x0": normal(4), "x1": ints([0, 1, 2, 3, 4, 0, 0, 0, 0])})


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements(axis: int) -> None:
    check("GatherElements", [normal(3, 4), integers(3, 4, low=-3, high=3)], axis=axis)
    part = integers(2, 2, low=-3, high=3)
    sliced = (slice(None, 2), slice(None)) if axis else (slice(None), slice(None, 2))
    check(
        "GatherElements",
        [normal(3, 4), part],
        axis=axis,
        reference=lambda x, i: np.take_along_axis(x[sliced], i % x.shape[axis], axis),
    )


@pytest.mark.parametrize(("indices", "batch"), [((2, 2), 0), ((2, 1), 0), ((5, 2, 3), 0), ((2, 4, 1), 1), ((2, 2), 1)])
def test_gather_nd(indices: tuple[int, ...], batch: int) -> None:
    positions = integers(*indices, low=-2, high=2)
    check("GatherND", [normal(2, 3, 4), positions], batch_dims=batch)
    check("GatherND", [normal(2, 3, 4), positions], constant=(1,), batch_dims=batch)


def test_gather_nd_with_more_coordinates_than_axes_is_refused() -> None:
    with pytest.raises(ModelError, match="the_GatherND"):
        programs_of(make_model("GatherND", [normal(2, 3), integers(2, 3)]))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis: int) -> None:
    values = np.array([-1, 5], np.float32)
    check("OneHot", [integers(2, 3), np.array(6, np.int64), values], constant=(1, 2), axis=axis)
    check("OneHot", [integers(2, 3), np.array(6, np.int64), values], constant=(2,), axis=axis)


def _hot(x: Array, depth: Array, values: Array) -> Array:
    """The reference evaluator takes no depth that is a float."""
    size = int(depth.reshape(-1)[0])
    return values[(np.where(x < 0, x + size, x)[..., None] == np.arange(size)).astype(int)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_hot_of_a_depth_that_is_a_float(dtype: type) -> None:
    x, values = integers(2, 3), np.array([-1, 5], np.float32)
    more = [[x, np.array([depth], dtype), values] for depth in (9, 1)]
    check("OneHot", [x, np.array([6.5], dtype), values], more=more, reference=_hot)
    programs = check("OneHot", [x, np.array(6.0, dtype), values], constant=(1, 2), reference=_hot)
    assert programs[0].symbols == ()


def test_there_is_a_value_off_and_one_on() -> None:
    dims: dict[int, list[int | str]] = {0: ["n"], 2: ["v"]}
    inputs = [np.array([0, 2]), np.array(3), np.array([0.0, 1.0], np.float32)]
    programs = check("OneHot", inputs, constant=(1,), dims=dims)
    with pytest.raises(AssumptionError, match="x2"):
        run(programs, {"x0": inputs[0], "x2": np.zeros(3, np.float32)})

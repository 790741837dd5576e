from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import opweld
from opweld.errors import AssumptionError, ModelError
from opweld.tensor.program import Tensor
from tests.unit.ops.one_node import check, integers, make_model, normal, programs_of, run


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("perm", [(2, 0, 1), (0, 1, 2), (1, 0, 2), None])
def test_transpose(perm: tuple[int, ...] | None) -> None:
    attributes: dict[str, Any] = {} if perm is None else {"perm": list(perm)}
    check("Transpose", [normal(2, 3, 4)], dims={0: ["a", 3, "b"]}, more=[[normal(1, 3, 7)]], **attributes)


def test_transpose_by_no_permutation_is_refused() -> None:
    with pytest.raises(ModelError, match="the_Transpose"):
        programs_of(make_model("Transpose", [normal(2, 3)], perm=[0, 0]))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_concat(axis: int, count: int) -> None:
    parts = []
    for position in range(count):
        shape = [2, 3, 4]
        shape[axis] += position
        parts.append(normal(*shape, seed=position))
    check("Concat", parts, axis=axis)


def test_concat_of_dynamic_parts_and_empty_ones() -> None:
    check(
        "Concat",
        [normal(2, 3), normal(5, 3), normal(0, 3)],
        dims={0: ["a", 3], 1: ["b", 3]},
        more=[[normal(1, 3), normal(1, 3), normal(0, 3)]],
        axis=0,
    )


def test_concat_of_values_that_disagree_is_refused() -> None:
    with pytest.raises(ModelError, match="the_Concat"):
        programs_of(make_model("Concat", [normal(2, 3), normal(2, 4)], axis=0))


def test_concat_makes_dynamic_sizes_equal() -> None:
    programs = programs_of(make_model("Concat", [normal(2, 3), normal(2, 3)], dims={0: ["", 3], 1: ["?", 3]}, axis=1))
    with pytest.raises(AssumptionError):
        run(programs, {"x0": normal(2, 3), "x1": normal(4, 3)})


@pytest.mark.parametrize("sizes", [(1, 2, 3), (6, 0, 0), None])
def test_split(sizes: tuple[int, ...] | None) -> None:
    if sizes is None:
        check("Split", [normal(6, 4)], outputs=3, axis=0, num_outputs=3)
        check("Split", [normal(4, 7)], outputs=3, axis=1, num_outputs=3)
        return
    check("Split", [normal(6, 4), ints(*sizes)], outputs=3, constant=(1,), dims={0: [6, "n"]}, axis=0)


def test_split_of_a_dynamic_size_assumes_equal_parts() -> None:
    programs = check(
        "Split", [normal(8, 3)], outputs=2, dims={0: ["n", 3]}, more=[[normal(2, 3)]], axis=0, num_outputs=2
    )
    with pytest.raises(AssumptionError):
        run(programs[:1], {"x0": normal(3, 3)})


def test_split_that_does_not_fill_the_axis_is_refused() -> None:
    with pytest.raises(ModelError, match="the_Split"):
        programs_of(make_model("Split", [normal(6), ints(1, 2)], outputs=2, constant=(1,)))


@pytest.mark.parametrize(("shape", "target"), [((3, 1), (3, 5)), ((3, 1), (2, 1, 5)), ((4,), (1,)), ((1,), (2, 2))])
def test_expand(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    check("Expand", [normal(*shape), ints(*target)], constant=(1,))


def test_expand_to_a_fed_shape() -> None:
    more = [[normal(3, 1), ints(*shape)] for shape in ((3, 2), (1, 4), (1, 1))]
    assert len(check("Expand", [normal(3, 1), ints(3, 5)], more=more)) == 1
    (program,) = check("Expand", [normal(3, 1), ints(2, 1, 6)], more=[[normal(3, 1), ints(1, 3, 1)]])
    for shape in ((1, 2, 6), (1, 0, 1), (0, 3, 1)):
        with pytest.raises(AssumptionError):
            run([program], {"x0": normal(3, 1), "x1": ints(*shape)})


def test_expand_a_dynamic_size_to_a_fed_one() -> None:
    """Where the sizes differ, either may be 1."""

    def arrays(n: int, *shape: int) -> list[Any]:
        return [normal(n, 2), ints(*shape)]

    more = [arrays(5, 1, 2), arrays(1, 4, 2), arrays(1, 1, 1), arrays(6, 6, 1)]
    programs = check("Expand", arrays(3, 3, 2), dims={0: ["n", 2]}, more=more)
    assert len(programs) == 2
    with pytest.raises(AssumptionError):
        run(programs, {"x0": normal(3, 2), "x1": ints(2, 2)})


@pytest.mark.parametrize("repeats", [(1, 1), (2, 3), (0, 2)])
def test_tile(repeats: tuple[int, ...]) -> None:
    check("Tile", [normal(2, 3), ints(*repeats)], constant=(1,), dims={0: ["n", 3]})


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, 0, 1, -2, 9])
def test_trilu(upper: int, k: int | None) -> None:
    operands = [normal(2, 4, 5), *([] if k is None else [np.array(k, np.int64)])]
    check("Trilu", operands, constant=(1,), upper=upper)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode: str) -> None:
    check("DepthToSpace", [normal(2, 12, 3, 5)], dims={0: ["n", 12, "h", "w"]}, mode=mode, blocksize=2)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_space_to_depth(mode: str) -> None:
    more = [[normal(1, 3, 2, 8)]]
    dims = {0: ["n", 3, "h", "w"]}
    check("SpaceToDepth", [normal(2, 3, 4, 6)], dims=dims, more=more, mode=mode, blocksize=2, opset=28)


def test_movement_of_no_channels() -> None:
    """Where a formula would divide by their number."""
    check("DepthToSpace", [normal(2, 0, 4, 6)], blocksize=2)
    check("SpaceToDepth", [normal(2, 0, 4, 6)], blocksize=2)
    check("Tile", [normal(2, 0), ints(1, 2)], constant=(1,))


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumsum(exclusive: int, reverse: int) -> None:
    operands = [integers(3, 5), np.array(-1, np.int64)]
    check("CumSum", operands, constant=(1,), dims={0: [3, "n"]}, exclusive=exclusive, reverse=reverse)
    check("CumSum", [normal(3, 5), np.array(0, np.int64)], constant=(1,), exclusive=exclusive, reverse=reverse)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_cumsum_of_blocks(axis: int, exclusive: int, reverse: int) -> None:
    """Sums of whole numbers, which are exact in any order, over lengths that blocks divide or do not."""
    shape = [2, 3, 2]
    for length in (65, 128, 1100):
        shape[axis] = length
        x, at = integers(*shape, dtype=np.float32), np.array(axis, np.int64)
        check("CumSum", [x, at], constant=(1,), exclusive=exclusive, reverse=reverse, tolerance=0)
    dims: list[int | str] = [2, 3, 2]
    dims[axis] = "n"
    more: list[list[np.ndarray]] = []
    for length in (1, 15, 300):
        shape[axis] = length
        more.append([integers(*shape), np.array(axis, np.int64)])
    check("CumSum", more[0], constant=(1,), dims={0: dims}, more=more[1:], exclusive=exclusive, reverse=reverse)


def test_cumsum_of_nothing_and_of_what_is_not_finite() -> None:
    for shape, axis in [((0, 200), 1), ((3, 0), 1), ((0, 200), 0)]:
        check("CumSum", [normal(*shape), np.array(axis, np.int64)], constant=(1,))
    x = normal(1, 300)
    x[0, 100], x[0, 200], x[0, 250] = np.inf, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        check("CumSum", [x, np.array(1, np.int64)], constant=(1,), tolerance=1e-5)


@pytest.mark.parametrize("sizes", ["1,48000,3", "1,n,3"])
def test_steps_of_a_long_cumsum(sizes: str) -> None:
    """Voices are made of waves whose phase is a sum of as many steps as there are samples: what adds all that is before
    each to it takes minutes."""
    text = f"""<ir_version: 11, opset_import: ["" : 20]>
    g (float[{sizes}] x) => (float[{sizes}] y) {{ a = Constant<value = int64 {{1}}>() y = CumSum(x, a) }}"""
    x = normal(1, 48000, 3)
    (y,) = opweld.compile(onnx.parser.parse_model(text), threads=1).run({"x": x}).values()
    np.testing.assert_allclose(y, np.cumsum(x.astype(np.float64), 1), atol=2e-4)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumprod(exclusive: int, reverse: int) -> None:
    options: dict[str, Any] = {"exclusive": exclusive, "reverse": reverse, "opset": 26}
    check("CumProd", [normal(3, 5), np.array(1, np.int64)], constant=(1,), dims={0: [3, "n"]}, **options)
    check(
        "CumProd", [integers(3, 5), np.array(0, np.int64)], more=[[integers(3, 5), np.array(-1, np.int64)]], **options
    )


def test_an_operator_that_moves_nothing_makes_no_tensor() -> None:
    cases: list[tuple[list[np.ndarray], str, dict[str, Any]]] = [
        ([normal(2, 3)], "Transpose", {"perm": [0, 1]}),
        ([normal(2, 3)], "Concat", {"axis": 0}),
        ([normal(2, 3), ints(2, 3)], "Expand", {}),
        ([normal(2, 3), ints(2, 3)], "Reshape", {}),
        ([normal(2, 3), ints(0), ints(2**31 - 1), ints(0)], "Slice", {}),
    ]
    for operands, op_type, attributes in cases:
        (program,) = programs_of(make_model(op_type, operands, constant=(1, 2, 3), **attributes))
        assert not [item for item in program.items if isinstance(item, Tensor)]
        assert program.outputs == (("y0", "x0"),)


def test_there_are_as_many_repeats_and_parts_as_the_operator_says() -> None:
    x = normal(2, 6)
    check("Tile", [x, ints(1, 2)], dims={0: ["n", 6], 1: ["K"]}, more=[[x, ints(3, 1)]])
    check("Split", [x, ints(2, 4)], outputs=2, axis=1, dims={1: ["K"]}, more=[[x, ints(5, 1)]])

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opweld
from opweld.errors import AssumptionError, ModelError, UnsupportedError
from opweld.ops.shape import reshaped_indices
from opweld.tensor.dim import Axis, FloorDiv, Mod, Symbol, as_dim, atoms_of
from opweld.tensor.flow import interpret_flow
from tests.unit.ops.one_node import check, flow_of, make_model, normal, programs_of, run


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("shape", "target", "allowzero"),
    [
        ((2, 3, 4), (6, 4), 0),
        ((2, 3, 4), (-1,), 0),
        ((2, 3, 4), (0, -1), 0),
        ((2, 3, 4), (4, 3, 2), 0),
        ((6, 4), (2, 1, 3, 1, 4), 0),
        ((1, 1, 5), (5,), 0),
        ((1,), (), 0),
        ((0, 3), (0, 3), 1),
        ((0, 3), (3, 0), 1),
        ((3, 35), (5, 21), 0),
    ],
)
def test_reshape(shape: tuple[int, ...], target: tuple[int, ...], allowzero: int) -> None:
    check("Reshape", [normal(*shape), ints(*target)], constant=(1,), allowzero=allowzero)


def test_reshape_of_dynamic_sizes() -> None:
    check(
        "Reshape",
        [normal(2, 5, 12), ints(0, -1, 3, 4)],
        constant=(1,),
        dims={0: ["b", "s", 12]},
        more=[[normal(1, 1, 12), ints(0, -1, 3, 4)], [normal(3, 7, 12), ints(0, -1, 3, 4)]],
    )


def test_reshape_assumes_that_a_dynamic_size_divides() -> None:
    programs = check("Reshape", [normal(8, 3), ints(-1, 4, 3)], constant=(1,), dims={0: ["n", 3]})
    assert [source.divisor for source in programs[0].symbols] == [4]
    with pytest.raises(AssumptionError, match="multiple of 4"):
        run(programs[:1], {"x0": normal(6, 3)})


def test_reshape_to_a_fed_shape() -> None:
    arrays, dims = [normal(4, 6), ints(8, 3)], {0: ["n", 6]}
    more = [[normal(2, 6), ints(*shape)] for shape in ((4, 3), (-1, 2), (0, -1), (0, 6), (3, -1), (1, 12))]
    (usual, _) = check("Reshape", arrays, dims=dims, more=more)
    assert usual.guards and len(usual.outputs) == 1, "sizes that are plain need no second segment"
    assert run([usual], {"x0": normal(4, 6), "x1": ints(8, 3)})["y0"].shape == (8, 3)
    arrays = [normal(24), ints(2, 3, 4)]
    assert len(check("Reshape", arrays, dims={0: ["n"]}, more=[[normal(12), ints(2, -1, 3)]])) == 2
    flow = flow_of(make_model("Reshape", [normal(4, 6), ints(8, 3)], dims=dims))
    for target in ((5, 5), (-1, -1), (-1, 7), (-2, -12), (0, 3)):
        with pytest.raises(AssumptionError):
            interpret_flow(flow, {"x0": normal(4, 6), "x1": ints(*target)})


def test_reshape_of_no_elements_to_a_fed_shape() -> None:
    x = normal(0, 3, 4)
    check("Reshape", [x, ints(3, 4, 0)], more=[[x, ints(0, 7, 5)]], allowzero=1)
    check("Reshape", [x, ints(0, 0, 0)], more=[[x, ints(0, 1, 5)]])


def test_all_of_several_fed_shapes_are_usual_but_one() -> None:
    """Variants are as many as shapes and one, not two to their power."""
    count = 6
    nodes = [helper.make_node("Reshape", [f"x{i}", f"s{i}"], [f"y{i}"], name=f"r{i}") for i in range(count)]
    inputs = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [3, 4]) for i in range(count)]
    inputs += [helper.make_tensor_value_info(f"s{i}", TensorProto.INT64, [2]) for i in range(count)]
    outputs = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None) for i in range(count)]
    flow = flow_of(helper.make_model(helper.make_graph(nodes, "shapes", inputs, outputs), ir_version=10))
    assert len(flow.segments) == len(flow.segments[0].programs) == count + 1
    feeds = {f"x{i}": normal(3, 4) for i in range(count)} | {f"s{i}": ints(2, 6) for i in range(count)}
    for odd in (None, 0, count - 1):
        shapes = {} if odd is None else {f"s{odd}": ints(-1, 6)}
        assert all(y.shape == (2, 6) for y in interpret_flow(flow, feeds | shapes).values())


@pytest.mark.parametrize("target", [(5, 5), (-1, -1), (-2, 12), (0, 0, 0, 0), (-1, 7)])
def test_reshape_to_an_impossible_shape_is_refused(target: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="the_Reshape"):
        programs_of(make_model("Reshape", [normal(2, 3, 4), ints(*target)], constant=(1,)))


def test_reshape_to_computed_data_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="the_Reshape"):
        programs_of(make_model("Reshape", [normal(4), np.zeros(100, np.int64)], dims={1: ["k"]}))


def test_an_index_is_divided_only_where_axes_are_split() -> None:
    b, s = Symbol("b").dim, Symbol("s").dim
    shape, target = (b, s, as_dim(384)), (b, s, as_dim(12), as_dim(32))
    indices = [Axis(f"i{k}", dim).dim for k, dim in enumerate(target)]
    back = reshaped_indices(indices, target, shape)
    assert back == (indices[0], indices[1], indices[2] * 32 + indices[3])
    assert not any(isinstance(atom, FloorDiv | Mod) for dim in back for atom in atoms_of(dim))
    axes = [Axis(f"i{k}", dim) for k, dim in enumerate(shape)]
    split = reshaped_indices([axis.dim for axis in axes], shape, target)
    assert split[:2] == (axes[0].dim, axes[1].dim)
    assert [i.evaluate({axes[2]: 77}) for i in split[2:]] == [2, 13]


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
def test_flatten(axis: int) -> None:
    check("Flatten", [normal(2, 3, 4)], dims={0: ["n", 3, 4]}, more=[[normal(5, 3, 4)]], axis=axis)


@pytest.mark.parametrize("axes", [(0,), (2,), (-1, 0), None])
def test_squeeze(axes: tuple[int, ...] | None) -> None:
    operands = [normal(1, 3, 1), *([] if axes is None else [ints(*axes)])]
    check("Squeeze", operands, constant=(1,))


def test_squeeze_without_axes_forks_on_dynamic_sizes() -> None:
    programs = check("Squeeze", [normal(1, 3)], dims={0: ["n", 3]}, more=[[normal(4, 3)]])
    assert len(programs) == 2
    assert {guard.kind for program in programs for guard in program.guards} <= {"zero", "nonzero"}


def test_axes_are_one_row() -> None:
    with pytest.raises(ModelError, match="the_Squeeze"):
        programs_of(make_model("Squeeze", [normal(1, 3), np.zeros((2, 2), np.int64)], constant=(1,)))


def test_squeeze_of_a_longer_axis_is_refused() -> None:
    with pytest.raises(ModelError, match="can never be equal"):
        programs_of(make_model("Squeeze", [normal(2, 3), ints(0)], constant=(1,)))


@pytest.mark.parametrize("axes", [(0,), (-1,), (1, 3), (0, 1, 2)])
def test_unsqueeze(axes: tuple[int, ...]) -> None:
    check(
        "Unsqueeze", [normal(2, 3), ints(*axes)], constant=(1,), dims={0: ["n", 3]}, more=[[normal(1, 3), ints(*axes)]]
    )


def test_axes_that_are_fed() -> None:
    check("Squeeze", [normal(1, 3, 1), ints(0)], more=[[normal(1, 3, 1), ints(-1)]])
    check("Unsqueeze", [normal(2, 3), ints(0)], more=[[normal(2, 3), ints(2)], [normal(2, 3), ints(-1)]])
    more = [[normal(2, 3, 4), ints(*axes)] for axes in ((1, -1, 2), (-6, 2, 4), (5, 4, 3))]
    assert len(check("Unsqueeze", [normal(2, 3, 4), ints(0, 2, 5)], more=more)) == 20


@pytest.mark.parametrize("attributes", [{}, {"start": 1}, {"start": -2, "end": -1}, {"end": 2}, {"start": 7}])
def test_shape(attributes: dict[str, Any]) -> None:
    check("Shape", [normal(2, 3, 4)], dims={0: ["n", 3, "m"]}, more=[[normal(5, 3, 1)]], **attributes)


def test_size_and_identity() -> None:
    check("Size", [normal(2, 3)], dims={0: ["n", "m"]}, more=[[normal(1, 9)]])
    check("Identity", [normal(2, 3)])


def test_a_dim_that_might_be_empty_is_kept_beside_an_open_one() -> None:
    """`[n, frames - 6, -1]` of `[n, frames - 6, 4, 8]`: nothing says that there are more than six frames."""
    nodes = [
        helper.make_node("Slice", ["x", "six", "end", "axis"], ["cut"]),
        helper.make_node("Shape", ["cut"], ["sizes"], end=2),
        helper.make_node("Concat", ["sizes", "open"], ["shape"], axis=0),
        helper.make_node("Reshape", ["cut", "shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y0"]),
    ]
    constants = {"six": ints(6), "end": ints(1 << 40), "axis": ints(1), "open": ints(-1), "w": normal(32, 3)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "frames", 4, 8])],
        [helper.make_tensor_value_info("y0", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    programs = programs_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    for frames in (7, 20):
        x = normal(2, frames, 4, 8)
        wanted = x[:, 6:].reshape(2, frames - 6, 32) @ constants["w"]
        np.testing.assert_allclose(run(programs, {"x": x})["y0"], wanted, rtol=1e-5, atol=1e-5)


def _all_but_the_first_as(order: list[str]) -> onnx.ModelProto:
    """x[1:], reshaped to one less than the rows of x and -1."""
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"], end=1),
        helper.make_node("Sub", ["sizes", "one"], ["fewer"]),
        helper.make_node("Slice", ["x", "one", "end"], ["cut"]),
        helper.make_node("Concat", order, ["shape"], axis=0),
        helper.make_node("Reshape", ["cut", "shape"], ["y0"]),
    ]
    constants = {"one": ints(1), "end": ints(1000), "open": ints(-1)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("y0", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("order", [["fewer", "open"], ["open", "fewer"]])
def test_nothing_is_divided_by_a_dim_that_is_empty_for_a_batch_of_one(order: list[str]) -> None:
    model = _all_but_the_first_as(order)
    module = opweld.compile(model)
    for n in (2, 5):
        x = normal(n, 8)
        wanted = x[1:].reshape([-1 if name == "open" else n - 1 for name in order])
        np.testing.assert_array_equal(next(iter(module.run({"x": x}).values())), wanted)
    with pytest.raises(AssumptionError, match="-1 stands beside"):
        run(programs_of(model), {"x": normal(1, 8)})

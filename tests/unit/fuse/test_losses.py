"""Losses: a row that is read at a column which another input gives is one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import opweld
from opweld.errors import RunError
from opweld.fuse.grouping import join_rows
from opweld.fuse.online import softmax_of
from opweld.fuse.use_def import UseDef
from opweld.ledger import Ledger
from opweld.schedule.expected import expected_sizes
from opweld.target import Target
from opweld.tensor.parse import parse_program
from tests.unit.tile import programs
from tests.unit.tile.pipeline import check

Array = np.ndarray[Any, Any]

V4 = Target.of("x86-64-v4")

LOSS = """program loss
{head}
input x f32[{rows}, {columns}]
input t i64[{rows}]
tensor top f32[i0: {rows}] from "LogSoftmax"
  over r0: {columns}
  = max<r0>(x[i0, r0])
tensor low f32[i0: {rows}, i1: {columns}] from "LogSoftmax"
  = sub(x[i0, i1], top[i0])
tensor total f32[i0: {rows}] from "LogSoftmax"
  over r0: {columns}
  = sum<r0>(exp(low[i0, r0]))
tensor skip b8[i0: {rows}] from "Equal"
  = eq(t[i0], 2:i64)
tensor safe i64[i0: {rows}] from "Where"
  = select(skip[i0], 0, t[i0])
tensor loss f32[i0: {rows}] from "Gather"
  = select(skip[i0], 0.0, neg(sub(low[i0, at(safe[i0], {columns})], log(total[i0]))))
output y = loss
"""


def loss(rows: int | str, columns: int | str, head: str = "") -> str:
    return LOSS.format(rows=rows, columns=columns, head=head)


@pytest.mark.parametrize("level", ["basic", "all"])
@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (5, 37), (33, 64), (3, 129)])
def test_rows_of_any_size(target: str, level: str, rows: int, columns: int) -> None:
    made = check(loss(rows, columns), target=Target.of(target), level=level)
    assert made.names == ["rows"] or level != "all"


def test_sizes_that_are_known_when_it_runs() -> None:
    text = loss("N", "C", programs.symbols(N="0 of x", C="1 of x"))
    for sizes in ({"N": 1, "C": 3}, {"N": 7, "C": 40}):
        assert check(text, sizes, target=V4).names == ["rows"]


def test_lanes_along_the_rows_look_up_one_column_each() -> None:
    """A picture of classes: neighbours in memory belong to different rows."""
    text = loss(19, 11).replace("x f32[19, 11]", "x f32[11, 19]").replace("x[i0, ", "x[").replace("x[r0]", "x[r0, i0]")
    text = text.replace("x[i1]", "x[i1, i0]")
    made = check(text, target=V4)
    assert made.names == ["rows"]
    assert "lane=r0" in str(made.plans[0].schedule)


@pytest.mark.parametrize(("stored", "shape"), [("low", "5, 37"), ("safe", "5"), ("skip", "5")])
def test_what_a_caller_reads_too_is_stored(stored: str, shape: str) -> None:
    """The row is then read back from memory at the column that is looked up."""
    made = check(loss(5, 37) + f"output z = {stored}\n", target=V4)
    assert made.names == ["rows"], shape


def test_a_value_of_each_column_reads_its_own() -> None:
    """What is subtracted from every column of a row is a value of the row; what is looked up for each is none."""
    text = loss(6, 9).partition("tensor skip")[0]
    text += "tensor far f32[i0: 6, i1: 9]\n  = sub(low[i0, at(t[i0], 9)], total[i0])\noutput y = far\n"
    assert check(text, target=V4).names == ["rows", "map"]


def test_looked_up_shares_are_no_softmax() -> None:
    """Columns at a time (`online.py`) would take the share of another column for its own."""
    text = """program picked
input x f32[4, 8]
input t i64[4]
tensor top f32[i0: 4] from "Softmax"
  over r0: 8
  = max<r0>(x[i0, r0])
tensor shares f32[i0: 4, i1: 8] from "Softmax"
  = exp(sub(x[i0, i1], top[i0]))
tensor total f32[i0: 4] from "Softmax"
  over r0: 8
  = sum<r0>(shares[i0, r0])
tensor one f32[i0: 4] from "Softmax"
  = div(shares[i0, at(t[i0], 8)], total[i0])
tensor wide f32[i0: 4, i1: 8] from "Expand"
  = one[i0]
output y = wide
"""
    program = parse_program(text)
    graph = UseDef(program, expected_sizes(program), V4, Ledger())
    (region,) = join_rows(graph).regions()
    assert softmax_of(region.members[0])[0] is None


# ----------------------------------------------------------------------------------------------------- ONNX's operators


def model_of(
    op: str, reduction: str, shape: tuple[int | str, ...], dtype: int, weights: bool, ignored: int | None
) -> onnx.ModelProto:
    names = ["scores", "target", *(["weights"] if weights else [])]
    value = helper.make_tensor_value_info
    fed = [value("x", dtype, shape), value("target", TensorProto.INT64, (shape[0], *shape[2:]))]
    fed += [value("weights", dtype, shape[1:2])] if weights else []
    attributes: dict[str, Any] = {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored})
    before = helper.make_node("Identity", ["x"], ["scores"], name="before")
    if op == "NegativeLogLikelihoodLoss":
        before = helper.make_node("LogSoftmax", ["x"], ["scores"], name="before", axis=1)
    nodes = [before, helper.make_node(op, names, ["y"], name="the_loss", **attributes)]
    found = (shape[0], *shape[2:]) if reduction == "none" else ()
    graph = helper.make_graph(nodes, "loss", fed, [value("y", dtype, found)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def feeds_of(shape: tuple[int, ...], dtype: Any, weights: bool, ignored: int | None) -> dict[str, Array]:
    random = np.random.default_rng(3)
    target = random.integers(0, shape[1], (shape[0], *shape[2:]))
    if ignored is not None:
        target.reshape(-1)[1::3] = ignored
    feeds = {"x": (3 * random.standard_normal(shape)).astype(dtype), "target": target}
    return feeds | ({"weights": random.random(shape[1]).astype(dtype)} if weights else {})


@pytest.mark.parametrize(
    ("op", "reduction", "rest", "dtype", "weights", "ignored", "kernels"),
    [
        ("SoftmaxCrossEntropyLoss", "none", (), np.float32, False, None, 1),
        ("SoftmaxCrossEntropyLoss", "none", (), np.float32, True, -100, 1),
        ("SoftmaxCrossEntropyLoss", "none", (), np.float16, True, 5, 1),
        ("SoftmaxCrossEntropyLoss", "none", ("d",), np.float32, True, -1, 1),
        ("SoftmaxCrossEntropyLoss", "sum", (), np.float32, False, None, 2),
        ("SoftmaxCrossEntropyLoss", "mean", (), np.float16, False, None, 2),
        ("NegativeLogLikelihoodLoss", "none", (), np.float32, True, None, 1),
        ("NegativeLogLikelihoodLoss", "none", ("d",), np.float32, False, 3, 1),
        ("NegativeLogLikelihoodLoss", "mean", (), np.float32, True, -100, 3),
    ],
)
def test_a_loss_is_one_kernel(
    op: str, reduction: str, rest: tuple[str, ...], dtype: Any, weights: bool, ignored: int | None, kernels: int
) -> None:
    """A sum over the rows is a second one, as iterations of the first are independent; a weighted mean has two sums."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = model_of(op, reduction, ("n", 37, *rest), element, weights, ignored)
    exact = ReferenceEvaluator(model_of(op, reduction, ("n", 37, *rest), TensorProto.DOUBLE, weights, ignored))
    made = opweld.compile(model)
    assert made.session.manifest.kernels == kernels
    for rows in (2, 16):
        feeds = feeds_of((rows, 37, *(9 for _ in rest)), dtype, weights, ignored)
        wide = {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in feeds.items()}
        results: Any = exact.run(None, wide)
        expected = np.asarray(results[0])
        scale = float(np.abs(expected).max())
        near = scale * (1e-5 if dtype == np.float32 else 4e-3)
        np.testing.assert_allclose(made.run(feeds)["y"], expected, rtol=0, atol=near)


@pytest.mark.parametrize("bad", [37, -38])
def test_a_target_out_of_range_names_the_nodes(bad: int) -> None:
    made = opweld.compile(model_of("SoftmaxCrossEntropyLoss", "none", ("n", 37), TensorProto.FLOAT, False, None))
    feeds = feeds_of((5, 37), np.float32, False, None)
    feeds["target"][3] = bad
    with pytest.raises(RunError, match=r"LogSoftmax.*GatherElements.*: an index is out of range"):
        made.run(feeds)


def test_a_mean_over_rows_is_a_near_miss_with_its_cost() -> None:
    model = model_of("SoftmaxCrossEntropyLoss", "mean", (64, 37), TensorProto.FLOAT, False, None)
    found = opweld.explain(model)
    (miss,) = (d for d in found.decisions if d.rule == "fuse.rows" and d.near_miss and "rows" in d.failed)
    assert str(miss.failed["rows"]).endswith("reduces over the rows, which iterations of their own compute")
    separate, _ = miss.alternatives
    assert separate.bytes == 2 * 64 * 4 and separate.seconds is not None and separate.seconds > 0

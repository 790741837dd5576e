"""Runs of models of several segments, seen step by step."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opweld
from opweld.errors import RunError
from opweld.runtime.plan import Array
from opweld.runtime.session import Session


def looping() -> onnx.ModelProto:
    """y = x doubled as often as `trips` says, then its softmax; a data-dependent end, so the loop is a segment."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "s"], ["s_next"], name="doubled"),
            helper.make_node("ReduceMax", ["s_next"], ["most"], keepdims=0),
            helper.make_node("Less", ["most", "limit"], ["again"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, ["n"]),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s_next", TensorProto.FLOAT, ["n"]),
        ],
        [helper.make_tensor("limit", TensorProto.FLOAT, [], [100.0])],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Loop", ["", "", "x"], ["last"], name="loop", body=body),
            helper.make_node("Softmax", ["last"], ["y"], name="after"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def session() -> Session:
    return opweld.compile(looping()).session


@pytest.mark.parametrize("first", [60.0, 1.0])
def test_every_iteration_of_a_loop_is_a_visit(session: Session, first: float) -> None:
    feeds = {"x": np.full(8, first, np.float32)}
    plan, profile = session.plan(feeds), session.profile(feeds)
    trips = int(np.ceil(np.log2(100 / first)))
    body = [visit for visit in plan.segments if visit.steps and "doubled" in plan.steps[visit.first].origin]
    assert len(body) == trips
    assert plan.kernels == len(plan.steps) - (trips - 1) * body[0].steps
    assert sum(visit.steps for visit in plan.segments) == len(plan.steps) == len(profile.times)
    np.testing.assert_array_equal(profile.outputs[0], session.run(feeds)[0])
    ran = [(step.phase, time) for step, time in zip(plan.steps, profile.times, strict=True) if time.threads]
    assert all(0 < time.begin <= time.end <= profile.wall for _, time in ran)
    assert all(a.end <= b.begin for (p, a), (q, b) in itertools.pairwise(ran) if p < q)


def test_a_watched_call_tells_each_segment_and_counts_its_steps_on(session: Session) -> None:
    feeds = {"x": np.full(8, 10.0, np.float32)}
    seen: list[int] = []
    entered: list[tuple[str, int]] = []

    def enter(variant: str, arrays: Sequence[Array]) -> None:
        entered.append((variant, len(seen)))
        assert any(array.shape == (8,) for array in arrays)

    outputs = session.watch(feeds, lambda step, _: seen.append(step), enter)
    np.testing.assert_array_equal(outputs[0], session.run(feeds)[0])
    plan = session.plan(feeds)
    assert sorted(seen) == list(range(len(plan.steps)))
    assert entered == [(visit.variant, visit.first) for visit in plan.segments]


def test_what_a_watcher_raises_ends_the_call(session: Session) -> None:
    seen: list[int] = []

    def look(step: int, _: Sequence[int]) -> None:
        seen.append(step)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        session.watch({"x": np.ones(8, np.float32)}, look)
    assert len(seen) == 1


def test_an_error_of_a_kernel_names_its_node() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("NonZero", ["x"], ["found"]),
            helper.make_node("Add", ["found", "far"], ["at"]),
            helper.make_node("Gather", ["x", "at"], ["y"], name="outside"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "n"])],
        [helper.make_tensor("far", TensorProto.INT64, [], [100])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = opweld.compile(model).session
    for call in (session.plan, session.profile, session.clocked):
        with pytest.raises(RunError, match="outside"):
            call({"x": np.ones(8, np.float32)})

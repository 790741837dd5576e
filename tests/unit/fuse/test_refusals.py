"""Each computed value and user of it that are not one kernel have a decision that says why."""

from __future__ import annotations

from typing import Any

import pytest

from opweld.fuse.partition import partition
from opweld.fuse.use_def import UseDef
from opweld.ledger import Ledger
from opweld.schedule.expected import expected_sizes
from opweld.target import Target
from opweld.tensor.dim import Axis, as_dim
from opweld.tensor.expr import binary, reduce
from opweld.tensor.parse import parse_program
from opweld.tensor.program import TensorProgram, item_inputs
from tests.unit.fuse.programs import SIZE, Builder, random_program
from tests.unit.tile import programs
from tests.unit.tile.pipeline import with_data

TARGET = Target.of("x86-64-v4")


def refused(program: TensorProgram | str) -> list[tuple[str, dict[str, int | str]]]:
    ledger = Ledger()
    parsed = with_data(parse_program(program)) if isinstance(program, str) else program
    partition(parsed, expected_sizes(parsed), TARGET, ledger)
    return [(decision.rule, dict(decision.failed)) for decision in ledger if decision.failed]


def test_several_users() -> None:
    build = Builder()
    anchor = build.matmul("x")
    outputs = [build.map("tanh", anchor), build.map("abs", anchor)]
    assert refused(build.program(*outputs)) == [("fuse.epilogue", {"users": 2})] * 2
    build = Builder()
    value = build.map("exp", "x")
    outputs = [build.map("tanh", value), build.map("abs", value)]
    assert refused(build.program(*outputs)) == [("fuse.chain", {"users": 2})] * 2


def test_users_that_became_one_too_late() -> None:
    build = Builder()
    value = build.map("exp", "x")
    build.pair("add", build.map("tanh", value), value)
    assert refused(build.program("t2")) == [("fuse.chain", {"users": 2})]


def test_outputs() -> None:
    build = Builder()
    anchor = build.matmul("x")
    last = build.map("exp", build.map("tanh", anchor))
    assert refused(build.program(anchor, "t1", last)) == [
        ("fuse.epilogue", {"output": "y0"}),
        ("fuse.chain", {"output": "y1"}),
    ]


def test_the_kind_of_the_user() -> None:
    build = Builder()
    build.matmul(build.map("exp", "x"))
    assert refused(build.program("t1")) == [("fuse.chain", {"user": "contraction"})]
    build = Builder()
    build.matmul(build.norm("x"))
    assert refused(build.program("t5"))[-1] == ("fuse.rows", {"user": "contraction"})


def test_recurrences() -> None:
    assert refused(programs.lstm(3, 2, 4, 5)) == [
        ("fuse.epilogue", {"user": "scan"}),
        ("fuse.chain", {"step": "is a state or an output"}),
    ]


def test_rows_begun_by_others() -> None:
    """The sum joins the row that the maximum began; what else it reads was not there when the row was begun."""
    build = Builder()
    top = build.row("max", "x")
    expensive = build.map("exp", "w")
    axis = Axis("r0", as_dim(SIZE))
    total = build.tensor(
        1, lambda i: reduce("sum", (axis,), binary("add", build.at(expensive, i, axis.dim), build.at(top, i)))
    )
    assert refused(build.program(total)) == [("fuse.rows", {"row": f"begun by {top}"})]


@pytest.mark.parametrize("seed", range(60))
def test_each_value_between_kernels_is_refused_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = list[tuple[str, tuple[str, ...]]]()
    decide = UseDef._decide

    def recording(graph: UseDef, **decision: Any) -> bool:
        together = decide(graph, **decision)
        if not together:
            refusals.append((decision["rule"], decision["subject"]))
        return together

    monkeypatch.setattr(UseDef, "_decide", recording)
    program = random_program(seed)
    found = partition(program, expected_sizes(program), TARGET, Ledger())
    assert len(set(refusals)) == len(refusals)

    subjects = [subject[:2] for rule, subject in refusals if rule != "fuse.view"]
    region_of = {tensor.name: region for region in found.regions for tensor in region.tensors}
    for region in found.regions:
        for user in region.tensors:
            for name in item_inputs(user):
                if name not in region_of or region_of[name] is region:
                    continue
                # a row answers for its members, and a tensor for those that are computed inside it
                sources = {tensor.name for tensor in region_of[name].tensors}
                inside = {node.removeprefix("Node_") for node in user.origin}
                assert any(source in sources and other in inside for source, other in subjects), (name, user.name)

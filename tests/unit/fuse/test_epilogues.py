from __future__ import annotations

import pytest

from opweld.fuse import use_def as limits
from opweld.fuse.epilogues import fold_epilogues
from opweld.fuse.use_def import UseDef
from opweld.fuse.views import fold_views, prepared
from opweld.ledger import Ledger
from opweld.schedule.expected import expected_sizes
from opweld.target import Target
from opweld.tensor.program import TensorProgram
from opweld.tensor.verify import verify
from tests.unit.fuse.programs import Builder

TARGET = Target.of("x86-64-v4")


def folded(program: TensorProgram, ledger: Ledger | None = None) -> UseDef:
    graph = UseDef(prepared(program), expected_sizes(program), TARGET, Ledger() if ledger is None else ledger)
    fold_views(graph)
    fold_epilogues(graph)
    verify(graph.program())
    return graph


def failures(ledger: Ledger) -> list[dict[str, int | str]]:
    return [dict(decision.failed) for decision in ledger if decision.rule == "fuse.epilogue"]


def test_users_one_after_the_other_join_the_anchor() -> None:
    build = Builder()
    graph = folded(build.program(build.transpose(build.map("tanh", build.pair("add", build.matmul("x"), "x")))))
    (item,) = graph.items.values()
    assert item.origin == ("Node_t0", "Node_t1", "Node_t2", "Node_t3")


def test_of_two_anchors_the_later_one_takes_the_sum() -> None:
    build, ledger = Builder(), Ledger()
    first = build.matmul("x")
    graph = folded(build.program(build.pair("add", first, build.matmul(first))), ledger)
    assert len(graph.items) == 2
    build = Builder()
    left, right = build.matmul("x"), build.matmul("w", "x")
    graph = folded(build.program(build.pair("add", left, right)))
    assert [item.origin for item in graph.items.values()] == [("Node_t0",), ("Node_t1", "Node_t2")]


def test_another_anchor_is_no_epilogue() -> None:
    build, ledger = Builder(), Ledger()
    folded(build.program(build.matmul(build.matmul("x"))), ledger)
    assert failures(ledger) == [{"user": "contraction"}]


def test_elements_read_in_two_ways_are_needed_in_memory() -> None:
    build, ledger = Builder(), Ledger()
    anchor = build.matmul("x")
    folded(build.program(build.pair("add", anchor, build.transpose(anchor))), ledger)
    assert failures(ledger) == [{"loads": 2}]


def test_an_epilogue_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_NODES", 6)
    build, ledger, x = Builder(), Ledger(), "x"
    x = build.matmul(x)
    for _ in range(5):
        x = build.map("tanh", x)
    graph = folded(build.program(x), ledger)
    # the product has four nodes: two loads, their product, the sum
    assert failures(ledger) == [{}, {}, {"nodes": 7, "most": 6}]
    assert len(graph.items) == 4

"""Phases of launches: nothing that depends on another runs beside it, memory stays within its bound, others meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import opweld
from opweld.ledger import Ledger
from opweld.schedule.cost import Cost
from opweld.tensor.cost import Count
from opweld.tensor.dim import ZERO
from opweld.tensor.dtype import DType
from opweld.tile.kernels import ScheduledKernel
from opweld.tile.phases import SMALL, WINDOW, arrange
from opweld.tile.predict import Prediction
from opweld.tile.tile import Buffer, Kernel

RULE = "schedule.phase"


def launch(name: str, roles: Mapping[str, str] | None = None, *, serial: bool = False, **more: str) -> ScheduledKernel:
    """A launch and the role of each memory that it uses."""
    used: dict[str, Any] = {**(roles or {}), **more}
    buffers = tuple(Buffer(memory, DType.F32, role) for memory, role in used.items())
    return ScheduledKernel(
        Kernel(name, buffers, (), (), (), (), (name,)), Count(), ZERO, ZERO, ZERO, Prediction(Cost()), serial, (name,)
    )


def named(items: Sequence[ScheduledKernel], phases: Iterable[Iterable[int]]) -> list[list[str]]:
    return [[items[position].kernel.name for position in phase] for phase in phases]


def arranged(*items: ScheduledKernel, disable: tuple[str, ...] = ()) -> list[list[str]]:
    return named(items, arrange(items, {}, Ledger(disable)))


def disturbs(items: Sequence[ScheduledKernel], i: int, j: int) -> bool:
    """Whether launch j must come after launch i, by what they do to the memory that both use."""
    roles = [{buffer.name: buffer.role for buffer in item.kernel.buffers} for item in items]
    for memory in roles[i].keys() & roles[j].keys():
        one, two = roles[i][memory], roles[j][memory]
        read_between = any(roles[k].get(memory) in ("read", "update") for k in range(i + 1, j))
        if "update" in (one, two) or one != two or (one == "write" and read_between):
            return True
    return False


def live(items: Sequence[ScheduledKernel], phases: Sequence[Sequence[int]], sizes: dict[str, int]) -> int:
    """The most bytes alive in one phase."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, phase in enumerate(phases):
        for position in phase:
            for buffer in items[position].kernel.buffers:
                first.setdefault(buffer.name, number)
                last[buffer.name] = number
    alive = [sum(sizes[name] for name in first if first[name] <= at <= last[name]) for at in range(len(phases))]
    return max(alive, default=0)


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[ScheduledKernel], dict[str, int]]:
    memories = [f"m{i}" for i in range(draw(st.integers(1, 12)))]
    used = st.dictionaries(st.sampled_from(memories), st.sampled_from(["read", "write", "update"]), max_size=4)
    chosen = draw(st.lists(st.tuples(used, st.booleans()), max_size=40))
    items = [launch(f"k{i}", roles, serial=serial) for i, (roles, serial) in enumerate(chosen)]
    return items, {memory: draw(st.sampled_from([0, 1, SMALL // 3, 5 * SMALL])) for memory in memories}


@given(programs(), st.integers(0, 40))
def test_phases_keep_the_order_of_what_depends_on_each_other(
    program: tuple[list[ScheduledKernel], dict[str, int]], granted: int
) -> None:
    items, sizes = program
    for ledger in (Ledger(), Ledger(prefix=granted)):
        phases = arrange(items, sizes, ledger)
        assert sorted(position for phase in phases for position in phase) == list(range(len(items)))
        assert all(phase == sorted(phase) for phase in phases)
        of = {position: number for number, phase in enumerate(phases) for position in phase}
        for j in range(len(items)):
            for i in range(j):
                assert of[i] < of[j] or not disturbs(items, i, j)


@given(programs())
def test_phases_keep_live_memory_within_its_bound(program: tuple[list[ScheduledKernel], dict[str, int]]) -> None:
    items, sizes = program
    alone = live(items, [[position] for position in range(len(items))], sizes)
    assert live(items, arrange(items, sizes, Ledger()), sizes) <= max(alone * 3 // 2, SMALL)


@given(programs())
def test_the_baseline_is_the_order_given(program: tuple[list[ScheduledKernel], dict[str, int]]) -> None:
    items, sizes = program
    assert arrange(items, sizes, Ledger((RULE,))) == [[position] for position in range(len(items))]


def two_directions(*between: ScheduledKernel) -> list[ScheduledKernel]:
    """Gates and recurrence of one direction, then of the other, whose results are parts of one value."""
    return [
        launch("gates", x="read", g="write"),
        launch("forward", serial=True, g="read", y="write"),
        *between,
        launch("gates_back", x="read", h="write"),
        launch("backward", serial=True, h="read", y="write"),
        launch("use", y="read", z="write"),
    ]


def test_both_directions_of_a_recurrence_run_at_the_same_time() -> None:
    assert arranged(*two_directions()) == [["gates", "gates_back"], ["forward", "backward"], ["use"]]


def test_a_recurrence_that_has_time_waits_for_the_other() -> None:
    items = two_directions(launch("reverse", w="read", x="write"))
    items[0] = launch("gates", w="read", g="write")
    assert arranged(*items) == [["gates", "reverse"], ["gates_back"], ["forward", "backward"], ["use"]]


def test_one_decision_keeps_a_launch_alone() -> None:
    ledger = Ledger()
    arrange(two_directions(), {}, ledger)
    back, backward = (decision.id for decision in ledger)
    assert arranged(*two_directions(), disable=(backward,)) == [
        ["gates", "gates_back"], ["forward"], ["backward"], ["use"],
    ]  # fmt: skip
    assert arranged(*two_directions(), disable=(back,)) == [
        ["gates"], ["forward"], ["gates_back"], ["backward"], ["use"],
    ]  # fmt: skip


def test_what_is_computed_in_place_waits() -> None:
    items = [launch("a", x="read", y="write"), launch("b", y="update"), launch("c", y="update"), launch("d", y="read")]
    assert arranged(*items) == [["a"], ["b"], ["c"], ["d"]]


def test_the_edges_of_a_padded_value_are_filled_beside_the_value() -> None:
    """Not at the very beginning, though nothing keeps them from it."""
    chain: list[ScheduledKernel] = []
    for number, (one, two) in enumerate(pairwise("abcde")):
        chain += [launch(f"halo{number}", {two: "write"}), launch(f"conv{number}", {one: "read", two: "write"})]
    assert arranged(*chain) == [[f"halo{number}", f"conv{number}"] for number in range(4)]


def test_a_launch_joins_from_nearby_only() -> None:
    for distance in (WINDOW - 1, WINDOW):
        chain = [launch(f"a{i}", {f"a{i}": "read", f"a{i + 1}": "write"}) for i in range(distance)]
        other = [launch(f"b{i}", {f"b{i}": "read", f"b{i + 1}": "write"}) for i in range(distance)]
        first = arranged(*chain, *other)[0]
        assert first == (["a0", "b0"] if distance < WINDOW else ["a0"])


def test_a_launch_whose_result_would_live_too_long_runs_in_its_turn() -> None:
    items = [
        launch("a", x="read", a="write"),
        launch("b", a="read", b="write"),
        launch("c", x="read", c="write"),
        launch("d", c="read", d="write"),
        launch("e", b="read", d="read", e="write"),
    ]
    ledger = Ledger()
    sizes = {"a": 10 * SMALL, "b": 1, "c": 10 * SMALL, "d": 1}
    phases = named(items, arrange(items, sizes, ledger))
    assert phases == [["a"], ["b"], ["c"], ["d"], ["e"]]
    early = next(decision for decision in ledger if decision.subject == "c > early")
    assert (early.rule, early.taken, dict(early.failed)) == (RULE, "alone", {})
    assert "would live too long" in early.reason
    assert named(items, arrange(items, sizes, Ledger(pins={early.id: "together"})))[0] == ["a", "c"]
    assert named(items, arrange(items, dict.fromkeys("abcd", 1), Ledger())) == [["a", "c"], ["b", "d"], ["e"]]


def test_a_serial_launch_that_has_time_waits_unless_pinned() -> None:
    items = [
        launch("one", serial=True, g="read", y="write"),
        launch("project", x="read", h="write"),
        launch("two", serial=True, h="read", y="write"),
        launch("last", y="read", z="write"),
    ]
    ledger = Ledger()
    assert named(items, arrange(items, {}, ledger)) == [["project"], ["one", "two"], ["last"]]
    (waits,) = (decision for decision in ledger if decision.taken == "later")
    assert waits.subject == "one > beside > project"
    pinned = named(items, arrange(items, {}, Ledger(pins={waits.id: "together"})))
    assert pinned == [["one", "project"], ["two"], ["last"]]


def lstm(directions: int, hidden: int, features: int) -> bytes:
    """An ONNX model of one LSTM over sequences of any length."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    shapes = {"w": (directions, 4 * hidden, features), "r": (directions, 4 * hidden, hidden)}
    weights = [
        numpy_helper.from_array((rng.standard_normal(shape) / hidden).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    node = helper.make_node(
        "LSTM", ["x", "w", "r"], ["y"], direction="bidirectional" if directions == 2 else "forward", hidden_size=hidden
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["T", 1, features])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["T", directions, 1, hidden])],
        weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return made.SerializeToString()


def test_directions_of_an_lstm_share_a_phase_and_the_threads() -> None:
    compiled = opweld.compile(lstm(2, 64, 32), threads=2)
    session = compiled.session
    feeds = {"x": np.random.default_rng(1).standard_normal((200, 1, 32)).astype(np.float32)}
    alone = opweld.compile(lstm(2, 64, 32), threads=1, disable=(RULE,))
    assert session.run(feeds)[0].tobytes() == alone.run(feeds)["y"].tobytes()
    steps = session.plan(feeds).steps
    scans = [position for position, step in enumerate(steps) if step.name.endswith("_scan")]
    assert len(scans) == 2 and len({steps[position].phase for position in scans}) == 1
    assert all(steps[position].threads == 1 for position in scans), "one is no work for two"

from __future__ import annotations

import pytest

from opweld.fuse.grouping import RowGroups, join_rows
from opweld.fuse.use_def import MOST_NODES, UseDef
from opweld.ledger import Ledger
from opweld.schedule.expected import expected_sizes
from opweld.target import Target
from opweld.tensor.parse import parse_program
from opweld.tensor.program import TensorProgram
from tests.unit.fuse.programs import Builder

TARGET = Target.of("x86-64-v4")


def grouped(program: TensorProgram, ledger: Ledger | None = None) -> tuple[UseDef, RowGroups]:
    graph = UseDef(program, expected_sizes(program), TARGET, Ledger() if ledger is None else ledger)
    return graph, join_rows(graph)


def failures(ledger: Ledger) -> list[dict[str, int | str]]:
    return [dict(decision.failed) for decision in ledger if decision.failed]


def names(rows: RowGroups) -> list[list[str]]:
    return [[tensor.name for tensor in region.tensors] for region in rows.regions()]


def test_what_reads_the_row_and_what_it_reads_share_it() -> None:
    """The squares are read by the first member, the sum; the function before them is not."""
    build = Builder()
    _, rows = grouped(build.program(build.norm(build.map("tanh", "x"))))
    assert names(rows) == [["t0"], ["t1", "t2", "t3", "t4", "t5"]]
    assert [region.outputs for region in rows.regions()] == [("t0",), ("t5",)]


def test_rows_have_a_limit() -> None:
    build, ledger, x = Builder(), Ledger(), "x"
    for _ in range(100):
        x = build.norm(x)
    graph, rows = grouped(build.program(x), ledger)
    regions = rows.regions()
    assert 5 < len(regions) < 20
    assert all(sum(map(graph.size, region.tensors)) <= MOST_NODES for region in regions)
    assert all(found["most"] == MOST_NODES for found in failures(ledger))


@pytest.mark.parametrize(
    ("shape", "body", "expected"),
    [
        ("i0: 4, i1: 9", "sub(z[i0, i1], top[i0])", "axis i1 of t has 9 elements, which no row or column has"),
        ("i0: 6", "sub(z[0, i0], top[0])", "t has no axis for the 4 rows"),
        ("i0: 4, i1: 6", "sub(x[i0, i1], top[3 - i0])", "t does not read the row at its own place in it"),
    ],
)
def test_the_axis_that_does_not_fit_is_told(shape: str, body: str, expected: str) -> None:
    ledger = Ledger()
    program = (
        "program p\ninput x f32[4, 6]\ninput z f32[4, 9]\ntensor top f32[i0: 4]\n  over r0: 6\n"
        f"  = max<r0>(x[i0, r0])\ntensor t f32[{shape}]\n  = {body}\noutput y = t\n"
    )
    _, rows = grouped(parse_program(program), ledger)
    assert names(rows) == [["top"], ["t"]]
    assert failures(ledger) == [{"rows": expected}]


def test_a_group_is_emitted_when_all_that_it_reads_is_there() -> None:
    """The product lies between the members in the program, and is read by the last of them."""
    build = Builder()
    top = build.row("max", "x")
    mixed = build.matmul("x")
    build.pair("sub", mixed, top)
    _, rows = grouped(build.program("t2"))
    assert names(rows) == [["t1"], ["t0", "t2"]]


def test_two_rows_that_need_each_other_stay_apart() -> None:
    """No tensor here needs itself, but a row with t6 in it would need the other row with t7, and the other way."""
    build, ledger = Builder(), Ledger()
    top, other = build.row("max", "x"), build.row("max", "w")
    left, right = build.matmul(build.pair("sub", "w", top)), build.matmul(build.pair("sub", "x", other))
    build.pair("add", right, top)
    build.pair("add", left, other)
    _, rows = grouped(build.program("t6", "t7"), ledger)
    assert [set(found) for found in names(rows)] == [{"t1", "t4"}, {"t5"}, {"t0", "t2", "t6"}, {"t3"}, {"t7"}]
    assert {"order": "something in between needs the rows finished"} in failures(ledger)

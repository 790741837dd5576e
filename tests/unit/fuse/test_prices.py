"""What fusion is predicted to take and to save decides, and the ledger says it."""

from __future__ import annotations

import pytest

from benchmarks.decisions import PROGRAMS, compiled
from opweld.explanation import explain_text
from opweld.fuse.partition import partition
from opweld.fuse.prices import Price, Prices
from opweld.ledger import Decision, Ledger
from opweld.schedule.cost import core_of
from opweld.schedule.expected import expected_sizes
from opweld.target import Target
from opweld.tensor.parse import parse_program
from opweld.tensor.program import Tensor
from tests.unit.tile.pipeline import with_data

TARGET = Target.of("x86-64-v4")


def decided(text: str, rule: str) -> list[Decision]:
    program, ledger = with_data(parse_program(text)), Ledger()
    partition(program, expected_sizes(program), TARGET, ledger)
    return [decision for decision in ledger if decision.rule == rule]


def seconds(decision: Decision) -> list[float]:
    return [alternative.seconds or 0.0 for alternative in decision.alternatives]


def spread(op: str, rows: int) -> str:
    """A value of 64 columns, computed by an operator and added to every row of another."""
    return (
        f"program p\ninput x f32[64]\ninput z f32[{rows}, 64]\ntensor a f32[i0: 64]\n  = {op}(x[i0])\n"
        f"tensor b f32[i0: {rows}, i1: 64]\n  = add(z[i0, i1], a[i1])\noutput y = b\n"
    )


def picked(count: int, readers: int) -> str:
    """Elements found by run-time indices, read several times."""
    lines = ["program p", "input x f32[5000]", f"input which i64[{count}]"]
    lines += [f"tensor rows f32[i0: {count}]", "  = x[at(which[i0], 5000)]"]
    for reader in range(readers):
        lines += [f"tensor a{reader} f32[i0: {count}]", f"  = add(rows[i0], {reader}.0)"]
    lines += [f"output y{reader} = a{reader}" for reader in range(readers)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_legal_alternative_has_seconds(name: str) -> None:
    rules = {"fuse.view", "fuse.chain", "fuse.epilogue", "fuse.rows"}
    for decision in compiled(name).ledger:
        if decision.rule in rules:
            apart, together = (alternative.seconds for alternative in decision.alternatives)
            assert apart is not None
            assert apart > 0
            assert (together is None) == bool(decision.failed)
            fewer = together is not None and together <= apart * (1 + 1e-9)
            assert fewer == (decision.preferred != decision.baseline)


@pytest.mark.parametrize("op", ["neg", "exp", "erf"])
def test_what_is_computed_again_stays_apart_from_where_that_takes_less(op: str) -> None:
    taken: list[str] = []
    for rows in (2, 8, 32, 128, 512, 2048):
        (decision,) = decided(spread(op, rows), "fuse.chain")
        apart, together = seconds(decision)
        assert decision.taken == ("fused" if together <= apart else "separate")
        taken.append(decision.taken)
    border = {"neg": 6, "exp": 3, "erf": 2}[op]
    assert taken == ["fused"] * border + ["separate"] * (6 - border)


def test_a_part_of_a_dear_value_is_computed_by_who_reads_it() -> None:
    (decision,) = decided(
        "program p\ninput x f32[100000]\ntensor a f32[i0: 100000]\n  = exp(x[i0])\n"
        "tensor b f32[i0: 50]\n  = neg(a[i0 + 7])\noutput y = b\n",
        "fuse.chain",
    )
    assert decision.taken == "fused"
    assert seconds(decision)[0] > 10 * seconds(decision)[1]


def test_a_dear_part_is_written_straight_into_the_whole() -> None:
    """Computed in the whole, each of its elements would compute it."""
    (decision,) = decided(
        "program p\ninput x f32[64, 512]\ninput z f32[64, 512]\ntensor a f32[i0: 64, i1: 512]\n  = exp(x[i0, i1])\n"
        "tensor b f32[i0: 64, i1: 1024]\n  = select(ge(index(i1 - 512), 0:i64), a[i0, i1 - 512], z[i0, i1])\n"
        "output y = b\n",
        "fuse.chain",
    )
    assert decision.taken == "separate"


def test_what_ends_a_reduction_is_computed_with_it() -> None:
    """Alone, the logistic function of so few elements would be worth no launch."""
    text = (
        "program p\ninput x f32[4, 64]\ninput z f32[4, 64, 2]\nconstant w f32[64, 64]\n"
        "tensor m f32[i0: 4, i1: 64]\n  over r0: 64\n  = sum<r0>(mul(x[i0, r0], w[r0, i1]))\n"
        "tensor g f32[i0: 4, i1: 64]\n  = sigmoid({})\n"
        "tensor b f32[i0: 4, i1: 64, i2: 2]\n  = mul(z[i0, i1, i2], g[i0, i1])\noutput y = b\n"
    )
    assert [d.taken for d in decided(text.format("m[i0, i1]"), "fuse.chain")] == ["separate"]
    assert [d.taken for d in decided(text.format("x[i0, i1]"), "fuse.chain")] == ["fused"]


@pytest.mark.parametrize(("count", "readers", "taken"), [(2000, 1, "index"), (4, 3, "index"), (2000, 3, "copy")])
def test_what_is_picked_is_copied_where_many_would_pick_it_again(count: int, readers: int, taken: str) -> None:
    (decision,) = decided(picked(count, readers), "fuse.view")
    assert decision.taken == taken
    assert not decision.failed


def test_reshapes_divide_nothing() -> None:
    """Heads are split off and put together again: the address of an element needs no division."""
    (first, second) = decided(
        "program p\ninput x f32[64, 768]\ntensor a f32[i0: 12, i1: 64, i2: 64]\n  = x[i1, 64*i0 + i2]\n"
        "tensor b f32[i0: 64, i1: 768]\n  = a[(i1 // 64), i0, (i1 % 64)]\n"
        "tensor c f32[i0: 64, i1: 768]\n  = exp(b[i0, i1])\ntensor d f32[i0: 64, i1: 768]\n  = neg(b[i0, i1])\n"
        "output y = c\noutput z = d\n",
        "fuse.view",
    )
    assert (first.taken, second.taken) == ("index", "index")


def test_of_a_program_the_parts_are_what_the_docstring_says() -> None:
    program = parse_program(spread("exp", 128))
    prices = Prices(program, expected_sizes(program), TARGET)
    source, user = (prices.work(item) for item in program.items if isinstance(item, Tensor))
    assert source.vectors == 4
    assert user.vectors == 512
    inside = prices.inside("a", source, user)
    assert inside.cycles == user.cycles + 128 * source.cycles
    assert inside.reads == pytest.approx(user.reads - prices.moved("a") + prices.moved("x"))
    assert prices.seconds(source) > core_of(TARGET).launch
    assert prices.work(program.items[0]) is source


def test_of_equals_fewer_kernels_unless_something_is_computed_again() -> None:
    assert Price(1.0, 1.0).pays
    assert Price(0.1 + 0.2, 0.3).pays
    assert Price(0.3, 0.1 + 0.2).pays
    assert not Price(1.0, 1.0, equal=False).pays
    assert not Price(1.0, 1.1).pays


def test_explain_prints_what_each_way_takes() -> None:
    program, ledger = parse_program(spread("exp", 2048)), Ledger()
    partition(program, expected_sizes(program), TARGET, ledger)
    text = explain_text(ledger)
    assert "131072 elements would be computed instead of 64" in text
    assert "predicted " in text
    assert "instead of fused (" in text

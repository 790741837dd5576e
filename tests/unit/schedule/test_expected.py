"""Expected sizes: what costs are predicted for, and what a hint changes."""

from __future__ import annotations

from opweld.ledger import Ledger
from opweld.schedule.expected import Expected, expected_sizes, weighed
from opweld.schedule.schedule import MapSchedule, MemberSchedule, ReductionSchedule
from opweld.target import Target
from opweld.tensor.dim import Symbol, as_dim
from opweld.tensor.parse import parse_program
from tests.unit.tile import programs
from tests.unit.tile.pipeline import realised, with_data

V4 = Target.of("x86-64-v4")


def member(text: str, **hints: int) -> MemberSchedule:
    """The schedule of a program's only member, compiled with hints."""
    program = with_data(parse_program(text))
    made = realised(program, V4, Ledger(), expected_sizes(program, hints))
    (found,) = (member for plan in made.plans for member in plan.schedule.members)
    return found


def test_only_what_is_fixed_or_said_is_known() -> None:
    said, guessed = Symbol("S"), Symbol("G")
    expected = Expected({said: 24, guessed: 64}, (said,))
    assert (expected(2 * said.dim), expected(guessed.dim * said.dim)) == (48, 24 * 64)
    assert (expected.known(as_dim(7)), expected.known(2 * said.dim)) == (7, 48)
    assert expected.known(guessed.dim) is None
    assert expected.known(guessed.dim * said.dim) is None


def test_a_hint_of_a_quotient_is_one_of_its_dim() -> None:
    head = "symbol H_by_32 >= 1 = dim 0 of x // 32\n"
    program = parse_program(programs.elementwise(("32*H_by_32", 3), "exp(x[i0, i1])", head))
    (source,) = program.symbols
    expected = expected_sizes(program, {"H": 96})
    assert expected.known(source.symbol.dim) == 3
    assert expected_sizes(program).known(source.symbol.dim) is None


def test_rows_are_as_many_as_expected() -> None:
    """Rows that do not fill a tile are pieces of 4, 2 and 1: 20 of them are two tiles of ten, or one of 14 and two
    pieces, which wait for their sums."""
    text = programs.dense("batch", 384, 512, programs.symbols(batch="0 of x"))
    heights: dict[int, int] = {}
    for batch in (8, 20, 28):
        found = member(text, batch=batch)
        assert isinstance(found, ReductionSchedule)
        heights[batch] = found.height
    assert heights == {8: 8, 20: 10, 28: 14}


def test_a_lane_axis_may_be_long_unless_a_hint_says_otherwise() -> None:
    text = programs.elementwise(("A", "B"), "exp(x[i0, i1])", programs.symbols(A="0 of x", B="1 of x"))
    anything, short = member(text), member(text, A=3, B=16)
    assert isinstance(anything, MapSchedule) and isinstance(short, MapSchedule)
    assert (anything.vectors, anything.chunk > 0) == (4, True)
    assert (short.vectors, short.chunk) == (3, 0)


def test_beside_a_batch_of_one_larger_ones_are_thought_of() -> None:
    batch, length, said = Symbol("N"), Symbol("L"), Symbol("S")
    expected = Expected({batch: 1, length: 64, said: 1}, (said,))
    others = expected.elsewhere([batch.dim * length.dim, said.dim])
    assert [(at(batch.dim), at(length.dim), at(said.dim)) for at in others] == [(8, 64, 1), (64, 64, 1)]
    assert not expected.elsewhere([length.dim, said.dim, as_dim(1)])


def test_what_loses_at_other_sizes_is_worth_less() -> None:
    """Half of what is lost there in the mean; at equal costs elsewhere the expected size decides alone."""
    assert weighed({"a": 1.0, "b": 1.0}, [{"a": 2.0, "b": 3.0}, {"a": 4.0, "b": 4.0}]) == {"a": 1.0, "b": 1.125}
    assert weighed({"a": 1.0, "b": 2.0}, [{"a": 0.0, "b": 0.0}]) == {"a": 1.0, "b": 2.0}
    assert weighed({"a": 1.0}, []) == {"a": 1.0}


def test_a_batch_of_any_size_has_tiles_for_many_rows() -> None:
    """What one row takes is the time of its weights whatever the tile; one row that is told may have wider tiles."""
    text = programs.dense("M", 768, 3072, programs.symbols(M="0 of x"))
    free, told = member(text), member(text, M=1)
    assert isinstance(free, ReductionSchedule)
    assert isinstance(told, ReductionSchedule)
    assert (free.vectors, told.vectors) == (2, 4)
    assert free.height > told.height

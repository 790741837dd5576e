"""What storage is predicted to take decides, and the ledger says it."""

from __future__ import annotations

import pytest

from benchmarks.decisions import PROGRAMS, compiled
from opweld.ledger import Decision, cheapest
from opweld.target import Target
from tests.unit.tile import programs
from tests.unit.tile.pipeline import compile_text

RULES = {"place.order", "place.halo", "place.rows", "place.slice", "place.pack", "place.reuse"}


def decided(text: str, rule: str) -> list[Decision]:
    made = compile_text(text, Target.of("x86-64-v4"))
    return [decision for decision in made.ledger if decision.rule == rule]


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_legal_alternative_has_seconds_and_the_fewest_are_wanted(name: str) -> None:
    for decision in compiled(name).ledger:
        if decision.rule in RULES:
            legal = [a for a in decision.alternatives if not decision.failed or a.name == decision.baseline]
            assert all(alternative.seconds is not None for alternative in legal)
            fewest = cheapest(legal).seconds
            assert [a.seconds for a in legal if a.name == decision.preferred] == [fewest]


def test_all_rules_are_met() -> None:
    """Or the test above could not fail."""
    ledgers = [compiled(name).ledger for name in PROGRAMS]
    ledgers.append(compile_text(programs.residual(9, 16), disable=("fuse.block",)).ledger)
    assert {d.rule for ledger in ledgers for d in ledger if d.rule in RULES and d.fired} == RULES


@pytest.mark.parametrize(("channels", "taken"), [(3, "row-major"), (32, "row-major"), (40, "channels-last")])
def test_channels_are_copied_together_where_they_are_too_many_walks(channels: int, taken: str) -> None:
    orders = decided(programs.convolution(channels, 16, 12, 12), "place.order")
    assert [d.taken for d in orders if d.subject == "x_padded"] == [taken]


@pytest.mark.parametrize(("size", "taken"), [(4, "test-edges"), (12, "copy-with-halo")])
def test_a_padded_copy_has_to_save_more_than_it_takes(size: int, taken: str) -> None:
    (decision,) = (d for d in decided(programs.convolution(3, 16, size, size), "place.halo") if "> Relu" in d.subject)
    assert decision.taken == taken
    assert decision.preferred == cheapest(decision.alternatives).name


@pytest.mark.parametrize(("rows", "taken"), [(8, "strided"), (60, "copy")])
def test_an_operand_that_is_gathered_again_and_again_is_copied(rows: int, taken: str) -> None:
    (decision,) = decided(programs.product(rows, 48, 48, transposed=True), "place.pack")
    assert decision.taken == taken

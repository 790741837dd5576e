from __future__ import annotations

from opweld.explanation import explain_text
from opweld.ledger import Alternative, Ledger
from opweld.schedules_file import PinnedRegion, SchedulesFile
from tests.unit.test_ledger import miss, request

FAST = (Alternative("1", seconds=3e-6), Alternative("2", seconds=1e-6))


def test_decisions_are_grouped_by_stage_and_rule_and_near_misses_ranked() -> None:
    ledger = Ledger()
    request(ledger)
    miss(ledger, "conv", 5000)
    request(ledger, "concat", rule="place.slice")
    lines = explain_text(ledger).splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "fuse",
        "place",
        "near misses (1, most expensive first)",
    ]
    assert "  fuse.epilogue: 1 of 1" in lines
    assert "  fuse.prologue: 0 of 1" in lines
    assert any("failed: consumers = 2; costs 5,000 bytes; instead of fuse" in line for line in lines)
    assert any("saves 3,072 bytes" in line for line in lines)
    assert explain_text(Ledger()) == "no decisions\n"


def test_kernels_are_told_with_nodes_schedules_and_on_demand_decisions() -> None:
    ledger = Ledger(pins={})
    ledger.variant("main", {"t1": "relu 0"})
    ledger.decide(
        rule="schedule.height",
        site=("conv", "relu"),
        subject=("t1",),
        alternatives=FAST,
        reason="fills the registers",
        field=("t1", "member 0"),
    )
    (decision,) = ledger
    given = SchedulesFile("", {}, {("main", "relu 0"): PinnedRegion(1, "contraction height=2", {})})
    short = explain_text(ledger, given)
    assert short.splitlines() == [
        "kernels: 1 regions, 1 decisions (--ids lists them)",
        "  relu 0 (conv, relu)",
        "    contraction height=2",
    ]
    line = f"      {decision.id} member 0: schedule.height 2; predicted 1 us; instead of 1 (3 us); fills the registers"
    assert line in explain_text(ledger, given, ids=True).splitlines()


def test_what_was_pinned_says_so() -> None:
    probe = Ledger()
    request(probe)
    (identity,) = (d.id for d in probe)
    for alternative, note in (("fuse", "pinned"), ("split", "wanted fuse, pinned")):
        ledger = Ledger(pins={identity: alternative})
        request(ledger)
        assert f"  {note}; " in explain_text(ledger)


def test_hostile_names_are_escaped_when_shown() -> None:
    ledger = Ledger()
    request(ledger, "evil\x1b[31m\nname" + "x" * 10_000)
    text = explain_text(ledger)
    assert "\x1b" not in text
    assert len(text) < 1000
    assert "evil\\x1b[31m\\nname" in text

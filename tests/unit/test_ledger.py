from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opweld.errors import ArtifactError, OptionError
from opweld.ledger import Alternative, Ledger, printable
from opweld.rules import LEVELS

SPLIT = Alternative("split", bytes=4096, flops=10)
FUSE = Alternative("fuse", bytes=1024, flops=10)


def request(ledger: Ledger, site: str = "relu", rule: str = "fuse.epilogue", prefer: str = "fuse") -> str:
    return ledger.decide(
        rule=rule,
        site=(site,),
        subject=(site,),
        alternatives=(SPLIT, FUSE),
        prefer=prefer,
        reason="one consumer",
        failed=None,
    )


def test_a_wish_is_granted_and_recorded() -> None:
    ledger = Ledger()
    assert request(ledger) == "fuse"
    (decision,) = ledger
    assert decision.stage == "fuse"
    assert decision.baseline == "split"
    assert decision.fired and not decision.overridden and not decision.near_miss
    assert decision.saved_bytes == 3072
    assert ledger.counts() == {"fuse.epilogue": (1, 1)}


def test_ids_depend_on_rule_variant_and_subject_alone() -> None:
    first, second, third = Ledger(), Ledger(), Ledger()
    request(first, "a")
    request(first, "b")
    request(second, "b")
    third.variant("other", {})
    request(third, "b")
    ids = [d.id for d in first]
    assert len(set(ids)) == 2
    assert next(iter(second)).id == ids[1], "an id does not depend on what was decided before"
    assert next(iter(third)).id != ids[1], "another variant of the model is decided anew"
    with pytest.raises(ValueError, match="decides twice about 'a'"):
        request(first, "a")


def test_labels_take_the_place_of_names_in_ids() -> None:
    first, second = Ledger(), Ledger()
    first.variant("", {"t7_relu": "relu 0"})
    second.variant("", {"t9_relu": "relu 0"})
    request(first, "t7_relu")
    request(second, "t9_relu")
    assert next(iter(first)).id == next(iter(second)).id
    assert next(iter(first)).subject == "relu 0"


@pytest.mark.parametrize("disable", ["fuse", "fuse.epilogue", "the id"])
def test_disable_by_stage_rule_or_id_gives_the_baseline(disable: str) -> None:
    if disable == "the id":
        probe = Ledger()
        request(probe)
        disable = next(iter(probe)).id
    ledger = Ledger(disable=[disable])
    assert request(ledger) == "split"
    assert request(ledger, "other", rule="place.slice") == "fuse"
    decision = next(iter(ledger))
    assert decision.overridden and decision.preferred == "fuse"
    ledger.check_names()


def test_misspelt_names_are_errors_with_a_hint() -> None:
    ledger = Ledger(disable=["fuse.epilog", "fuse.rows"])
    request(ledger)
    with pytest.raises(OptionError, match=r"disable 'fuse.epilog': .* did you mean fuse.epilogue"):
        ledger.check_names()
    ledger = Ledger(pins={"0123456789": "fuse"})
    request(ledger)
    with pytest.raises(OptionError, match="pin '0123456789': no such decision"):
        ledger.check_names()


def test_levels_leave_the_rules_of_higher_ones_at_their_baseline() -> None:
    assert [request(Ledger(level=level), rule="fuse.rows") for level in LEVELS] == ["split", "split", "fuse", "fuse"]


def test_a_pin_takes_any_legal_alternative() -> None:
    probe = Ledger()
    request(probe)
    (identity,) = (d.id for d in probe)
    pinned = Ledger(pins={identity: "split"})
    assert request(pinned) == "split"
    assert next(iter(pinned)).pinned
    assert request(Ledger(disable=["fuse"], pins={identity: "fuse"})) == "fuse", "a pin is stronger than disable"
    with pytest.raises(OptionError, match="has no alternative 'weld' here, only split, fuse"):
        request(Ledger(pins={identity: "weld"}))


def test_a_pin_cannot_do_what_is_not_legal() -> None:
    probe = Ledger()
    miss(probe, "a", 1)
    (identity,) = (d.id for d in probe)
    with pytest.raises(OptionError, match=r"cannot do that here \(consumers = 2\), only split"):
        miss(Ledger(pins={identity: "fuse"}), "a", 1)


def test_without_a_preference_the_cheapest_is_taken() -> None:
    ledger = Ledger()
    alternatives = [Alternative(str(n), seconds=seconds) for n, seconds in enumerate((3.0, None, 1.0, 1.0))]
    assert ledger.decide(rule="x", site=(), subject=("a",), alternatives=alternatives, reason="") == "2"


def test_grants_choose_which_wishes_come_true() -> None:
    ledger = Ledger(grants=lambda number: number % 2 == 1)
    assert [request(ledger, site) for site in "abcd"] == ["split", "fuse", "split", "fuse"]


def test_prefix_grants_the_first_wishes_only() -> None:
    def taken(prefix: int | None) -> list[str]:
        ledger = Ledger(prefix=prefix)
        return [request(ledger, "a"), request(ledger, "b", prefer="split"), request(ledger, "c"), request(ledger, "d")]

    assert taken(None) == ["fuse", "split", "fuse", "fuse"]
    assert taken(0) == ["split"] * 4
    assert taken(2) == ["fuse", "split", "fuse", "split"], "a request for the baseline uses up nothing"


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="prefers 'weld'"):
        request(Ledger(), prefer="weld")
    with pytest.raises(ValueError, match="names an alternative twice"):
        Ledger().decide(rule="fuse.x", site=(), subject=(), alternatives=(SPLIT, SPLIT), prefer="split", reason="")
    with pytest.raises(ValueError, match="prefix is -1"):
        Ledger(prefix=-1)


def miss(ledger: Ledger, site: str, size: int | str | None) -> None:
    alternatives = (Alternative("split", bytes=size), Alternative("fuse", bytes=0))
    ledger.decide(
        rule="fuse.prologue",
        site=(site,),
        subject=(site,),
        alternatives=alternatives,
        prefer="split",
        reason="the producer has two consumers",
        failed={"consumers": 2},
    )


def test_near_misses_come_the_most_expensive_first() -> None:
    ledger = Ledger()
    for site, size in (("small", 10), ("symbolic", "4*batch"), ("large", 1000), ("unknown", None)):
        miss(ledger, site, size)
    request(ledger, "other", prefer="split")  # nothing failed: no near miss
    assert [d.site[0] for d in ledger.near_misses()] == ["large", "small", "symbolic", "unknown"]


@given(st.text(), st.integers(10, 200))
def test_printable_is_short_and_has_no_control_characters(text: str, limit: int) -> None:
    shown = printable(text, limit)
    assert shown.isprintable()
    assert len(printable("a" * 500, limit)) <= limit


names = st.text(min_size=1, max_size=8)
amounts = st.none() | st.integers(0, 2**70) | st.text(max_size=8)


@given(
    st.lists(
        st.tuples(
            names,
            st.lists(names, max_size=3),
            amounts,
            st.text(max_size=9),
            st.dictionaries(names, amounts.filter(bool)),
        )
    )
)
def test_json_round_trip(entries: list[tuple[str, list[str], int | str | None, str, dict[str, int | str]]]) -> None:
    ledger = Ledger()
    for number, (rule, site, size, reason, failed) in enumerate(entries):
        alternatives = (Alternative("no", bytes=size), Alternative("yes", flops=size, seconds=number / 3))
        prefer = "no" if failed else "yes"
        ledger.decide(
            rule=rule,
            site=site,
            subject=(str(number),),
            alternatives=alternatives,
            prefer=prefer,
            reason=reason,
            failed=failed,
        )
    text = ledger.dumps()
    again = Ledger.loads(text)
    assert list(again) == list(ledger)
    assert again.dumps() == text
    assert again.requests == ledger.requests
    assert len(json.loads(text)) == len(ledger)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"id": "a"}]', "3"])
def test_damaged_json_is_refused(text: str) -> None:
    with pytest.raises(ArtifactError, match=r"^ledger\.json"):
        Ledger.loads(text)


def test_about_finds_the_decisions_of_a_node() -> None:
    ledger = Ledger()
    request(ledger, "a")
    request(ledger, "b")
    assert [d.site for d in ledger.about("b")] == [("b",)]


def test_what_is_granted_by_id_comes_true_and_nothing_else() -> None:
    probe = Ledger()
    for site in "abc":
        request(probe, site)
    first, _, last = (decision.id for decision in probe)
    ledger = Ledger(["misspelt"], granted=[first, last], pins={"gone": "fuse"})
    assert [request(ledger, site) for site in "abcd"] == ["fuse", "split", "fuse", "split"]
    ledger.check_names()  # what a name meant may not come up where something is refused
    unlike = Ledger(granted=[], pins={first: "weld"})
    assert request(unlike, "a") == "split", "nor be what it was"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "ledger.json should be a list"),
        ("nonsense", "ledger.json is no JSON"),
        ('[{"id": 3}]', r"ledger.json\[0\]: id should be str"),
        ('[{"id": "a"}]', "lacks 'rule'"),
    ],
)
def test_what_is_no_ledger_is_named(text: str, said: str) -> None:
    with pytest.raises(ArtifactError, match=said):
        Ledger.loads(text)

from __future__ import annotations

import random

import pytest

from opweld.fuse.order import MOST_BETWEEN, Order


def order_of(text: str) -> Order:
    """`c: a b` is an item that reads two others; what is read and stands on no line is an input."""
    order = Order()
    for line in text.strip().splitlines():
        name, _, inputs = line.partition(":")
        order.add(name.strip(), inputs.split())
    return order


def sequence(order: Order, names: str) -> list[set[str]]:
    """The groups in order, as sets of the names that are in each."""
    return [{name for name in names if order.group(name) is group} for group in order.sequence()]


def test_a_merge_through_a_third_item_is_a_cycle() -> None:
    order = order_of("a: x\nb: a\nc: a b")
    assert order.obstacle("a", "c") == "something in between needs the rows finished"
    assert order.obstacle("c", "a") == "something in between needs the rows finished"
    assert order.obstacle("a", "b") is None
    order.join("b", "a")
    assert order.obstacle("a", "c") is None


def test_two_groups_that_read_each_other_are_a_cycle_though_no_item_is() -> None:
    order = order_of("a:\nc: a\nd:\nb: d")
    assert order.obstacle("a", "b") is None
    order.join("b", "a")
    assert order.obstacle("c", "d") is not None


def test_an_item_that_is_overtaken_still_lies_above_what_it_reads() -> None:
    """b waits for the group of a, which ends behind it; so does what reads b."""
    order = order_of("a:\nb: a\nc: b\nd: a")
    order.join("d", "a")
    assert order.group("a").rank < order.group("b").rank < order.group("c").rank
    order.add("e", ["c", "d"])
    assert order.obstacle("a", "e") is not None


def test_lifting_passes_each_group_once() -> None:
    """Along a ladder there are 2^100 ways down."""
    ladder = "".join(f"l{p}: j{p}\nr{p}: j{p}\nj{p + 1}: l{p} r{p}\n" for p in range(100))
    order = order_of(f"a:\nj0: a\n{ladder}last: a")
    order.join("last", "a")
    assert order.group("a").rank < order.group("j0").rank
    ranks = [order.group(f"j{p}").rank for p in range(101)]
    assert ranks == list(range(ranks[0], ranks[0] + 201, 2))


def test_groups_come_in_the_order_of_their_first_items_where_that_is_possible() -> None:
    order = order_of("a:\nb:\nc: a\nd: b\ne: a")
    order.join("e", "a")
    assert sequence(order, "abcde") == [{"a", "e"}, {"b"}, {"c"}, {"d"}]
    order = order_of("a:\nb: a\nc:\nd: c a")
    order.join("d", "a")
    assert sequence(order, "abcd") == [{"c"}, {"a", "d"}, {"b"}]


def test_what_is_far_apart_is_not_searched_to_the_end() -> None:
    chain = "".join(f"n{p}: n{p - 1}\n" for p in range(1, MOST_BETWEEN + 10))
    order = order_of(f"m:\nn0: m\n{chain}last: n{MOST_BETWEEN + 9} m")
    assert order.obstacle("m", "last") == f"more than {MOST_BETWEEN} kernels lie in between"
    assert order.obstacle("m", "n0") is None


@pytest.mark.parametrize("seed", range(20))
def test_random_merges_are_refused_exactly_when_they_make_a_cycle(seed: int) -> None:
    chance = random.Random(seed)
    reads = {f"n{p}": [f"n{q}" for q in range(p) if chance.random() < 0.15] for p in range(30)}
    order = Order()
    members: dict[str, list[str]] = {}
    for name, inputs in reads.items():
        order.add(name, inputs)
        members[name] = [name]
        for other in chance.sample(sorted(members), min(3, len(members))):
            if other == name or name not in members:
                continue
            possible = {key: group for key, group in members.items() if key not in (name, other)}
            possible[other] = [*members[other], name]
            cyclic = not has_order(possible, reads)
            assert (order.obstacle(name, other) is not None) == cyclic
            if not cyclic:
                order.join(name, other)
                members = possible
    assert len(order.sequence()) == len(members)


def has_order(groups: dict[str, list[str]], reads: dict[str, list[str]]) -> bool:
    """Whether groups can be computed one after the other: one that reads nothing outside is taken away at a time."""
    left = dict(groups)
    while left:
        outside = {name for names in left.values() for name in names}
        ready = next(
            (key for key, names in left.items() if not ({s for n in names for s in reads[n]} - set(names)) & outside),
            None,
        )
        if ready is None:
            return False
        del left[ready]
    return True

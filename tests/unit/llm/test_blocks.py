"""References, eviction and the index of prefixes."""

from __future__ import annotations

import random

from opweld.llm.blocks import BlockManager, Table


def filled(manager: BlockManager, tokens: list[int]) -> Table:
    """A table of tokens that are all computed."""
    table = Table()
    manager.match(table, tokens)
    assert manager.extend(table, len(tokens))
    manager.register(table, tokens, len(tokens))
    return table


def test_a_table_has_blocks_of_its_own_until_it_is_released() -> None:
    manager = BlockManager(4, 2)
    one, other = Table(), Table()
    assert manager.extend(one, 3)
    assert manager.extend(one, 4)  # there is room already
    assert manager.extend(other, 4)
    assert len(one.blocks) == len(other.blocks) == 2
    assert not set(one.blocks) & set(other.blocks)
    assert manager.in_use == 4
    assert not manager.extend(other, 5)
    assert len(other.blocks) == 2
    manager.release(one)
    assert not one.blocks
    assert manager.available == 2
    assert manager.extend(other, 5)


def test_full_blocks_of_a_prefix_are_shared_but_for_the_last_token() -> None:
    manager = BlockManager(8, 2)
    one = filled(manager, [1, 2, 3, 4, 5])
    table = Table()
    assert manager.match(table, [1, 2, 3, 4, 9]) == 4
    assert table.blocks == one.blocks[:2]
    assert manager.in_use == 3
    assert manager.match(Table(), [1, 2, 3, 4]) == 2
    assert manager.match(Table(), [1, 2]) == 0


def test_a_block_is_found_by_all_tokens_before_it() -> None:
    manager = BlockManager(8, 2)
    filled(manager, [1, 2, 3, 4, 5])
    assert manager.match(Table(), [9, 9, 3, 4, 5]) == 0
    assert manager.match(Table(), [3, 4, 5]) == 0
    assert manager.match(Table(), [1, 2, 9, 9, 5]) == 2
    # Tokens are words of 64 bits: no two ways to divide the same bytes.
    assert manager.match(Table(), [1 + (2 << 32), 0, 5]) == 0


def test_what_is_not_computed_is_not_known() -> None:
    manager = BlockManager(8, 2)
    table = Table()
    manager.extend(table, 6)
    manager.register(table, [1, 2, 3, 4, 5, 6], 3)
    assert manager.match(Table(), [1, 2, 3, 4, 5, 6]) == 2
    manager.register(table, [1, 2, 3, 4, 5, 6], 6)
    assert manager.match(Table(), [1, 2, 3, 4, 5, 6]) == 4


def test_idle_blocks_are_found_again_and_evicted_last() -> None:
    manager = BlockManager(5, 2)
    manager.release(filled(manager, [1, 2, 3, 4]))
    manager.release(filled(manager, [5, 6]))
    assert (manager.in_use, manager.cached, manager.available) == (0, 3, 5)
    manager.extend(Table(), 4)  # the free ones
    assert manager.cached == 3
    manager.extend(Table(), 2)  # the end of the prefix that was used longest ago
    again = Table()
    assert manager.match(again, [1, 2, 3, 4, 0]) == 2
    manager.release(again)  # used a moment ago, so that the other prefix goes
    manager.extend(Table(), 2)
    assert manager.match(Table(), [5, 6, 0]) == 0
    assert manager.match(Table(), [1, 2, 0]) == 2


def test_equal_blocks_that_two_compute_at_once_are_known_once() -> None:
    manager = BlockManager(4, 2)
    one, other = Table(), Table()
    for table in (one, other):
        manager.extend(table, 4)
    for table in (one, other):
        manager.register(table, [1, 2, 3, 4], 4)
    assert manager.cached == 2
    manager.release(other)
    assert manager.available == 2
    assert manager.match(Table(), [1, 2, 3, 4, 5]) == 4
    manager.release(one)
    assert manager.in_use == 2


def test_a_prefix_is_known_where_its_window_is() -> None:
    manager = BlockManager(6, 2, window=3)
    tokens = list(range(11))
    table = filled(manager, tokens)
    manager.give_back(table, 10)
    # The token at 10 sees 8 to 10.
    assert (table.first, manager.in_use) == (4, 2)
    manager.extend(other := Table(), 8)  # takes the four that were given back
    assert (manager.cached, manager.available) == (1, 0)
    again = Table()
    assert manager.match(again, tokens) == 10
    assert (again.first, again.blocks[4:], len(again.blocks)) == (4, table.blocks[4:5], 5)
    manager.release(again)
    assert manager.match(Table(), tokens[:9]) == 0, "the token at 8 sees 6 and 7"
    manager.release(table)
    manager.release(other)
    assert (manager.in_use, manager.available) == (0, 6)


def test_without_a_window_nothing_is_given_back() -> None:
    manager = BlockManager(6, 2)
    table = filled(manager, list(range(11)))
    manager.give_back(table, 10)
    assert (table.first, manager.in_use) == (0, 6)


def test_random_tables_never_hold_a_block_of_other_contents() -> None:
    """Each block's contents are written down beside it; what a match gives must be what was asked for."""
    chance = random.Random(3)
    manager = BlockManager(12, 2)
    contents: dict[int, tuple[int, ...]] = {}
    tables: list[Table] = []
    for _ in range(3000):
        if tables and chance.random() < 0.5:
            manager.release(tables.pop(chance.randrange(len(tables))))
        tokens = [chance.randrange(2) for _ in range(chance.randint(1, 9))]
        table = Table()
        known = manager.match(table, tokens)
        assert known < len(tokens)
        for at, block in enumerate(table.blocks):
            assert contents[block] == tuple(tokens[: at * 2 + 2])
        if not manager.extend(table, len(tokens)):
            manager.release(table)
            continue
        for at in range(known // 2, len(table.blocks)):
            contents[table.blocks[at]] = tuple(tokens[: at * 2 + 2])
        manager.register(table, tokens, len(tokens))
        tables.append(table)
        used = [block for one in tables for block in one.blocks]
        assert manager.in_use == len(set(used))
    for table in tables:
        manager.release(table)
    assert manager.in_use == 0
    assert manager.available == 12

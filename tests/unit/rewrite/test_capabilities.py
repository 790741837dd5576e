"""Every rule of rewriting is in a row of the table, and the tests that the table names are there."""

from __future__ import annotations

from collections import Counter

from benchmarks.capabilities import ROWS, TESTS
from opweld.rules import COMPILED, REWRITES


def test_rules_are_in_a_row() -> None:
    rows = Counter(rule for row in ROWS for rule in row.rewrites)
    assert set(rows) == set(REWRITES) and max(rows.values()) == 1
    assert {rule for row in ROWS for rule in row.compiled} <= set(COMPILED)


def test_tests_are_there() -> None:
    assert all((TESTS / f"{name}.py").exists() for row in ROWS for name in row.tests)
    # A row without rules and tests of its own says where it is done.
    assert all(row.rewrites or row.compiled or row.note for row in ROWS)

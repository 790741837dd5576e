from __future__ import annotations

from tests.unit.rewrite.written.ideas import EXPORTERS, IDEAS
from tests.unit.rewrite.written.table import PAGE, table


def test_the_page_says_what_the_catalogue_holds() -> None:
    assert PAGE.read_text(encoding="utf-8") == table(), "write it anew: python -m tests.unit.rewrite.written.table"


def test_a_cell_is_empty_for_a_reason() -> None:
    for idea in IDEAS:
        for exporter in EXPORTERS:
            assert bool(idea.of(exporter)) is not (exporter in idea.absent) or exporter == "by hand"

"""Writes docs/rewrites-by-exporter.md: python -m tests.unit.rewrite.written.table"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.unit.rewrite.written.ideas import EXPORTERS, IDEAS, Idea

PAGE = Path(__file__).parents[4] / "docs" / "rewrites-by-exporter.md"

HEAD = """# Rewrites by exporter

What `opweld optimize` recognises, whoever wrote it: in how many ways each exporter writes an idea. Each way is a test
of its own (`tests/unit/rewrite/test_mutations.py`), as it is and with one thing changed at a time, wherever it can be:
a Cast, a second reader, a weight that is fed, another number, another axis, swapped operands. This page is written by
`python -m tests.unit.rewrite.written.table`.

torch's ways are those of torch 2.13. Of paddle2onnx, LayerNorm, GELU, SiLU and HardSwish are taken from PP-OCR and
layout_cdla, of tf2onnx, GELU by tanh and softmax from magika; no model at hand has their other ideas, which are put
together from the nodes that these exporters write for each operator of the formula.
"""


def table() -> str:
    """The page."""
    absent = list(dict.fromkeys(reason for idea in IDEAS for reason in idea.absent.values()))
    head = [("idea", "rule", *EXPORTERS), ("---",) * (len(EXPORTERS) + 2)]
    rows = [*head, *(tuple(_row(idea, absent)) for idea in IDEAS)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    notes = [f"{number}. {reason}" for number, reason in enumerate(absent, 1)]
    return "\n".join([HEAD, *lines, "", "Where there is none, the exporter", "", *notes]) + "\n"


def _row(idea: Idea, absent: list[str]) -> Iterator[str]:
    yield idea.title
    yield f"`{idea.rule}`"
    for exporter in EXPORTERS:
        ways, reason = len(idea.of(exporter)), idea.absent.get(exporter)
        yield str(ways) if ways else f"none ({absent.index(reason) + 1})" if reason else "none"


if __name__ == "__main__":
    PAGE.write_text(table(), encoding="utf-8")

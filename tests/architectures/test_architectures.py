"""Architectures of the catalogue, from both exporters: none is refused, none is wrong, none breaks anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.architectures.catalogue import CATALOGUE
from tests.architectures.suite import judged
from tests.random.__main__ import environment

KNOWN: dict[tuple[str, str], str] = {
    ("embedding-bag", "dynamo"): "a Loop whose state is a sequence",
}
"""(architecture, exporter): why it is not right yet."""

EVERY = 5
"""One in so many is exported and judged here; `python -m tests.architectures` does all, in a quarter of an hour."""

ABSENT = 0.15
"""The part of all exports that the exporters may refuse."""


def test_names_are_unique() -> None:
    names = [architecture.name for architecture in CATALOGUE]
    assert len(names) == len(set(names)) >= 80


@pytest.mark.models
def test_all_are_right(tmp_path: Path) -> None:
    workers = len(os.sched_getaffinity(0))
    findings = list(judged(CATALOGUE[::EVERY], workers, environment(tmp_path, "quick")))
    bad = {(f.name, f.exporter): f"{f.verdict}: {f.what}" for f in findings if f.bad}
    news = [f"{name} ({exporter}) {what}" for (name, exporter), what in bad.items() if (name, exporter) not in KNOWN]
    assert not news, "\n".join(news)
    judged_here = {(finding.name, finding.exporter) for finding in findings}
    assert judged_here.intersection(KNOWN) <= set(bad), f"right by now: {set(KNOWN) - set(bad)}"
    absent = [f"{f.name} ({f.exporter}): {f.what[:200]}" for f in findings if f.verdict == "absent"]
    assert len(absent) <= ABSENT * len(findings), "\n".join(absent)

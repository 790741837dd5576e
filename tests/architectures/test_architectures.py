"""Architectures of the catalogue, from all exporters: none is refused, none is wrong, none breaks anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.architectures.catalogue import CATALOGUE
from tests.architectures.suite import judged
from tests.random.__main__ import environment

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
    bad = [f"{f.name} ({f.exporter}) {f.verdict}: {f.what}" for f in findings if f.bad]
    assert not bad, "\n".join(bad)
    absent = [f"{f.name} ({f.exporter}): {f.what[:200]}" for f in findings if f.verdict == "absent"]
    assert len(absent) <= ABSENT * len(findings), "\n".join(absent)

"""Broken models: none crashes, hangs or fills memory, and each is taken or refused in opweld's own words."""

from __future__ import annotations

import os
import random
import sys

import pytest

from opweld.cached import sources_digest
from tests.fuzz.corpus import containers, source_of
from tests.fuzz.drive import Worker, findings_of
from tests.fuzz.finding import Finding, probe
from tests.fuzz.mutate import mutant_of

WORKERS = len(os.sched_getaffinity(0))


def require_good(findings: list[Finding]) -> None:
    bad = [f"seed {f.seed}: {f.outcome}: {f.what}" for f in findings if f.bad]
    assert not bad, "\n".join((*bad, "look at it with: python -m tests.fuzz --only SEED --keep FOLDER"))


def test_fixed_seeds() -> None:
    findings = list(findings_of(range(150), WORKERS))
    require_good(findings)
    outcomes = [finding.outcome for finding in findings]
    assert len(outcomes) == 150
    # Mutants that are all refused at the first check, or none of which is broken, would find nothing.
    assert outcomes.count("accepted") > 15 and outcomes.count("refused") > 50


FRESH = 1000
"""Mutants of the long run; `python -m tests.fuzz --count 10000` goes on."""


@pytest.mark.slow
def test_fresh_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """Other mutants for every change of the compiler, the same for the same text: what was green stays green."""
    first = int(sources_digest()[:8], 16)
    with capsys.disabled():
        sys.stdout.write(f"mutants from seed {first}\n")
    require_good(list(findings_of(range(first, first + FRESH), WORKERS)))


def test_a_seed_is_a_mutant() -> None:
    assert mutant_of(7) == mutant_of(7)
    assert len({mutant_of(seed)[1] for seed in range(20)}) == 20


@pytest.mark.parametrize("name", sorted(containers()))
def test_what_mutants_are_made_of_is_sound(name: str) -> None:
    data = containers()[name].SerializeToString()
    assert probe(0, name, data, lambda _: None).outcome == "accepted"


def test_what_breaks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("opweld.frontend.onnx.load", fail)
    finding = probe(3, "m", b"", lambda _: None)
    assert (finding.seed, finding.outcome) == (3, "internal") and "KeyError" in finding.what


def test_a_worker_that_dies_is_a_finding() -> None:
    worker = Worker()
    assert not worker.run(0).bad
    process = worker._process
    assert process is not None
    process.kill()
    process.wait()
    assert worker.run(1).outcome == "crash"
    assert not worker.run(1).bad, "the next one starts anew"
    assert worker.close() == 0


def test_choices_reach_every_source() -> None:
    choose = random.Random(0)
    names = {source_of(choose)[0].split()[0] for _ in range(150)}
    assert "graph" in names and any(name.endswith(".onnx") for name in names) and names & set(containers())

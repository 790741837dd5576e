"""Real models under other decisions: any prefix, any grant set gives a right compiler; a file gives the same one."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.zoo import fetch, inputs
from opweld import pipeline
from opweld.build import artifact
from opweld.build.cache import Cache
from opweld.ledger import Ledger
from opweld.options import Options
from opweld.runtime.session import Session
from opweld.target import Target
from opweld.verification.compare import compare

pytestmark = pytest.mark.models

NAMES = ("silero-vad", "magika", "minilm")
PREFIXES = 4
GRANTS = 6
"""How many of each a model is compiled with; every program of `benchmarks.decisions` is, with all prefixes and more
grants than this, in tests/unit/schedule."""

TOLERANCE = 4e-5
"""Two compilations in fp32, each within 1e-5 of the result's scale or four times the unoptimised peer's error."""


def build(name: str, folder: Path, options: Options) -> Path:
    """Compiles a model of the zoo, whatever the cache holds."""
    folder.mkdir(exist_ok=True)
    source, target = fetch.path(name), Target.of(options.target)
    return pipeline.build_artifact(source, options, target, folder, Cache.open()).folder


def answers(name: str, folder: Path) -> list[NDArray[np.generic]]:
    """What an artifact makes of the model's first example."""
    return Session(folder, threads=2).run(inputs.example(name))


@cache
def usual(name: str) -> tuple[int, list[NDArray[np.generic]]]:
    """How many requests the model's ledger has, and what it answers when all are granted."""
    with TemporaryDirectory() as folder:
        made = build(name, Path(folder), Options())
        ledger = Ledger.loads((made / artifact.LEDGER).read_text(encoding="utf-8"))
        return ledger.requests, answers(name, made)


def check(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, ledger: Callable[..., Ledger]) -> None:
    """Compiles with another ledger, and compares with the usual answer."""
    _, expected = usual(name)
    monkeypatch.setattr(pipeline, "Ledger", ledger)
    found = answers(name, build(name, folder, Options()))
    for position, (array, reference) in enumerate(zip(found, expected, strict=True)):
        comparison = compare(f"{name} {position}", array, reference, rtol=TOLERANCE)
        assert comparison.passed, comparison.problem


@pytest.mark.parametrize("number", range(PREFIXES))
@pytest.mark.parametrize("name", NAMES)
def test_every_prefix_of_the_decisions_is_right(
    name: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = usual(name)[0] * number // PREFIXES
    check(name, tmp_path, monkeypatch, partial(Ledger, prefix=prefix))


@pytest.mark.parametrize("seed", range(GRANTS))
@pytest.mark.parametrize("name", NAMES)
def test_whatever_is_granted_is_right(name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(f"{name} {seed}")
    share = chance.random()
    draws = [chance.random() < share for _ in range(1 << 14)]
    check(name, tmp_path, monkeypatch, partial(Ledger, grants=lambda number: draws[number % len(draws)]))


@pytest.mark.parametrize("level", ["none", "basic", "all"])
@pytest.mark.parametrize("name", ["silero-vad", "minilm"])
def test_a_schedules_file_gives_the_same_kernels_byte_for_byte(name: str, level: str, tmp_path: Path) -> None:
    first = build(name, tmp_path / "first", Options(level=level))
    again = build(name, tmp_path / "again", Options(schedules=first / artifact.SCHEDULES))
    sources = sorted(path.name for path in (first / artifact.SOURCES).iterdir())
    assert sources == sorted(path.name for path in (again / artifact.SOURCES).iterdir())
    for file in (*(f"{artifact.SOURCES}/{source}" for source in sources), artifact.WEIGHTS):
        assert (first / file).read_bytes() == (again / file).read_bytes(), file

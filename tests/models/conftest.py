"""The seven models: each compiled once a test run, then run on all its examples in a process without a compiler."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import opweld
from benchmarks.zoo import fetch, inputs
from tests.conftest import FOLDER
from tests.once import once
from tests.patience import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]
BARE = Path(__file__).parent / "bare.py"

SEVEN = ("ppocrv4-det", "minilm", "silero-vad", "magika", "resnet50", "mobilenetv2", "bert-base")

Array = NDArray[Any]


@dataclass(frozen=True)
class Example:
    """A feed of the zoo.

    Attributes:
        label: its name in the zoo. feeds: the arrays, and `path`: where they lie as .npz.
        valid: whether the model accepts it at all.
    """

    label: str
    feeds: dict[str, Array]
    path: Path
    valid: bool


@dataclass(frozen=True)
class Served:
    """A model, compiled, saved and run on all examples where no compiler is.

    Attributes:
        name, source: of the model in the zoo. artifact: the saved folder.
        examples: in the zoo's order. outputs: by label and number of threads, in the model's order.
        refused: by label, the error's class (`kind`) and `text`. variants: which compiled variant answered, by label.
        packages: what running imported, the standard library excepted.
        before, after: size and time of change of every file of the artifact around the runs.
    """

    name: str
    source: Path
    artifact: Path
    examples: tuple[Example, ...]
    outputs: dict[tuple[str, int], list[Array]]
    refused: dict[str, dict[str, str]]
    variants: dict[str, str]
    packages: list[str]
    before: dict[str, tuple[int, int]]
    after: dict[str, tuple[int, int]]


@pytest.fixture(scope="session")
def serve() -> Callable[[str], Served]:
    """Compiles and runs a model of the zoo by name, once a test run."""

    @cache
    def get(name: str) -> Served:
        place = Path(os.environ[FOLDER], "served", name)
        made = place / "served.pickle"
        once(place, lambda: made.write_bytes(pickle.dumps(_serve(name, Path(tempfile.mkdtemp(dir=place))))))
        return pickle.loads(made.read_bytes())

    return get


@pytest.fixture(params=SEVEN)
def model(request: pytest.FixtureRequest, serve: Callable[[str], Served]) -> Served:
    """Each of the seven models."""
    return serve(request.param)


def _serve(name: str, place: Path) -> Served:
    source = fetch.path(name)
    artifact = place / "model.opweld"
    opweld.compile(source).save(artifact)
    examples = _examples(name, place / "feeds")
    outputs = place / "outputs"
    outputs.mkdir()
    before = _state(artifact)
    report = _run_bare(artifact, place / "feeds", outputs)
    labels = {example.path.stem: example.label for example in examples}
    answers: dict[tuple[str, int], list[Array]] = {}
    for path in outputs.glob("*.npz"):
        stem, _, threads = path.stem.rpartition("-")
        with np.load(path) as arrays:
            answers[labels[stem], int(threads)] = [arrays[str(i)] for i in range(len(arrays))]
    return Served(
        name=name,
        source=source,
        artifact=artifact,
        examples=examples,
        outputs=answers,
        refused={labels[stem]: error for stem, error in report["refused"].items()},
        variants={labels[stem]: variant for stem, variant in report["variants"].items()},
        packages=report["packages"],
        before=before,
        after=_state(artifact),
    )


def _examples(name: str, folder: Path) -> tuple[Example, ...]:
    folder.mkdir()
    examples: list[Example] = []
    for i, variant in enumerate(inputs.variants(name)):
        path = folder / f"{i}.npz"
        feeds = inputs.example(name, variant.label)
        np.savez(path, allow_pickle=False, **feeds)
        examples.append(Example(variant.label, feeds, path, variant.valid))
    return tuple(examples)


def _run_bare(artifact: Path, feeds: Path, outputs: Path) -> dict[str, Any]:
    environment = {
        "PATH": "",
        "HOME": str(outputs),
        "PYTHONPATH": str(REPOSITORY / "src"),
        "OPWELD_CC": "/nonexistent/compiler",
        "OPWELD_CACHE": str(outputs / "cache"),
    }
    answer = subprocess.run(
        [sys.executable, BARE, artifact, feeds, outputs],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert answer.returncode == 0, answer.stderr
    assert not (outputs / "cache").exists(), "running an artifact wrote to the cache of compiled models"
    return json.loads(answer.stdout)


def _state(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change in ns of every file."""
    states: dict[str, tuple[int, int]] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            status = (Path(parent) / name).stat()
            states[str(Path(parent, name).relative_to(folder))] = (status.st_size, status.st_mtime_ns)
    return states

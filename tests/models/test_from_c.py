"""Each of the seven artifacts runs from C, without Python, and answers with the same bytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.models.conftest import REPOSITORY, Example, Served
from tests.once import once
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.models

SOURCE = REPOSITORY / "examples" / "c"


@pytest.fixture
def program(model: Served) -> Path:
    """The example, compiled against the header and the runtime inside this model's artifact."""
    folder = model.artifact.parent / "c"

    def build() -> None:
        include, runtime = model.artifact / "include", model.artifact / "runtime.so"
        sources = [SOURCE / "run_model.c", SOURCE / "npy.c"]
        command = [sys.executable, "-m", "ziglang", "cc", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
        command += [f"-I{include}", *map(str, sources), str(runtime), f"-Wl,-rpath,{model.artifact}"]
        command += ["-o", str(folder / "run_model")]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert answer.returncode == 0, answer.stderr

    once(folder, build)
    return folder / "run_model"


def run(program: Path, model: Served, example: Example, place: Path, threads: int) -> subprocess.CompletedProcess[str]:
    command = [str(program), str(model.artifact), "--output", str(place / "out"), "--threads", str(threads)]
    for name, array in example.feeds.items():
        np.save(place / f"{name}.npy", array)
        command += ["--input", f"{name}={place / name}.npy"]
    return subprocess.run(command, env={}, capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.mark.parametrize("threads", [1, 2])
def test_same_bytes_from_c(model: Served, program: Path, tmp_path: Path, threads: int) -> None:
    for i, example in enumerate(model.examples):
        place = tmp_path / str(i)
        place.mkdir()
        answer = run(program, model, example, place, threads)
        if example.label in model.refused:
            assert answer.returncode == 1
            assert answer.stderr.removeprefix("run_model: ").strip() in model.refused[example.label]["text"]
            continue
        assert answer.returncode == 0, f"{example.label}: {answer.stderr}"
        outputs = [np.load(line) for line in answer.stdout.splitlines()]
        expected = model.outputs[example.label, threads]
        assert len(outputs) == len(expected)
        for output, other in zip(outputs, expected, strict=True):
            assert output.dtype == other.dtype and output.shape == other.shape
            assert output.tobytes() == other.tobytes(), f"{example.label}: C answers otherwise than Python"

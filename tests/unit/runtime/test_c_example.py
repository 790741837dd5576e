"""examples/c/run_model.c, built with its Makefile, on the hand-written module."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.patience import PATIENCE_S
from tests.unit.runtime.fake_model import check, feeds_of

EXAMPLE = Path(__file__).parents[3] / "examples" / "c"


@pytest.fixture(scope="module")
def program(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    make = shutil.which("make")
    if make is None:
        pytest.skip("needs make")
    place = tmp_path_factory.mktemp("example")
    for path in EXAMPLE.iterdir():
        if path.is_file():
            shutil.copy(path, place)
    compiler = f"{sys.executable} -m ziglang cc"
    flags = "-O1 -Wall -Wextra -Werror -fno-sanitize=undefined"
    command = [make, "-C", str(place), f"CC={compiler}", f"CFLAGS={flags}", f"ARTIFACT={folder}", "run_model"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert answer.returncode == 0, answer.stderr
    return place / "run_model"


def run(program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE_S)


def inputs(place: Path, feeds: dict[str, Any]) -> list[str]:
    arguments: list[str] = []
    for name, array in feeds.items():
        np.save(place / f"{name}.npy", array)
        arguments += ["--input", f"{name}={place / name}.npy"]
    return arguments


@pytest.mark.parametrize("n", [1, 8, 4096])
@pytest.mark.parametrize("threads", [0, 1, 2])
def test_same_outputs_as_python(program: Path, folder: Path, tmp_path: Path, n: int, threads: int) -> None:
    feeds = feeds_of(n)
    answer = run(program, folder, *inputs(tmp_path, feeds), "--output", tmp_path / "out", "--threads", threads)
    assert answer.returncode == 0, answer.stderr
    assert [Path(line).name for line in answer.stdout.split()] == ["total.npy", "picked.npy", "ranges.npy"]
    outputs = [np.load(line) for line in answer.stdout.split()]
    check(outputs, feeds)
    assert outputs[2].dtype == np.int64


def test_later_npy_versions(program: Path, folder: Path, tmp_path: Path) -> None:
    feeds = feeds_of(8)
    arguments = inputs(tmp_path, feeds)
    with (tmp_path / "x.npy").open("wb") as file:
        np.lib.format.write_array(file, feeds["x"], version=(2, 0))
    answer = run(program, folder, *arguments, "--output", tmp_path / "out")
    assert answer.returncode == 0, answer.stderr
    assert np.load(tmp_path / "out" / "total.npy").shape == (8, 4)


def test_errors(program: Path, folder: Path, tmp_path: Path) -> None:
    feeds = feeds_of(8)
    arguments = [folder, *inputs(tmp_path, feeds), "--output", tmp_path / "out"]

    def error(*given: object) -> str:
        answer = run(program, *given)
        assert answer.returncode == 1
        return answer.stderr

    assert "usage: run_model ARTIFACT" in error()
    assert "usage: run_model ARTIFACT" in error(folder)
    assert "usage: run_model ARTIFACT" in error(folder, "--output")
    assert "cannot read" in error(tmp_path / "none", "--output", tmp_path)
    assert "input 'x' is missing" in error(folder, "--output", tmp_path)
    assert "the name of an input" in error(*arguments, "--input", "z=x.npy")
    assert "threads must be" in error(*arguments, "--threads", "-3")
    np.save(tmp_path / "x.npy", feeds["x"][:3])
    assert "no compiled variant fits" in error(*arguments)
    np.save(tmp_path / "x.npy", feeds["x"].astype(np.float64))
    assert "expected element type 1, got 11" in error(*arguments)
    for bad in (np.asfortranarray(feeds["x"]), feeds["x"].astype(">f4"), np.array(["text"])):
        np.save(tmp_path / "x.npy", bad)
        assert "is no .npy file of a row-major little-endian array" in error(*arguments)
    content = (tmp_path / "y.npy").read_bytes()
    for cut in (0, 5, 9, 40, len(content) - 1):
        (tmp_path / "x.npy").write_bytes(content[:cut])
        assert "is no .npy file" in error(*arguments)

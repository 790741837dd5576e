"""Tests that ask the processor what it has, on an emulated one with AVX2 and nothing wider.

ONNX Runtime saturates sums of 8-bit products there: no test may take its answers for the truth."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]

ASKING = (
    "tests/unit/test_target.py",
    "tests/unit/ops/test_microsoft_quantized.py",
    "tests/unit/ops/test_microsoft_standing.py",
    "tests/unit/verify/test_reference.py",
    "tests/unit/runtime/test_open.py::test_processor_features_agree_with_the_system",
)
"""Tests of the processor, of what it refuses, and of integers of 8 bits. The emulator takes ten times as long."""

WIDER = re.compile(r"avx_?512\w*|avx\w*_vnni|amx\w*")
"""Flags of processors that came later."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the emulated processor runs this system's programs"),
    pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="there is no emulator: apt install qemu-user"),
]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose files the emulator shows instead of this system's: what Linux says of that processor."""
    folder = tmp_path_factory.mktemp("haswell")
    (folder / "proc").mkdir()
    (folder / "proc/cpuinfo").write_text(WIDER.sub("", Path("/proc/cpuinfo").read_text()))
    return folder


def emulated(system: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python of that processor. What it starts runs on this one."""
    command = ["qemu-x86_64", "-cpu", "Haswell", "-L", str(system), sys.executable, *arguments]
    path = os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY)))
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False
    )


def test_the_emulated_processor_is_the_smaller_one(system: Path) -> None:
    answer = emulated(system, "-c", "from opweld.target import Target; print(Target.native().name)")
    assert answer.stdout == "x86-64-v3\n", answer.stderr[-2000:]


@pytest.mark.parametrize("tests", ASKING)
def test_what_asks_the_processor_passes(system: Path, tests: str) -> None:
    answer = emulated(system, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests)
    assert answer.returncode == 0, answer.stdout[-4000:] + answer.stderr[-2000:]

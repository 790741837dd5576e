"""The runtime under a race detector: several callers, several threads a call, errors on the way."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from opweld.runtime.library import c_headers
from tests.patience import PATIENCE_S
from tests.unit.runtime.conftest import roomy_sources, steady

HERE = Path(__file__).parent


def compiled(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


def test_no_races(tmp_path: Path) -> None:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc")
    flags = ["-std=gnu11", "-O1", "-g", "-fsanitize=thread", f"-I{tmp_path}", "-fPIC"]
    (tmp_path / "probe.c").write_text("int main(void) { return 0; }\n")
    probe = [gcc, *flags, str(tmp_path / "probe.c"), "-o", str(tmp_path / "probe")]
    if compiled(probe).returncode or compiled([str(tmp_path / "probe")]).returncode:
        pytest.skip("needs gcc's thread sanitizer, and a kernel that it runs on")
    for name, text in (c_headers() | steady(roomy_sources())).items():
        (tmp_path / name).write_text(text)
    folder = tmp_path / "m.opweld"
    folder.mkdir()
    (folder / "weights.bin").touch()
    # Callers that get one thread wait in vain for the other side, and whether the sides meet is not asked here.
    meeting = "-DMEET_NS=1000000"
    module = [gcc, *flags, meeting, "-shared", str(HERE / "phases.c"), "-o", str(folder / "module.so")]
    sources = [str(tmp_path / name) for name in roomy_sources()]
    program = [gcc, *flags, str(HERE / "callers.c"), *sources, "-o", str(tmp_path / "callers"), "-ldl", "-lpthread"]
    for command in (module, program):
        answer = compiled(command)
        assert answer.returncode == 0, answer.stderr
    answer = compiled([str(tmp_path / "callers"), str(folder)])
    assert answer.returncode == 0, answer.stderr[:4000]
    assert "WARNING" not in answer.stderr, answer.stderr[:4000]

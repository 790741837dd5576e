"""Threads that are late: a call waits for pieces of work, never for a thread; also under a race detector."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from opweld.runtime.library import c_headers
from tests.patience import PATIENCE_S
from tests.unit.runtime.conftest import roomy_sources

HERE = Path(__file__).parent
SANITIZERS = {"plain": (), "races": ("-fsanitize=thread",), "memory": ("-fsanitize=address,undefined",)}

HOLD = "void hold(const char *where, int worker);\n#define OPW_HOLD(where, worker) hold(where, worker)\n"


@pytest.fixture(scope="module", params=list(SANITIZERS))
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """late.c with a runtime of eight processors that can be held, and its artifact."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc")
    place = tmp_path_factory.mktemp("late")
    flags = ["-std=gnu11", "-O1", "-g", *SANITIZERS[request.param], f"-I{place}", "-fPIC"]
    (place / "probe.c").write_text("int main(void) { return 0; }\n")
    probe = [gcc, *flags, str(place / "probe.c"), "-o", str(place / "probe")]
    if answer_of(probe).returncode or answer_of([str(place / "probe")]).returncode:
        pytest.skip("needs gcc's sanitizers, and a kernel that they run on")
    headers = c_headers()
    headers["runtime.h"] = HOLD + headers["runtime.h"]
    for name, text in (headers | roomy_sources()).items():
        (place / name).write_text(text)
    folder = place / "m.opweld"
    folder.mkdir()
    (folder / "weights.bin").touch()
    module = [gcc, *flags, "-shared", str(HERE / "chain.c"), "-o", str(folder / "module.so")]
    sources = [str(place / name) for name in roomy_sources()]
    late = [gcc, *flags, str(HERE / "late.c"), *sources, "-o", str(place / "late"), "-ldl", "-lpthread"]
    for command in (module, late):
        answer = answer_of(command)
        assert answer.returncode == 0, answer.stderr
    return [str(place / "late"), str(folder)]


def answer_of(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize("scene", ["join", "open", "piece", "random"])
def test_late_threads(program: list[str], scene: str) -> None:
    answer = answer_of([*program, scene])
    assert (answer.returncode, answer.stdout) == (0, "done\n"), answer.stderr[:4000]
    assert "WARNING" not in answer.stderr, answer.stderr[:4000]

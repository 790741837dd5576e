"""Threads that are late: a call waits for pieces of work, never for a thread; also under a race detector."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from opweld.runtime.library import c_headers
from tests.patience import PATIENCE_S
from tests.unit.runtime.conftest import roomy_sources

HERE = Path(__file__).parent
SANITIZERS = {"plain": (), "races": ("-fsanitize=thread",), "memory": ("-fsanitize=address,undefined",)}

HOLD = "void hold(const char *where, int worker);\n#define OPW_HOLD(where, worker) hold(where, worker)\n"


EDITS = {
    "sleepers": {"IDLE_SPIN_NS 50000": "IDLE_SPIN_NS 0", "PHASE_SPIN_NS 500000": "PHASE_SPIN_NS 0"},
    "few pieces": {"OPW_MAX_PIECES 1000000": "OPW_MAX_PIECES 20"},
    "few phases": {"OPW_MAX_SHARED_PHASES 16000000": "OPW_MAX_SHARED_PHASES 4"},
}
"""Limits that no plan comes near, and threads that sleep whenever they wait."""


def program_of(place: Path, sanitizers: Sequence[str], edits: Mapping[str, str]) -> list[str]:
    """late.c with a runtime of eight processors that can be held, and its artifact."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc")
    flags = ["-std=gnu11", "-O1", "-g", *sanitizers, f"-I{place}", "-fPIC"]
    (place / "probe.c").write_text("int main(void) { return 0; }\n")
    probe = [gcc, *flags, str(place / "probe.c"), "-o", str(place / "probe")]
    if answer_of(probe).returncode or answer_of([str(place / "probe")]).returncode:
        pytest.skip("needs gcc's sanitizers, and a kernel that they run on")
    texts = c_headers() | roomy_sources()
    texts["runtime.h"] = HOLD + texts["runtime.h"]
    for old, new in edits.items():
        assert sum(text.count(old) for text in texts.values()) == 1, old
        texts = {name: text.replace(old, new) for name, text in texts.items()}
    for name, text in texts.items():
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


@pytest.fixture(scope="module", params=list(SANITIZERS))
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return program_of(tmp_path_factory.mktemp("late"), SANITIZERS[request.param], {})


@pytest.mark.parametrize("scene", ["join", "open", "piece", "random"])
def test_late_threads(program: list[str], scene: str) -> None:
    answer = answer_of([*program, scene])
    assert (answer.returncode, answer.stdout) == (0, "done\n"), answer.stderr[:4000]
    assert "WARNING" not in answer.stderr, answer.stderr[:4000]


@pytest.mark.parametrize("name", list(EDITS))
def test_limits(name: str, tmp_path: Path) -> None:
    answer = answer_of([*program_of(tmp_path, SANITIZERS["races"], EDITS[name]), "random"])
    assert (answer.returncode, answer.stdout) == (0, "done\n"), answer.stderr[:4000]
    assert "WARNING" not in answer.stderr, answer.stderr[:4000]

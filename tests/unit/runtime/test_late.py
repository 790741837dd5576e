"""Threads that are late: a call waits for pieces of work, never for a thread; also under a race detector."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from opweld.runtime.library import SOURCE_FOLDER, c_headers
from tests.patience import PATIENCE_S
from tests.unit.runtime.conftest import roomy_sources, steady

HERE = Path(__file__).parent
SANITIZERS = {"plain": (), "races": ("-fsanitize=thread",), "memory": ("-fsanitize=address,undefined",)}

HOLD = "void hold(const char *where, int worker);\n#define OPW_HOLD(where, worker) hold(where, worker)\n"


EDITS = {
    "sleepers": {"IDLE_SPIN_NS 50000": "IDLE_SPIN_NS 0", "PHASE_SPIN_NS 100000": "PHASE_SPIN_NS 0"},
    "few pieces": {"OPW_MAX_PIECES 1000000": "OPW_MAX_PIECES 20"},
    "few phases": {"OPW_MAX_SHARED_PHASES 16000000": "OPW_MAX_SHARED_PHASES 4"},
}
"""Limits that no plan comes near, and threads that sleep whenever they wait."""


def program_of(
    place: Path,
    sanitizers: Sequence[str],
    edits: Mapping[str, str],
    program: str = "late.c",
    sources_of: Callable[[dict[str, str]], dict[str, str]] = steady,
) -> list[str]:
    """A program with a runtime of eight processors that can be held, and the artifact of chain.c."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc")
    flags = ["-std=gnu11", "-O1", "-g", *sanitizers, f"-I{place}", "-fPIC"]
    (place / "probe.c").write_text("int main(void) { return 0; }\n")
    probe = [gcc, *flags, str(place / "probe.c"), "-o", str(place / "probe")]
    if answer_of(probe).returncode or answer_of([str(place / "probe")]).returncode:
        pytest.skip("needs gcc's sanitizers, and a kernel that they run on")
    texts = c_headers() | sources_of(roomy_sources())
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
    late = [gcc, *flags, str(HERE / program), *sources, "-o", str(place / "late"), "-ldl", "-lpthread"]
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


RESTS = """\
quiet: 100 of 100
no faster than one: 100 of 100
a serial step of a worker: 100 of 100
a core is lost once, then quiet: 20 of 20
weights are read from disk, then quiet: 20 of 20
late: 5, then alone 42
still late: 1, then alone 42
quiet again: 100 of 100
long ones: 6, then alone 4
many threads, some of them late: 100 of 100
"""


def test_runs_that_were_late_are_followed_by_runs_alone(tmp_path: Path) -> None:
    """By what runs tell: one no faster than one thread is not late, nor is one that waits for work of others."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc")
    command = [gcc, "-std=gnu11", f"-I{SOURCE_FOLDER}", str(HERE / "rests.c"), "-o", str(tmp_path / "rests")]
    assert answer_of(command).returncode == 0
    assert answer_of([str(tmp_path / "rests")]).stdout == RESTS


LOADED = """\
quiet: 20 of 20 with workers
late: alone 1, 0 of 20 with workers
tried again: 1 with workers, alone 1, 0 of 20 with workers
quiet again: 20 of 20 with workers
"""

OWN_CLOCKS = {f"int64_t {name}(void) {{": f"int64_t system_{name}(void) {{" for name in ("opw_now", "opw_core_time")}


@pytest.mark.parametrize("name", list(SANITIZERS))
def test_a_loaded_machine_is_noticed_and_forgotten(name: str, tmp_path: Path) -> None:
    """A worker loses its core with a piece in each run, by the test's own clocks, until the load is gone."""
    answer = answer_of(program_of(tmp_path, SANITIZERS[name], OWN_CLOCKS, "loaded.c", dict))
    assert (answer.returncode, answer.stdout) == (0, LOADED), answer.stderr[:4000]
    assert "WARNING" not in answer.stderr, answer.stderr[:4000]

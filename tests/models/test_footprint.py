"""What an artifact costs before it computes: time to import, to open, and what comes along."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import opweld
from tests.models.conftest import REPOSITORY, Served
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.models

COMPILE_SECONDS = 60.0
"""A cold compilation takes less than 20 s where nothing else runs."""

OPEN_SECONDS = 0.2
IMPORT_SECONDS = 0.15

TRIES = 5

COMPILER = {"onnx", "onnx_ir", "ml_dtypes", "ziglang", "rich", "typer", "onnxruntime", "torch"}


def test_cold_compilation(model: Served, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n{model.name}: compiled in {model.compile_seconds:.1f} s")
    assert model.compile_seconds < COMPILE_SECONDS


def test_a_cached_session_opens_at_once(model: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """The model was compiled in this process: what is timed is hashing, finding and opening, not importing."""
    times: list[float] = []
    for _ in range(TRIES):
        start = time.perf_counter()
        session = opweld.InferenceSession(str(model.source))
        times.append(time.perf_counter() - start)
        del session
    with capsys.disabled():
        sys.stdout.write(f"\n{model.name}: cached session in {min(times) * 1e3:.0f} ms")
    assert min(times) < OPEN_SECONDS


def test_a_cached_session_opens_at_once_in_a_new_process(model: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """opweld's imports included, of which none belongs to ONNX or the compiler; NumPy's are not, who feeds a session
    has it.

    Processor time, as others may use the machine, of the one thread that opens the session: the threads that NumPy's
    BLAS starts on import spin for a while, and would double it."""
    code = (
        "import sys, time, numpy; start = time.thread_time(); import opweld\n"
        f"opweld.InferenceSession({str(model.source)!r}); took = time.thread_time() - start\n"
        "print(took, *sorted({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names))"
    )
    answers = [python(code) for _ in range(TRIES)]
    seconds = min(float(answer[0]) for answer in answers)
    with capsys.disabled():
        sys.stdout.write(f"\n{model.name}: cached session in {seconds * 1e3:.0f} ms, imports included")
    assert not COMPILER & set(answers[0][1:])
    assert seconds < OPEN_SECONDS


def test_an_artifact_opens_at_once(model: Served) -> None:
    assert len(model.opening) == 2
    assert min(model.opening) < OPEN_SECONDS


def test_running_imports_numpy_alone(model: Served) -> None:
    assert set(model.packages) == {"numpy", "opweld"}


def test_import_is_quick(capsys: pytest.CaptureFixture[str]) -> None:
    code = "import time; start = time.perf_counter(); import opweld; print(time.perf_counter() - start)"
    seconds = min(float(python(code)[0]) for _ in range(TRIES))
    with capsys.disabled():
        sys.stdout.write(f"\nimport opweld in {seconds * 1e3:.1f} ms")
    assert seconds < IMPORT_SECONDS


def python(code: str) -> list[str]:
    """The words that a program prints which finds this repository's opweld, and the cache of this test run.

    Modules are read as bytecode, as where opweld was installed, also where this process is told not to write any."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(os.environ["OPWELD_CACHE"]) / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    prelude = f"import sys; sys.path.insert(0, {str(REPOSITORY / 'src')!r})\n"
    command = [sys.executable, "-c", prelude + code]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=environment)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.split()

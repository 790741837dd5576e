"""What an artifact needs before it computes. How long it takes is measured by benchmarks.performance."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import opweld
from tests.models.conftest import REPOSITORY, Served
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.models

COMPILER = {"onnx", "onnx_ir", "ml_dtypes", "ziglang", "rich", "typer", "onnxruntime", "torch"}


@pytest.fixture
def cached(model: Served) -> Served:
    """A model that is in the cache, from which those that were compiled since may have driven it."""
    opweld.compile(model.source)
    return model


def test_a_cached_session_is_not_compiled(cached: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a model that is in the cache is read again")

    monkeypatch.setattr("opweld.pipeline.read", fail)
    monkeypatch.setattr("opweld.frontend.onnx.load_file", fail)
    assert opweld.InferenceSession(str(cached.source)).get_outputs()


def test_a_cached_session_needs_no_compiler(cached: Served) -> None:
    """None of what is imported to open it belongs to ONNX or the compiler."""
    code = (
        f"import sys, opweld\nopweld.InferenceSession({str(cached.source)!r})\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names))"
    )
    assert not COMPILER & set(python(code))


def test_running_imports_numpy_alone(model: Served) -> None:
    assert set(model.packages) == {"numpy", "opweld"}


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

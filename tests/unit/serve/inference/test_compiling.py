"""Processes that compile, and how they end."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from opweld.errors import ClosedError, ToolchainError
from opweld.serve.inference.compiling import Compiler
from tests.patience import PATIENCE_S


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A model whose reading does not end."""
    os.mkfifo(tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_what_is_being_compiled_ends_with_its_compiler(endless: Path) -> None:
    compiler = Compiler()
    with ThreadPoolExecutor() as threads:
        found = threads.submit(compiler.compiled, endless)
        while not compiler._running:
            pass
        compiler.close()
        with pytest.raises(ToolchainError, match="ended with status -9"):
            found.result(PATIENCE_S)
    with pytest.raises(ClosedError, match="are being closed"):
        compiler.compiled(endless)


def test_it_ends_with_who_waits_for_it(endless: Path) -> None:
    command = [sys.executable, "-m", "opweld.serve.inference.compiling", str(endless)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as run:
        assert run.stdin is not None
        run.stdin.close()
        assert run.wait(PATIENCE_S) == 1

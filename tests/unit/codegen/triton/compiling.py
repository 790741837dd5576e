"""Runs code where Triton compiles: in a process without TRITON_INTERPRET, with a cache of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S


def run_compiling(code: str, folder: Path, *arguments: str) -> Any:
    """What the code prints, as JSON."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(folder / "triton")
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    answer = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        env=environment,
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)

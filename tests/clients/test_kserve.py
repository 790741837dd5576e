"""KServe's clients, in an environment of their own: they want other versions of pandas and protobuf than opweld's."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.clients.repository import served, write_models
from tests.patience import PATIENCE_S

HERE: Final = Path(__file__).parent
CACHE: Final = Path.home() / ".cache" / "opweld" / "clients"
"""Where the environment stays."""

INSTALL: Final = "OPWELD_INSTALL_CLIENTS"
"""A variable that lets it be made, which takes minutes."""


@pytest.fixture(scope="module")
def python() -> Path:
    """An interpreter that has what kserve.txt says."""
    pins = HERE / "kserve.txt"
    (kserve,) = (line for line in pins.read_text().splitlines() if line.startswith("kserve=="))
    place = CACHE / f"{kserve}-{sys.implementation.cache_tag}"
    if not place.exists():
        if INSTALL not in os.environ:
            pytest.skip(f"{kserve} and its packages, 300 MB, are not installed; {INSTALL}=1 installs them")
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            made = Path(folder) / "made"
            venv.create(made, with_pip=True)
            install = [
                str(made / "bin/python"),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--requirement",
                str(pins),
            ]
            installed = subprocess.run(install, capture_output=True, text=True, timeout=PATIENCE_S)
            if installed.returncode:
                pytest.skip(f"pip cannot install {kserve} here: {installed.stderr[-300:]}")
            with suppress(OSError):  # another process made it meanwhile
                made.rename(place)
    return place / "bin" / "python"


@pytest.mark.slow
def test_clients(python: Path, tmp_path: Path) -> None:
    write_models(tmp_path)
    with served(f"simple={tmp_path}/simple/1/model.onnx") as addresses:
        command = [str(python), str(HERE / "kserve_program.py"), *addresses]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.stdout == "all of it\n", ran.stderr

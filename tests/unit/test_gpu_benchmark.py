"""`python -m benchmarks.gpu`: parts in processes of their own, of which each may fail. These need no GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu

PARTS = {
    "whole": """
from dataclasses import dataclass
import numpy as np

@dataclass
class Row:
    name: str
    rate: float

def main(quick):
    print("measuring")
    return {"quick": quick, "rows": [Row("copy", np.float32(2.5))]}
""",
    "failing": """
def main(quick):
    yield {"rate": 1}
    yield {"rate": 2}
    raise RuntimeError("an illegal memory access")
""",
    "dying": """
import os, signal

def main(quick):
    os.kill(os.getpid(), signal.SIGSEGV)
""",
    "endless": """
import time

def main(quick):
    time.sleep(100000)
""",
}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name, text in PARTS.items():
        (tmp_path / f"part_{name}.py").write_text(text)
    root = Path(gpu.__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{root}:{root / 'src'}")
    return {name: f"part_{name}" for name in PARTS}


def run(modules: dict[str, str], *names: str, limit: float = 600, file: Path | None = None) -> dict[str, Any]:
    return gpu.run({name: modules[name] for name in names}, quick=True, limit=limit, file=file)["parts"]


def test_what_a_part_returns_is_its_result(modules: dict[str, str]) -> None:
    found = run(modules, "whole")["whole"]
    assert found["result"] == {"quick": True, "rows": [{"name": "copy", "rate": 2.5}]}
    assert found["error"] == ""
    assert found["seconds"] > 0


def test_a_part_that_fails_keeps_what_it_measured_and_the_others_go_on(
    modules: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gpu.json"
    found = run(modules, "failing", "dying", "whole", file=file)
    assert found["failing"]["result"] == [{"rate": 1}, {"rate": 2}]
    assert found["failing"]["error"].splitlines()[-2:] == ["RuntimeError: an illegal memory access", "exit status 1"]
    assert found["dying"]["error"].splitlines()[-1] == "exit status -11"
    assert found["whole"]["error"] == ""
    assert json.loads(file.read_text())["parts"] == found
    out = capfd.readouterr().out
    assert "RuntimeError: an illegal memory access" in out
    assert "measuring" in out


def test_a_part_that_does_not_end_is_ended(modules: dict[str, str]) -> None:
    found = run(modules, "endless", limit=0)["endless"]
    assert found["error"] == "ended after 0 s"


def test_the_file_has_what_there_is_of_a_part(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    before = {"parts": {"device": {"seconds": 1.0, "result": 1, "error": ""}}}
    gpu._write(before, "kernels", [1, 2], file)
    parts = json.loads(file.read_text())["parts"]
    assert list(parts) == ["device", "kernels"]
    assert parts["kernels"] == {"seconds": None, "result": [1, 2], "error": "has not ended"}


def test_an_unknown_part_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        gpu.main(["devise"])
    assert end.value.code == 2
    assert f"there is no part devise: expected some of {', '.join(gpu.PARTS)}" in capsys.readouterr().err

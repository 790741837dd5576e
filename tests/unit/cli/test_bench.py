"""What `opweld bench` says before it measures, and of what it measured."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from opweld.analysis.disturbance import Disturbance
from opweld.cli.bench import print_rows
from opweld.cli.main import application
from opweld.errors import OptionError
from opweld.experiments import contest as contests
from opweld.experiments.contest import Row, contest
from opweld.experiments.measure import Timing
from opweld.options import Options

OPWELD = application()

QUIET = Disturbance(steal=0.0, others=0.0, switches=0.0, spread=1.0)
ROW = Row(
    model="m",
    level="all",
    inputs={"x": [3, 8]},
    given=[],
    threads=2,
    nodes=3,
    kernels=1,
    error=1e-6,
    timings={"opweld": Timing(2e-3, 3e-3, 1e-3, 9), "onnxruntime": Timing(4e-3, 8e-3, 3e-3, 9)},
    disturbance=QUIET,
    arena_bytes=0,
    tensor_bytes=0,
    moved_bytes=0,
)


@pytest.mark.parametrize("way", ["command", "contest"])
def test_who_is_not_installed_is_told_before_anything_is_compiled(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("compiled")

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr(contests, "open_model", refuse)
    with pytest.raises(OptionError, match=r"onnxruntime is not installed: pip install 'opweld\[onnxruntime\]'"):
        if way == "command":
            CliRunner().invoke(OPWELD, ["bench", "m.onnx", "--rounds", "1"], catch_exceptions=False)
        else:
            contest(Path("m.onnx"), "m", {"all": Options()}, ["onnxruntime"], lambda _: {}, 1)


def test_the_table_has_medians_and_p90(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([ROW], ["onnxruntime"])
    titles, _, cells = capsys.readouterr().out.splitlines()
    assert "opweld ms  opweld p90  onnxruntime ms  onnxruntime p90  ratio" in titles
    assert cells.split()[:10] == ["m", "3", "->", "1", "1.0e-06", "2.00", "3.00", "4.00", "8.00", "2.00"]


def test_a_busy_machine_is_told_before_the_table_once_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    busy = Disturbance(steal=0.25, others=0.5, switches=0.0, spread=1.0)
    rows = [replace(ROW, disturbance=busy), replace(ROW, level="none", disturbance=busy), replace(ROW, model="other")]
    print_rows(rows, ["onnxruntime"])
    warnings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning, ")]
    assert len(warnings) == 1
    assert all(reason in warnings[0] for reason in busy.reasons)

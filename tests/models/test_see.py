"""Every model of the zoo can be seen from all sides: what it costs, where its time goes, as one page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.zoo.catalogue import MODELS
from benchmarks.zoo.fetch import path
from opweld.cli.main import application
from tests.schemas import faults

OPWELD = application()

pytestmark = pytest.mark.models

TINY_S = 1e-3
"""Below it, the call around a run is a part of it that counts."""

ACCOUNTED = 0.8
"""Of a run, what kernels must take on a machine where other programs run too; 0.97 and more where none do."""


def run(*arguments: object) -> None:
    answer = CliRunner().invoke(OPWELD, list(map(str, arguments)))
    assert answer.exit_code == 0, (arguments, answer.output, answer.exception)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_and_its_artifact_are_seen(name: str, tmp_path: Path) -> None:
    files = {command: tmp_path / f"{command}.json" for command in ("analyze", "profile", "explain")}
    artifact, page, trace = tmp_path / "model.opweld", tmp_path / "report.html", tmp_path / "trace.json"
    run("compile", path(name), "-o", artifact)
    run("analyze", path(name), "--json", files["analyze"])
    # one thread: what others do to the second one is not of the model
    run("profile", artifact, "--runs", 6, "--threads", 1, "--json", files["profile"], "--trace", trace)
    run("explain", artifact, "--json", files["explain"])
    run("report", artifact, "-o", page)
    found = {command: json.loads(file.read_text()) for command, file in files.items()}
    for command, data in found.items():
        assert faults(command, data) == [], command
    analysis, profile = found["analyze"], found["profile"]
    assert 0 < analysis["after"]["launches"] <= analysis["before"]["launches"]
    assert analysis["after"]["macs"]["value"] <= analysis["before"]["macs"]["value"]
    assert analysis["memory"]["live"] <= analysis["memory"]["tensors"]
    if profile["latency"]["median"] > TINY_S:
        assert ACCOUNTED < profile["accounted"] <= 1
    assert json.loads(trace.read_text())["traceEvents"]
    assert "<script" in page.read_text(encoding="utf-8")

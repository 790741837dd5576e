"""What making a report takes: one compilation, one computation in float64, inputs that are made up once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from opweld import pipeline
from opweld.cli.main import application
from opweld.experiments import traced
from opweld.verification import reference
from tests.report.documents import document, document_of
from tests.unit.frontend.models import model_of, node

OPWELD = application()


@pytest.mark.parametrize("cached", [False, True])
def test_a_report_compiles_once_and_computes_once_in_float64(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    weight = np.random.default_rng(int(cached)).standard_normal((8, 8), np.float32)
    nodes = [node("MatMul", ["x", "w"], "h"), node("Softmax", ["h"], "p"), node("MatMul", ["p", "w"], "y")]
    model, page = tmp_path / "m.onnx", tmp_path / "m.html"
    model.write_bytes(model_of(nodes, {"x": [4, 8]}, ["y"], {"w": weight}).SerializeToString())
    if cached:
        assert CliRunner().invoke(OPWELD, ["compile", str(model), "-o", str(tmp_path / "m.opweld")]).exit_code == 0
    calls = list[str]()

    def counted(name: str, function: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            calls.append(name)
            return function(*given, **named)

        return call

    for module in (pipeline, traced):
        monkeypatch.setattr(module, "build_artifact", counted("compile", pipeline.build_artifact))
    monkeypatch.setattr("opweld.cli.report._measured", lambda: None)  # of no interest here
    monkeypatch.setattr(reference, "evaluator", counted("float64", reference.evaluator))
    answer = CliRunner().invoke(OPWELD, ["report", str(model), "-o", str(page)])
    assert answer.exit_code == 0
    assert answer.output.count("fed: ") == 1
    assert sorted(calls) == ["compile", "float64"]
    numerics = document_of(page.read_text(encoding="utf-8"))["numerics"]
    shown = document()["numerics"]
    assert [set(numerics[part][0]) for part in ("outputs", "values")] == [
        set(shown[p][0]) for p in ("outputs", "values")
    ]
    assert [output["passed"] for output in numerics["outputs"]] == [True]
    assert "y" in {value["name"] for value in numerics["values"]} and len(numerics["values"]) > 1

"""Questions as functions: what the command line calls, and what it prints of the answers."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from typer.testing import CliRunner

import opweld
from opweld.cli.main import application
from opweld.errors import InputError, OptionError
from opweld.option import entries
from opweld.options import Options

OPWELD = application()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("questions") / "m.onnx"
    text = """<ir_version: 10, opset_import: ["": 21]>
        g (float[batch, 3] x) => (float[batch, 3] y) { r = Relu(x) y = Exp(r) }"""
    onnx.save(parser.parse_model(text), path)
    return path


QUESTIONS: tuple[Callable[..., Any], ...] = (opweld.bench, opweld.bisect, opweld.trace, opweld.verify)


@pytest.mark.parametrize("question", QUESTIONS)
def test_they_are_public_and_take_every_option(question: Callable[..., Any]) -> None:
    assert question.__name__ in dir(opweld)
    assert {entry.name for entry in entries(Options)} < inspect.signature(question).parameters.keys()
    told = inspect.getdoc(question) or ""
    assert "Raises" in told and all(f"    {entry.name}: " in told for entry in entries(Options))


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_misspelt_is_refused(question: Callable[..., Any], model: Path) -> None:
    for wrong in ({"feeds": {"q": 1}}, {"sizes": {"btach": 1}}, {"levle": "all"}, {"seed": -1}):
        with pytest.raises(OptionError):
            question(model, **wrong)
    with pytest.raises(InputError):
        question(model, {"x": np.zeros((2, 5), np.float32)})


def test_a_model_is_right(model: Path) -> None:
    feeds = {"x": np.array([[1, -2, 3]], np.float32)}
    found = opweld.verify(model, feeds)
    assert found.passed and found.error < 1e-6
    assert not opweld.verify(model, feeds, rtol=0, atol=0).passed or found.error == 0
    answer = CliRunner().invoke(OPWELD, ["verify", str(model), "--dim", "batch=1", "--json", "-"])
    assert json.loads(answer.stdout)["passed"] and "fed: x 1x3" in answer.stderr


def test_values_on_the_way_are_compared(model: Path) -> None:
    found = opweld.trace(model, {"x": np.array([[1, -2, 3]], np.float32)}, level="none")
    assert {value.name for value in found.values} == {"r", "y"} and not any(value.wrong for value in found.values)


def test_no_decision_is_at_fault(model: Path) -> None:
    found = opweld.bisect(model, sizes={"batch": 2})
    assert found.whole.good and found.found is None


def test_a_contest_has_a_row_a_level(model: Path) -> None:
    told: list[str] = []
    rows = opweld.bench(
        model, sizes={"batch": 2}, vs=(), levels=("none", "all"), rounds=1,
        progress=lambda what, done, most: told.append(what),
    )  # fmt: skip
    assert [(row.level, row.inputs, row.error) for row in rows] == [(n, {"x": [2, 3]}, None) for n in ("none", "all")]
    assert [row.kernels for row in rows] == [2, 1] and any(what.startswith("timing") for what in told)
    with pytest.raises(OptionError, match="tensorflow"):
        opweld.bench(model, vs=("tensorflow",))

"""Kernels of Triton of other packages: run in Triton's interpreter, compiled ahead of time, checked where a rule has
them measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opweld
from opweld.accounts import account_of
from opweld.cached import compile_model
from opweld.errors import RunError, ToolchainError, UnsupportedError
from opweld.options import Options
from opweld.tune import tried
from opweld.tune.candidates import RIGHT
from tests.patience import PATIENCE_S
from tests.unit.codegen.triton.compiling import run_compiling
from tests.unit.packages import installed, registrations

PACKAGE = """
import numpy as np
from opweld.operators import *
from opweld.rewrite import Proposal, Rule

class Reversed(Rule):
    "A slice of step -1 is the row from its end: a kernel for it."
    name, operators, measured = "beta.reversed", ("Slice",), True

    def look(self, node, scope):
        apply = lambda: scope.replace(node.outputs[0], scope.add(node, "Reverse", [node.inputs[0]], domain="com.beta"))
        return Proposal("it is the row from its end", apply)

TEXT = '''
    @triton.jit
    def beta_reverse(x, y, ERRORn, rows):
        row = tl.program_id(0)
        for first in range(0, n, 64):
            i = first + tl.arange(0, 64)
            value = tl.load(x + row * n + i, mask=i < n)
            tl.store(y + row * n + PLACE, value, mask=i < n)
            REPORT
'''

def of_triton(numbers, rows):
    if numbers[0].constant is None:
        return None
    return TritonKernel(TEXT, grid=rows, warps=1, errors=MESSAGES)

@infers("Reverse", domain="com.beta")
def infer(scope, node):
    fact = scope.fact(required(node, 0))
    return [Fact(fact.dtype, fact.shape)]

@kernel("beta_reverse", triton=of_triton, parts=lambda numbers: (numbers[0],) * 2, work=lambda numbers: numbers[0])
def reverse(x, y, n):
    y[:] = x[::-1]

@lowers("Reverse", domain="com.beta")
def lower(scope, node):
    fact = scope.fact(required(node, 0))
    *rows, n = fact.shape
    x = scope.tensor(required(node, 0))
    made, = scope.extern("beta_reverse", [x], [(fact.dtype, fact.shape)], [n], product(rows))
    scope.alias(node.outputs[0], made)

@computes("Reverse", domain="com.beta")
def compute(x):
    return x[:, ::-1]
"""

OWN = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21, "com.beta" : 1]>
    g (float[rows, 100] x) => (float[rows, 100] y) { a = Relu (x) b = com.beta.Reverse (a) y = Neg (b) }""")
OF_ANY_LENGTH = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21, "com.beta" : 1]>
    g (float[rows, n] x) => (float[rows, n] y) { y = com.beta.Reverse (x) }""")
SLICED = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
    g (float[rows, 100] x) => (float[rows, 100] y) <int64[1] starts = {-1}, int64[1] ends = {-1000},
        int64[1] axes = {1}, int64[1] steps = {-1}> {
        a = Relu (x) [slice] b = Slice (a, starts, ends, axes, steps) y = Neg (b) }""")

Package = Callable[..., Any]


@pytest.fixture
def package(tmp_path: Path, cache_without_models: Path) -> Package:
    """The package, whose kernel writes to this place, and reports so."""

    @contextmanager
    def there(place: str = "n - 1 - i", report: str = "", rules: bool = False, text: str = PACKAGE) -> Generator[None]:
        folder = tmp_path / f"package{len(list(tmp_path.glob('package*')))}"
        folder.mkdir()
        own = text.replace("PLACE", place).replace("REPORT", report).replace("ERROR", "error, " if report else "")
        (folder / "beta.py").write_text(own.replace("MESSAGES", "('there is a negative number',)" if report else "()"))
        points = {"opweld.operators": {"beta": "beta"}} | ({"opweld.rules": {"beta": "beta:Reversed"}} if rules else {})
        with registrations(), installed(folder, points):
            yield

    return there


def reversed_rows(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return -np.maximum(x, 0)[:, ::-1]


def test_a_kernel_of_triton_is_one_of_the_model(package: Package) -> None:
    with package():
        model = opweld.compile(OWN, target="sm_90")
        text = (model.path / "kernels.py").read_text(encoding="utf-8")
        assert "def beta_reverse_1(x, y, n, rows):" in text
        x = np.random.default_rng(0).standard_normal((3, 100), np.float32)
        np.testing.assert_array_equal(model.run({"x": x})["y"], reversed_rows(x))
        assert model.verify().passed


def test_where_it_has_none_the_processor_computes(package: Package) -> None:
    with package():
        model = opweld.compile(OF_ANY_LENGTH, target="sm_90")
        (variant,) = json.loads((model.path / "cuda.json").read_text(encoding="utf-8"))["variants"].values()
        assert [step["kind"] for step in variant["steps"]] == ["host"]
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        assert model.run({"x": x})["y"].tolist() == x[:, ::-1].tolist()


def test_what_it_reports_ends_the_run(package: Package) -> None:
    report = "tl.atomic_max(error + 0 * i, 1, mask=(i < n) & (value == 0.0))"
    with package(report=report):
        model = opweld.compile(OWN, target="sm_90")
        model.run({"x": np.ones((2, 100), np.float32)})
        with pytest.raises(RunError, match=r"Reverse.*there is a negative number"):
            model.run({"x": -np.ones((2, 100), np.float32)})


def test_processors_take_none_of_triton(package: Package) -> None:
    with package(), pytest.raises(UnsupportedError, match="'beta_reverse' is of Triton alone"):
        opweld.compile(OWN)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("ERRORn, rows", "rows", r"takes 3 parameters \(x, y, rows\), expected 4: 2 pointers, 1 numbers, and the rows"),
        ("def beta_reverse(", "def other(", "defines no function of this name"),
        ("row = tl", "row = = tl", "is no Python"),
    ],
)
def test_a_text_that_does_not_fit_is_named(package: Package, before: str, after: str, why: str) -> None:
    with package(text=PACKAGE.replace(before, after)), pytest.raises(ToolchainError, match=f"'beta_reverse'.*{why}"):
        opweld.compile(OWN, target="sm_90")


def test_a_candidate_is_checked_and_not_kept_where_nothing_is_timed(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tried, "PATIENCE", PATIENCE_S)
    x = np.random.default_rng(0).standard_normal((3, 100), np.float32)
    for place, why in (("n - 1 - i", RIGHT), ("i", "it answers differently: y by")):
        with package(place, rules=True):
            path = compile_model(SLICED, Options(target="sm_90"))
            (decided,) = [d for d in account_of(path).ledger if d.rule == "beta.reversed"]
            assert decided.taken == "as written" and decided.reason.startswith(why)
            np.testing.assert_array_equal(opweld.load(path).run({"x": x})["y"], reversed_rows(x))
    with package(rules=True):
        pinned = opweld.compile(SLICED, target="sm_90", pins={decided.id: "rewritten"})
        assert "def beta_reverse" in (pinned.path / "kernels.py").read_text(encoding="utf-8")
        np.testing.assert_array_equal(pinned.run({"x": x})["y"], reversed_rows(x))


AHEAD = """
import json, sys
sys.path.insert(0, sys.argv[1])
import beta, opweld
from tests.unit.ops.test_triton_kernel import OWN
model = opweld.compile(OWN, target="sm_80")
print(json.dumps(json.loads((model.path / "cuda.json").read_text())["codes"]))
"""


def test_it_is_compiled_ahead_of_time(tmp_path: Path) -> None:
    text = PACKAGE.replace("PLACE", "n - 1 - i").replace("REPORT", "").replace("ERROR", "").replace("MESSAGES", "()")
    (tmp_path / "beta.py").write_text(text)
    codes = run_compiling(AHEAD, tmp_path, str(tmp_path))
    (own,) = [code for name, code in codes.items() if name.startswith("beta_reverse")]
    assert own["warps"] == 1 and own["spills"] == 0
    assert [kind for _, kind in own["parameters"]][:4] == ["*fp32", "*fp32", "i32", "i32"]

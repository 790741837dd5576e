"""Kernels of other packages: C functions that lowerings call."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opweld
from opweld import extensions, ir
from opweld.errors import OpweldError, ToolchainError
from opweld.operators import DType, Fact, Inference, Lowering, computes, infers, kernel, lowers, required
from tests.unit.packages import registrations

Array = np.ndarray[Any, Any]

TEXT = "g (T[rows, n] x, int64[rows] at) => (T[rows] y) { a = Neg(x) b = com.acme.Take(a, at) y = Abs(b) }"

SOURCE = """
#define ACME_TAKE(T, element)                                                                            \\
    static void acme_take_##T(const element *row, const int64_t *at, element *taken, int64_t n, int64_t *error) { \\
        if (*at < 0 || *at >= n) {                                                                       \\
            *error = OPW_BAD_INDEX;                                                                      \\
            return;                                                                                      \\
        }                                                                                                \\
        *taken = row[*at];                                                                               \\
    }
ACME_TAKE(f32, float)
ACME_TAKE(i32, int32_t)
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    with registrations():
        yield


def take(row: Array, at: Array, taken: Array, n: int) -> None:
    taken[0] = row[at[0]]


def register(source: str = SOURCE) -> None:
    kernel("acme_take", source=source, parts=lambda n: (n[0], 1, 1), work=lambda n: 1)(take)

    @infers("Take", domain="com.acme")
    def infer(scope: Inference, node: ir.Node) -> list[Fact]:
        fact = scope.fact(required(node, 0))
        return [Fact(fact.dtype, fact.shape[:1])]

    @lowers("Take", domain="com.acme")
    def lower(scope: Lowering, node: ir.Node) -> None:
        x, at = required(node, 0), required(node, 1)
        (rows, n), dtype = scope.fact(x).shape, scope.fact(x).dtype
        (made,) = scope.extern("acme_take", [scope.tensor(x), scope.tensor(at)], [(dtype, (rows,))], [n], rows)
        scope.alias(node.outputs[0], made)

    @computes("Take", domain="com.acme")
    def compute(x: Array, at: Array) -> Array:
        return np.take_along_axis(x, at[:, None], 1)[:, 0]

    assert infer and lower and compute


def model(element: str = "float") -> onnx.ModelProto:
    text = TEXT.replace("T[", f"{element}[")
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21, "com.acme" : 1]> {text}')


@pytest.mark.parametrize("dtype", ["float", "int32"])
def test_it_is_called_for_the_type_of_its_first_operand(dtype: str) -> None:
    register()
    compiled = opweld.compile(model(dtype), threads=2)
    assert compiled.session.manifest.kernels == 3, "what is around it stays apart"
    x = (np.random.default_rng(0).standard_normal((50, 7)) * 9).astype("float32" if dtype == "float" else dtype)
    at = np.arange(50) % 7
    np.testing.assert_array_equal(compiled.run({"x": x, "at": at})["y"], np.abs(x[np.arange(50), at]))
    assert compiled.verify({"x": x, "at": at}).passed


def test_it_tells_errors() -> None:
    register()
    compiled = opweld.compile(model())
    with pytest.raises(OpweldError, match="index"):
        compiled.run({"x": np.ones((2, 3), np.float32), "at": np.array([0, 3])})


def test_what_does_not_compile_says_so() -> None:
    register("static void acme_take_f32(const float *row) { nonsense }")
    with pytest.raises(ToolchainError, match="nonsense"):
        opweld.compile(model())


def test_another_text_is_another_kernel() -> None:
    register()
    feeds = {"x": np.ones((1, 3), np.float32), "at": np.array([2])}
    assert opweld.compile(model()).run(feeds)["y"] == 1
    register(SOURCE.replace("= row[*at]", "= 5 * row[*at]"))
    assert opweld.compile(model()).run(feeds)["y"] == 5


@pytest.mark.parametrize(
    ("name", "source", "why"),
    [
        ("Take", "x", "not a name of a C"),
        ("acme_take", " ", "no source"),
        ("order", "x", "registered by opweld"),
    ],
)
def test_refused(name: str, source: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        kernel(name, source=source, parts=lambda n: (n[0], 1, 1), work=lambda n: 1)(take)


def test_its_file_counts_as_text_of_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "acme_with_c"
    package.mkdir()
    (package / "__init__.py").write_text("from opweld.extensions import note\nnote(__name__)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    digests: set[str] = set()
    for text in ("int one;", "int two;"):
        (package / "kernel.c").write_text(text)
        sys.modules.pop("acme_with_c", None)
        __import__("acme_with_c")
        digests.add(extensions.digest())
    sys.modules.pop("acme_with_c", None)
    assert len(digests) == 2


def test_scratch_is_each_callers_own() -> None:
    source = """
    static void acme_sum_f32(const float *x, float *y, float *own, int64_t n, int64_t *error) {
        (void)error;
        for (int64_t i = 0; i < n; i++) own[i] = x[i] + (i ? own[i - 1] : 0);
        *y = n ? own[n - 1] : 0;
    }"""

    @kernel(
        "acme_sum",
        source=source,
        parts=lambda n: (n[0], 1),
        work=lambda n: n[0],
        scratch=lambda n: ((DType.F32, n[0]),),
    )
    def total(x: Array, y: Array, n: int) -> None:
        y[0] = x.sum()

    @infers("Total", domain="com.acme")
    def infer(scope: Inference, node: ir.Node) -> list[Fact]:
        return [Fact(DType.F32, scope.fact(required(node, 0)).shape[:1])]

    @lowers("Total", domain="com.acme")
    def lower(scope: Lowering, node: ir.Node) -> None:
        x = required(node, 0)
        rows, n = scope.fact(x).shape
        scope.alias(node.outputs[0], *scope.extern("acme_sum", [scope.tensor(x)], [(DType.F32, (rows,))], [n], rows))

    text = "g (float[rows, n] x) => (float[rows] y) { y = com.acme.Total(x) }"
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21, "com.acme" : 1]> {text}')
    x = np.arange(300 * 200, dtype=np.float32).reshape(300, 200) % 7
    np.testing.assert_array_equal(opweld.compile(made, threads=2).run({"x": x})["y"], x.sum(1))
    assert total and infer and lower

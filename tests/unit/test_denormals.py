"""Numbers below the smallest normal one: kept by default, whatever the application's threads are set to, and zero where
that is asked for."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import opweld
from opweld.build.toolchain import build_shared
from opweld.errors import OptionError
from opweld.options import LevelName
from opweld.runtime.session import Session
from opweld.target import Target

Array = np.ndarray[Any, Any]

WEIGHTS = np.array([[1, 1e-37, 1e-41]] * 3, np.float32)
"""A column that is used, and two such as training leaves behind: weights that are small, and denormal."""

SEEN_BY = {
    "product": ("float[N, 3] y", "y = Mul (products, large)"),
    "second product": ("float[N, 3] y", "y = MatMul (products, diagonal)"),
    "cast": ("bool[N, 3] y", "y = Cast <to = 9> (products)"),
    "sign": ("float[N, 3] y", "y = Sign (products)"),
    "comparison": ("bool[N, 3] y", "y = Greater (products, zero)"),
    "argmax": ("int64[N, 1] y", "tail = Slice (products, one, three, one) y = ArgMax <axis = 1> (tail)"),
    "own maximum": ("float[N, 3] y", "most = ReduceMax <keepdims = 1> (products, first) y = Div (products, most)"),
    "bias": ("float[N, 3] y", "sum = Add (products, bias) y = Mul (sum, large)"),
}
"""Operators by which a product of small weights becomes visible: outputs, nodes."""

CONTROL = """
#include <stdint.h>
#if defined(__aarch64__)
#define ZERO (1 << 24)
static uint64_t get(void) { uint64_t w; __asm__ volatile("mrs %0, fpcr" : "=r"(w)); return w; }
static void set(uint64_t w) { __asm__ volatile("msr fpcr, %0" : : "r"(w)); }
#else
#define ZERO (1 << 6 | 1 << 15)
static uint64_t get(void) { return __builtin_ia32_stmxcsr(); }
static void set(uint64_t w) { __builtin_ia32_ldmxcsr((unsigned)w); }
#endif
__attribute__((visibility("default"))) int32_t zeroes(void) { return (get() & ZERO) == ZERO; }
__attribute__((visibility("default"))) void zero(int32_t on) { set(on ? get() | ZERO : get() & ~(uint64_t)ZERO); }
"""


def model_of(outputs: str, nodes: str) -> onnx.ModelProto:
    """x [N, 3] by WEIGHTS, and `nodes` after that."""
    text = f'<ir_version: 10, opset_import: ["" : 20]> tiny (float[N, 3] x) => ({outputs}) {{'
    model = onnx.parser.parse_model(f"{text} products = MatMul (x, w) {nodes} }}")
    constants = {
        "w": WEIGHTS,
        "large": np.array([1, 1e37, 1e38], np.float32),
        "diagonal": np.diag([1, 1e37, 1e38]).astype(np.float32),
        "bias": np.array([0, 1e-38, 1e-42], np.float32),
        "zero": np.zeros(1, np.float32),
        "one": np.array([1]),
        "three": np.array([3]),
        "first": np.array([0]),
    }
    read = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in constants.items() if name in read)
    return model


def control_word(folder: Path) -> ctypes.CDLL:
    """Sets what the calling thread makes of denormal numbers, and tells."""
    shared = folder / "control.so"
    build_shared({"control.c": CONTROL}, shared, target=Target.native(), headers={}, flags=())
    return ctypes.CDLL(str(shared))


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return control_word(tmp_path_factory.mktemp("control"))


@pytest.fixture
def zeroing_caller(control: ctypes.CDLL) -> Iterator[ctypes.CDLL]:
    """A thread that takes denormal numbers for 0, as programs that were linked with -ffast-math do."""
    control.zero(1)
    yield control
    control.zero(0)


@pytest.mark.parametrize("level", ["none", "all"])
@pytest.mark.parametrize("how", SEEN_BY)
def test_what_makes_them_visible_sees_them(how: str, level: LevelName) -> None:
    model = model_of(*SEEN_BY[how])
    compiled = opweld.compile(model.SerializeToString(), level=level)
    for rows in (1, 7):
        x = np.ones((rows, 3), np.float32)
        evaluated: Any = ReferenceEvaluator(model).run(None, {"x": x})
        wanted: Array = evaluated[0]
        found = compiled.run({"x": x})["y"]
        assert found.dtype == wanted.dtype
        # A denormal number has few bits: the last one of 1e-41 is 1.4e-4 of it.
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=3e-4, atol=0)


def test_they_are_zero_where_that_is_asked_for(control: ctypes.CDLL) -> None:
    model = model_of(*SEEN_BY["product"]).SerializeToString()
    x = np.ones((7, 3), np.float32)
    kept, zero = (opweld.compile(model, denormals=how).run({"x": x})["y"] for how in ("keep", "zero"))
    np.testing.assert_allclose(kept[0], [3, 3, 3e-3], rtol=3e-4)
    np.testing.assert_allclose(zero[0], [3, 3, 0], rtol=1e-6)
    assert not control.zeroes()  # of the caller, afterwards


def test_threads_of_the_application_may_be_set_otherwise(zeroing_caller: ctypes.CDLL) -> None:
    x = np.ones((7, 3), np.float32)
    found = opweld.compile(model_of(*SEEN_BY["product"]).SerializeToString(), threads=1).run({"x": x})["y"]
    assert zeroing_caller.zeroes()  # as before
    zeroing_caller.zero(0)
    np.testing.assert_allclose(found[0], [3, 3, 3e-3], rtol=3e-4)


def test_others_are_refused() -> None:
    with pytest.raises(OptionError, match="denormals is 'flush', expected one of keep, zero"):
        opweld.compile(b"", denormals="flush")  # pyright: ignore[reportArgumentType]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors do not tell")
@pytest.mark.parametrize("size", ["3", "N"])
def test_a_session_tells_which_steps_compute_with_them(size: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
        two (float[{size}, 3] x, float[3, 3] w, float[3, 3] v) => (float[{size}, 3] y) {{
            [first] product = MatMul (x, w) [part] parts = Softmax (product) [second] y = MatMul (parts, v)
        }}"""
    ones, model = np.ones((3, 3), np.float32), onnx.parser.parse_model(text).SerializeToString()
    feeds = {"x": ones, "w": ones, "v": WEIGHTS}
    session = opweld.compile(model, level="none").session

    def told(of: Session, **others: Array) -> list[str]:
        given = feeds | others
        return [of.plan(given).steps[number].origin for number in of.denormal_steps(given)]

    assert told(session, v=ones) == []
    assert told(session) == ["second"]
    assert told(session, v=ones) == []  # a run before leaves no trace
    assert told(session, w=WEIGHTS) == ["first", "part", "second"]
    assert told(opweld.compile(model, level="none", denormals="zero").session, w=WEIGHTS) == []

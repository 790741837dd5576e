"""The C runtime and generated kernels under the address and undefined-behaviour sanitizers, run by a program in C.

Whoever reads or writes beyond a buffer, divides by zero, shifts or converts what has no meaning, or leaks, ends it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from opweld.build import artifact
from opweld.cached import compile_model
from opweld.options import Options
from tests.conftest import REPOSITORY
from tests.patience import PATIENCE_S
from tests.unit.frontend.models import model_of, node
from tests.unit.ops.one_node import integers, normal
from tests.unit.runtime.kept_models import MODELS

pytestmark = pytest.mark.slow

Feeds = dict[str, np.ndarray[Any, Any]]

SANITIZE = "-O1 -g1 -w -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program for OPWELD_CC that adds the sanitizers to whatever is compiled and linked."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc: zig brings no address sanitizer")
    folder = tmp_path_factory.mktemp("sanitizers")
    (folder / "probe.c").write_text("int main(void) { return 0; }\n")
    probe = [gcc, *SANITIZE.split(), str(folder / "probe.c"), "-o", str(folder / "probe")]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("needs gcc with its sanitizers")
    program = folder / "sanitizing-gcc"
    program.write_text(f'#!/bin/sh\nexec {gcc} "$@" {SANITIZE}\n')
    program.chmod(0o755)
    return program


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of this compiler's own, for its objects look like those of gcc; it holds the runtime, which is compiled
    once."""
    return tmp_path_factory.mktemp("cache")


def convolutions() -> tuple[onnx.ModelProto, list[Feeds]]:
    """Halo, residual, depthwise, pooling, global mean; odd sizes, channels that fill no vector."""
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        node("Conv", ["x", "w1", "b1"], "c1", **window),
        node("Relu", ["c1"], "r1"),
        node("Conv", ["r1", "w2"], "c2", group=7, **window),
        node("Add", ["c2", "r1"], "a"),
        node("MaxPool", ["a"], "m", strides=[2, 2], **window),
        node("AveragePool", ["m"], "p", **window),
        node("GlobalAveragePool", ["p"], "g"),
        node("Mul", ["p", "g"], "y"),
    ]
    weights = {"w1": normal(7, 3, 3, 3), "b1": normal(7), "w2": normal(7, 1, 3, 3)}
    model = model_of(nodes, {"x": ["n", 3, "h", "w"]}, ["y"], weights, opset=17)
    return model, [{"x": normal(*shape)} for shape in ((1, 3, 13, 17), (2, 3, 1, 1), (3, 3, 8, 33))]


def attention() -> tuple[onnx.ModelProto, list[Feeds]]:
    """Matrix products around a softmax, and a layer normalisation."""
    nodes = [
        node("MatMul", ["x", "wq"], "q"),
        node("MatMul", ["x", "wk"], "k"),
        node("MatMul", ["x", "wv"], "v"),
        node("Transpose", ["k"], "t", perm=[0, 2, 1]),
        node("MatMul", ["q", "t"], "s"),
        node("Softmax", ["s"], "p", axis=-1),
        node("MatMul", ["p", "v"], "o"),
        node("Add", ["o", "x"], "r"),
        node("LayerNormalization", ["r", "scale", "bias"], "y"),
    ]
    weights = {name: normal(19, 19, seed=i) for i, name in enumerate(("wq", "wk", "wv"))}
    weights |= {"scale": normal(19), "bias": normal(19, seed=1)}
    model = model_of(nodes, {"x": ["n", "t", 19]}, ["y"], weights, opset=17)
    return model, [{"x": normal(*shape)} for shape in ((1, 1, 19), (2, 37, 19), (3, 64, 19))]


def recurrence() -> tuple[onnx.ModelProto, list[Feeds]]:
    """Both directions of an LSTM."""
    weights = {"w": normal(2, 20, 3), "r": normal(2, 20, 5), "b": normal(2, 40)}
    lstm = helper.make_node(
        "LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], hidden_size=5, direction="bidirectional", name="lstm"
    )
    model = model_of([lstm], {"x": ["t", "n", 3]}, ["y", "h", "c"], weights, opset=17)
    return model, [{"x": normal(*shape)} for shape in ((1, 1, 3), (11, 2, 3))]


def indices() -> tuple[onnx.ModelProto, list[Feeds]]:
    """Indices that are fed, reductions, what moves data, several dtypes."""
    nodes = [
        node("Gather", ["x", "i"], "g", axis=1),
        node("ArgMax", ["g"], "m", axis=1, keepdims=0),
        node("ReduceSum", ["g", "axes"], "s", keepdims=1),
        node("Concat", ["g", "s"], "c", axis=1),
        node("Pad", ["c", "pads"], "p", mode="edge"),
        node("Cast", ["p"], "d", to=int(onnx.TensorProto.DOUBLE)),
        node("CumSum", ["d", "axes0"], "y"),
    ]
    weights = {"axes": np.array([1]), "pads": np.array([0, 2, 1, 3]), "axes0": np.array(1)}
    kinds = {"i": 7, "m": 7, "y": 11}
    model = model_of(nodes, {"x": ["n", "k"], "i": ["j"]}, ["y", "m"], weights, opset=17, kinds=kinds)
    return model, [
        {"x": normal(n, k), "i": integers(j, low=-k, high=k)} for n, k, j in ((1, 1, 1), (5, 7, 3), (17, 33, 40))
    ]


def decisions() -> tuple[onnx.ModelProto, list[Feeds]]:
    """Segments: rows that are selected and sorted, and a loop over them that grows a state and stacks another."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            node("Identity", ["go"], "again"),
            node("ReduceSum", ["s"], "total", keepdims=1),
            node("Concat", ["s", "total"], "longer", axis=0),
            node("ReduceMax", ["s"], "top", keepdims=0),
        ],
        "body",
        [info(*value) for value in (("i", 7, []), ("go", 9, []), ("s", 1, ["n"]))],
        [info(*value) for value in (("again", 9, []), ("longer", 1, ["m"]), ("top", 1, []))],
    )
    nodes = [
        node("Greater", ["x", "zero"], "mask"),
        node("NonZero", ["mask"], "places"),
        node("Transpose", ["places"], "rows"),
        node("GatherND", ["x", "rows"], "positive"),
        node("Shape", ["positive"], "count"),
        node("TopK", ["positive", "count"], "sorted"),
        helper.make_node("Loop", ["trips", "yes", "sorted"], ["y", "tops"], name="loop", body=body),
        node("Unique", ["tops"], "different"),
    ]
    nodes[5].output.append("order")
    weights = {"zero": np.array(0, np.float32), "yes": np.array(True)}
    kinds = {"trips": 7}
    model = model_of(nodes, {"x": ["n", "m"], "trips": []}, ["y", "different"], weights, opset=17, kinds=kinds)
    sizes = ((1, 3, 2), (5, 7, 1), (9, 33, 20))
    return model, [{"x": np.abs(normal(n, m)), "trips": np.array(trips)} for n, m, trips in sizes]


@pytest.mark.parametrize("make", [convolutions, attention, recurrence, indices, decisions])
@pytest.mark.parametrize("level", ["none", "all"])
def test_nothing_is_found(
    make: Any, level: str, compiler: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, cases = make()
    monkeypatch.setenv("OPWELD_CACHE", str(cache))
    monkeypatch.setenv("OPWELD_CC", str(compiler))
    folder = tmp_path / "m.opweld"
    artifact.copy(compile_model(model.SerializeToString(), Options(level=level)), folder, 0)
    program = build_program(compiler, folder, tmp_path)
    for number, feeds in enumerate(cases):
        expected = ReferenceEvaluator(model).run(None, feeds)
        for threads in (1, 2):
            place = tmp_path / f"{number}-{threads}"
            outputs = run(program, folder, feeds, threads, place)
            for actual, wanted in zip(outputs, expected, strict=True):
                np.testing.assert_allclose(actual, np.asarray(wanted), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_found_in_runs_with_states(
    name: str, compiler: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, shape = MODELS[name][0](), MODELS[name][1]
    monkeypatch.setenv("OPWELD_CACHE", str(cache))
    monkeypatch.setenv("OPWELD_CC", str(compiler))
    folder = tmp_path / "m.opweld"
    artifact.copy(compile_model(kept.model.SerializeToString(), Options(states=kept.states)), folder, 0)
    source, program = Path(__file__).with_name("state.c"), tmp_path / "program"
    command = [compiler, "-std=gnu11", f"-I{folder / 'include'}", source, folder / "runtime.so"]
    command += [f"-Wl,-rpath,{folder}", "-o", program]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    variables = os.environ | {"ASAN_OPTIONS": "detect_leaks=1"}
    arguments = [str(program), str(folder), "19", "40", *map(str, shape)]
    done = subprocess.run(arguments, env=variables, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    assert sum(line.startswith("y ") for line in done.stdout.splitlines()) == 19


def test_the_sanitizers_are_awake(compiler: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.c").write_text("int main(int n, char **a) { (void)a; char s[4]; return s[n + 3]; }\n")
    subprocess.run([compiler, tmp_path / "bad.c", "-o", tmp_path / "bad"], check=True)
    assert subprocess.run([tmp_path / "bad"], capture_output=True, check=False).returncode != 0


def build_program(compiler: Path, folder: Path, place: Path) -> Path:
    """examples/c, which loads an artifact through opweld.h."""
    sources = [REPOSITORY / "examples/c" / name for name in ("run_model.c", "npy.c")]
    command = [compiler, "-std=gnu11", f"-I{folder / 'include'}", *sources, folder / "runtime.so"]
    command += [f"-Wl,-rpath,{folder}", "-o", place / "run_model"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place / "run_model"


def run(program: Path, folder: Path, feeds: Feeds, threads: int, place: Path) -> list[np.ndarray[Any, Any]]:
    place.mkdir()
    arguments: list[str] = []
    for name, array in feeds.items():
        np.save(place / f"{name}.npy", array)
        arguments += ["--input", f"{name}={place / name}.npy"]
    command = [str(program), str(folder), *arguments, "--output", str(place / "out"), "--threads", str(threads)]
    variables = os.environ | {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    return [np.load(line) for line in done.stdout.split()]

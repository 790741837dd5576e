"""What another package's backend comes through the door with: compiled, saved, loaded, run, shown, refused."""

from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opweld
from opweld import extensions
from opweld.accounts import account_of
from opweld.analysis.analysis import analysis_of
from opweld.backends import backend_of, target_of
from opweld.errors import ArtifactError, AssumptionError, OptionError, UnsupportedError
from opweld.target import TargetMachine
from tests.backends.interpret import BACKEND, Interpreted
from tests.patience import PATIENCE_S
from tests.unit.analysis.test_bound import MACHINE
from tests.unit.frontend.models import model_of, node
from tests.unit.packages import installed

pytestmark = pytest.mark.usefixtures("interpreter")

Array = np.ndarray[Any, Any]

LOOP = """g (int64 n, float[k] x) => (float[k] last, float[trips, k] all) {
    yes = Constant <value = bool {1}> ()
    last, all = Loop (n, yes, x) <body = b (int64 i, bool on, float[k] v) => (bool still, float[k] w, float[k] each) {
        still = Identity (on) two = Constant <value = float {2.0}> () w = Mul (v, two) each = Add (w, two) }>
}"""

BRANCH = """g (float[k] x) => (float[k] y) {
    sum = ReduceSum <keepdims = 0> (x) zero = Constant <value = float {0.0}> () positive = Greater (sum, zero)
    y = If (positive) <then_branch = t () => (float[k] a) { a = Exp (x) },
                       else_branch = e () => (float[k] b) { b = Neg (x) }>
}"""

NONZERO = """g (float[k] x) => (int64[r, found] at, float[k] y) { at = NonZero (x) y = Relu (x) }"""


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')


def mlp() -> onnx.ModelProto:
    random = np.random.default_rng(0)
    weights = {"w": random.standard_normal((6, 5), np.float32), "b": random.standard_normal(5, np.float32)}
    nodes = (node("MatMul", ["x", "w"], "m"), node("Add", ["m", "b"], "a"), node("Softmax", ["a"], "y"))
    return model_of(nodes, {"x": ("batch", 6)}, ("y",), weights)


def check(model: onnx.ModelProto, feeds: dict[str, Array], **options: Any) -> opweld.Model:
    """Compiles for both backends and compares what they answer."""
    compiled = opweld.compile(model, target="interpret", **options)
    assert isinstance(compiled.session._opened, Interpreted)
    expected, found = opweld.compile(model, **options).run(feeds), compiled.run(feeds)
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert (array.shape, array.dtype) == (expected[name].shape, expected[name].dtype)
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-6)
    return compiled


def test_a_name_of_an_installed_package_is_a_target() -> None:
    machine = target_of("interpret")
    assert machine.kind == "numpy" and backend_of(machine) is BACKEND
    with pytest.raises(OptionError, match=r"expected one of native, .*interpret"):
        opweld.compile(mlp(), target="interpreted")


def test_it_compiles_saves_loads_and_runs(tmp_path: Path) -> None:
    model = check(mlp(), {"x": np.ones((3, 6), np.float32)})
    for batch in (1, 2, 7):
        check(mlp(), {"x": np.linspace(-1, 1, batch * 6, dtype=np.float32).reshape(batch, 6)})
    saved = model.save(tmp_path / "m.opweld")
    loaded = opweld.load(saved, verify=True)
    feeds = {"x": np.full((2, 6), 0.5, np.float32)}
    np.testing.assert_array_equal(loaded.run(feeds)["y"], model.run(feeds)["y"])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).run(feeds)["y"], model.run(feeds)["y"])
    manifest = loaded.session.manifest
    assert (manifest.backend, manifest.target, manifest.kernels) == ("interpreter", "interpret", 1)
    assert "programs/main.text" in manifest.needed and not (saved / "module.so").exists()


def test_a_damaged_file_of_its_own_is_found(tmp_path: Path) -> None:
    saved = opweld.compile(mlp(), target="interpret").save(tmp_path / "m.opweld")
    (saved / "flow.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"flow\.json has"):
        opweld.load(saved)


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_loop_that_depends_on_data_walks(trips: int) -> None:
    feeds = {"n": np.array(trips), "x": np.arange(3, dtype=np.float32)}
    model = check(parsed(LOOP), feeds)
    assert model.session.has_dynamic_control_flow
    assert len(model.session.plan(feeds).segments) >= 1


@pytest.mark.parametrize("sign", [1, -1])
def test_a_branch_on_data_is_taken(sign: int) -> None:
    check(parsed(BRANCH), {"x": sign * np.arange(4, dtype=np.float32)})


def test_a_size_that_is_data_goes_through() -> None:
    model = check(parsed(NONZERO), {"x": np.array([0, 1, 0, 2], np.float32)})
    assert model.run({"x": np.ones(3, np.float32)})["at"].shape == (1, 3)


def test_sizes_that_no_variant_takes_are_compiled_for() -> None:
    model = opweld.compile(mlp(), target="interpret")
    assert model.run({"x": np.empty((0, 6), np.float32)})["y"].shape == (0, 5)


def test_it_is_explained_analyzed_and_profiled() -> None:
    model, feeds = opweld.compile(mlp(), target="interpret"), {"x": np.ones((3, 6), np.float32)}
    assert "main" in str(model.explain().node("make_m"))
    assert model.analyze().before.amounts.flops.value > 0
    profile = model.session.profile(feeds)
    assert [step.name for step, _ in profile.steps()] == ["main"] and profile.wall >= profile.nanoseconds[0] > 0
    assert "main" in str(model.profile(feeds, runs=2))


def test_kernels_of_which_nothing_is_predicted_are_judged() -> None:
    model = opweld.compile(mlp(), target="interpret")
    (kernel,) = analysis_of(account_of(model.path), machine=MACHINE).kernels
    assert kernel.bound is not None and kernel.bound.kind == "latency"


def test_what_it_does_not_show_or_do_is_refused_by_name() -> None:
    model, feeds = opweld.compile(mlp(), target="interpret"), {"x": np.ones((3, 6), np.float32)}
    with pytest.raises(UnsupportedError, match="'interpreter' compiles does not support watching"):
        model.session.watch(feeds, lambda step, buffers: None)
    with pytest.raises(OptionError, match="denormals=zero: NumPy"):
        opweld.compile(mlp(), target="interpret", denormals="zero")
    with pytest.raises(OptionError, match="tune=quick"):
        opweld.compile(mlp(), target="interpret", tune="quick")


def test_threads_run_it_side_by_side() -> None:
    model = opweld.compile(mlp(), target="interpret")
    feeds = [{"x": np.full((n + 1, 6), n, np.float32)} for n in range(8)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(model.run, feeds))
    for fed, answer in zip(feeds, answers, strict=True):
        np.testing.assert_array_equal(answer["y"], model.run(fed)["y"])


def test_outputs_are_written_where_the_caller_wants_them() -> None:
    model, into = opweld.compile(mlp(), target="interpret"), np.empty((2, 5), np.float32)
    feeds = {"x": np.ones((2, 6), np.float32)}
    assert model.session.run_into(feeds, {"y": into})[0] is into
    np.testing.assert_array_equal(into, model.run(feeds)["y"])


def test_no_c_compiler_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPWELD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("opweld.build.toolchain.Compiler.find", lambda: pytest.fail("asked for"))
    assert opweld.compile(mlp(), target="interpret").run({"x": np.ones((1, 6), np.float32)})["y"].shape == (1, 5)


def test_its_stages_are_dumped_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPWELD_DUMP", str(tmp_path / "dump"))
    monkeypatch.setenv("OPWELD_DEBUG", "1")
    opweld.compile(mlp(), target="interpret")
    kinds = [path.suffix for path in sorted((tmp_path / "dump").iterdir())]
    assert kinds == [".lowered", ".tensors", ".text"]


def test_its_progress_is_told() -> None:
    told: list[str] = []
    opweld.compile(mlp(), target="interpret", dims={"batch": 11}, progress=lambda text, done, total: told.append(text))
    assert list(dict.fromkeys(told)) == ["reading the model", "writing programs down", "writing files"]


@pytest.mark.parametrize(
    ("value", "words"),
    [("NOTHING", "does not load: AttributeError"), ("FLOW", "no Backend"), ("Interpreted", "does not load: TypeError")],
)
def test_an_entry_point_that_is_no_backend_is_named(tmp_path: Path, value: str, words: str) -> None:
    (tmp_path / "other").mkdir()
    entry_points = {extensions.TARGETS: {"odd": f"tests.backends.interpret:{value}"}}
    with installed(tmp_path / "other", entry_points), pytest.raises(OptionError, match=f"target 'odd'.*{words}"):
        opweld.compile(mlp(), target="odd")


def test_a_target_of_another_name_than_the_backends_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    entry_points = {extensions.TARGETS: {"odd": "tests.backends.interpret:Interpreter"}}
    with installed(tmp_path / "other", entry_points), pytest.raises(OptionError, match="compiles for interpret"):
        opweld.compile(mlp(), target="odd")


def test_common_facts_of_a_machine_are_its_name_and_kind() -> None:
    assert [field.name for field in dataclasses.fields(TargetMachine)] == ["name"]
    assert target_of("x86-64-v3").kind == "cpu"
    assert target_of("interpret").digest() != target_of("x86-64-v3").digest()
    assert target_of("interpret").capabilities == ()


def test_sizes_that_do_not_fit_raise_what_the_c_runtime_raises(tmp_path: Path) -> None:
    model = opweld.load(opweld.compile(mlp(), target="interpret").save(tmp_path / "m.opweld"))
    with pytest.raises(AssumptionError):
        model.run({"x": np.empty((0, 6), np.float32)})


def test_an_artifact_says_what_is_missing_in_a_process_without_the_package(tmp_path: Path) -> None:
    saved = opweld.compile(mlp(), target="interpret").save(tmp_path / "m.opweld")
    code = f"import opweld; opweld.load({str(saved)!r})"
    environment = os.environ | {"PYTHONPATH": str(Path(opweld.__file__).parents[1])}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE_S)
    assert "install the package of that backend" in done.stderr

"""`opweld.compile`, `opweld.load` and what they return."""

from __future__ import annotations

import inspect
import logging
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import opweld
from opweld.errors import ArtifactError, AssumptionError, InputError, MissingModelError, ModelError, OptionError
from opweld.interface import TensorInfo


@pytest.fixture(scope="module")
def proto() -> onnx.ModelProto:
    """relu(x @ w), x of shape [batch, 3]."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Relu", ["z"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(3, 2), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def file(proto: onnx.ModelProto, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.onnx"
    onnx.save(proto, path)
    return path


FEEDS = {"x": np.ones((2, 3), np.float32)}


def check(model: opweld.Model) -> None:
    outputs = model.run(FEEDS)
    assert list(outputs) == ["y"]
    assert outputs["y"].tolist() == [[6, 9], [6, 9]]


def test_every_form_of_a_model_is_compiled(proto: onnx.ModelProto, file: Path) -> None:
    data = proto.SerializeToString()
    for model in (file, str(file), data, bytearray(data), memoryview(data), proto, ir.from_proto(proto)):
        check(opweld.compile(model))  # pyright: ignore[reportArgumentType] - bytes of any kind


@pytest.mark.parametrize("model", [None, 3, ["m.onnx"], np.zeros(3)])
def test_what_is_no_model_is_refused(model: Any) -> None:
    with pytest.raises(OptionError, match="expected the path of an ONNX file, its bytes, or a ModelProto"):
        opweld.compile(model)
    with pytest.raises(TypeError):
        opweld.compile(model)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingModelError, match="no such file"):
        opweld.compile(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="is a folder"):
        opweld.compile(tmp_path)
    for path in ("a\0b", "a" * 5000):
        with pytest.raises(ModelError, match="cannot be read"):
            opweld.compile(path)


def test_signatures_name_every_option() -> None:
    for function in (opweld.compile, opweld.load, opweld.Model.run, opweld.Model.save, opweld.Model.verify):
        parameters = inspect.signature(function).parameters.values()
        assert not any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters)
        assert not any("Any" in str(p.annotation) for p in parameters), function
    with pytest.raises(OptionError, match="unknown option 'levle'"):
        opweld.compile(b"", levle="all")  # pyright: ignore[reportCallIssue]


def test_options_reach_the_compiler(file: Path, tmp_path: Path) -> None:
    model = opweld.compile(
        file,
        target="x86-64-v3",
        level="basic",
        threads=np.int64(1),
        dims={"batch": np.int32(2)},
        disable=["fuse"],
    )
    check(model)
    manifest = model.session.manifest
    assert (manifest.target, manifest.level, model.session.threads) == ("x86-64-v3", "basic", 1)
    assert (model.inputs[0].shape, model.outputs[0].shape) == ((2, 3), (2, 2))
    with pytest.raises(InputError, match=r"expected shape \[2, 3\], got \[1, 3\]"):
        model.run({"x": FEEDS["x"][:1]})
    with pytest.raises(OptionError, match="no dim"):
        opweld.compile(file, dims={"other": 1})


def test_a_model_tells_what_it_is(file: Path) -> None:
    model = opweld.compile(file)
    assert model.inputs == (TensorInfo("x", "float32", ("batch", 3)),)
    assert [info.name for info in model.outputs] == ["y"]
    text = repr(model)
    assert text.startswith("<opweld.Model (x float32[batch, 3]) -> (y float32[batch, 2]): 1 kernel, ")
    assert text.endswith(", level all>")


def test_saved_models_are_loaded(file: Path, tmp_path: Path) -> None:
    saved = opweld.compile(file, threads=1).save(str(tmp_path / "m.opweld"))
    model = opweld.load(str(saved))
    check(model)
    assert repr(model).startswith("<opweld.Model (x float32[batch, 3])")
    assert (model.session.threads, opweld.load(saved, threads=np.int8(2)).session.threads) == (1, 2)
    with pytest.raises(OptionError, match="threads is 'two'"):
        opweld.load(saved, threads="two")  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError, match="it was loaded"):
        model.verify()


@pytest.mark.parametrize("name", ["module.so", "runtime.so", "weights.bin"])
def test_flipped_bytes_are_found_before_they_run(file: Path, tmp_path: Path, name: str) -> None:
    saved = opweld.compile(file).save(tmp_path / "m.opweld")
    model = opweld.load(saved, verify=True)
    check(model)
    copy = pickle.dumps(model)
    data = bytearray((saved / name).read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(255 - byte for byte in data[middle : middle + 64])
    (saved / name).unlink()  # what is loaded keeps its own
    (saved / name).write_bytes(data)
    for opening in (
        lambda: opweld.load(saved, verify=True),
        lambda: opweld.InferenceSession(saved, verify=True),
        lambda: pickle.loads(copy),
    ):
        with pytest.raises(ArtifactError, match=f"{name} has another content than when it was written"):
            opening()


def test_an_empty_batch_is_answered(file: Path) -> None:
    assert opweld.compile(file).run({"x": FEEDS["x"][:0]})["y"].shape == (0, 2)


def test_an_artifact_says_what_answers_an_empty_batch(file: Path, tmp_path: Path) -> None:
    """There is nothing to compile anew; but what it says is true."""
    saved, empty = opweld.compile(file).save(tmp_path / "m.opweld"), {"x": FEEDS["x"][:0]}
    session = opweld.InferenceSession(saved)
    binding = session.io_binding()
    binding.bind_cpu_input("x", empty["x"])
    binding.bind_output("y")
    for run in (
        lambda: opweld.load(saved).run(empty),
        lambda: session.run(None, empty),
        lambda: session.run_with_iobinding(binding),
    ):
        with pytest.raises(AssumptionError, match=r"at least 1.* run the ONNX model itself, .* dims=\{'batch': 0\}"):
            run()
    fixed = opweld.compile(file, dims={"batch": 0}).save(tmp_path / "0.opweld")
    assert opweld.load(fixed).run(empty)["y"].shape == (0, 2)


def test_verify_compares_with_the_model_itself(proto: onnx.ModelProto, file: Path) -> None:
    for model in (opweld.compile(file), opweld.compile(proto), opweld.compile(proto.SerializeToString())):
        found = model.verify(FEEDS)
        assert found.passed and found.reference == "float64" and found.error < 1e-6
        assert [c.name for c in found.comparisons] == ["y"]
    assert opweld.compile(file).verify().passed
    x = np.random.default_rng(0).random((64, 3), np.float32)
    assert not opweld.compile(file).verify({"x": x}, rtol=0).passed, "rounding is not nothing"


@pytest.mark.parametrize("value", ["a", -1, float("nan"), True, [1e-3]])
@pytest.mark.parametrize("name", ["rtol", "atol"])
def test_tolerances_that_are_none_are_refused(file: Path, name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"{name} is .*, expected a number of at least 0"):
        opweld.compile(file).verify(FEEDS, **{name: value})


def test_progress_must_be_a_function(file: Path) -> None:
    opweld.compile(file)
    with pytest.raises(OptionError, match="progress is 3, expected a function"):
        opweld.compile(file, progress=3)  # pyright: ignore[reportArgumentType]


def test_models_pickle(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    compiled = opweld.compile(file.name, threads=1)
    loaded = opweld.load(compiled.save(tmp_path / "m.opweld"))
    monkeypatch.chdir("/")
    for model in (compiled, loaded):
        copy = pickle.loads(pickle.dumps(model))
        check(copy)
        assert copy.session.threads == 1
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(opweld.Model.run, (compiled, FEEDS))["y"].tolist() == [[6, 9], [6, 9]]


def test_compiling_tells_how_far_it_is(
    file: Path, cache_without_models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tuple[str, int, int]] = []
    with caplog.at_level(logging.INFO, "opweld"):
        opweld.compile(file, progress=lambda *what: told.append(what))
    assert told[0][0] == "reading the model" and all(0 <= done <= total for _, done, total in told)
    assert told[-1][1] == told[-1][2]
    assert caplog.messages[0] == f"compiling {file}"
    assert caplog.messages[1].startswith(f"compiled {file} in ")
    told.clear()
    opweld.compile(file, progress=lambda *what: told.append(what))
    assert told == [], "it was in the cache"

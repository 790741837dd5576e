"""InferenceSession and its relatives, against the hand-written module; names and results as onnxruntime has them."""

from __future__ import annotations

import json
import sys
import types
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from opweld.errors import InputError, OptionError, UnsupportedError
from opweld.options import Options
from opweld.runtime import onnxruntime_api as ort
from opweld.runtime.io_binding import type_name
from opweld.runtime.onnxruntime_api import GraphOptimizationLevel, InferenceSession, OrtValue, SessionOptions
from tests.unit.runtime.fake_model import check, expected_of, feeds_of


@pytest.fixture(scope="module")
def inference(folder: Path) -> InferenceSession:
    return InferenceSession(folder, providers=["CPUExecutionProvider"])


def test_run(inference: InferenceSession) -> None:
    feeds = feeds_of(8)
    check(inference.run(None, feeds), feeds)
    check(inference.run([], feeds), feeds)
    picked, total, again = inference.run(["picked", "total", "total"], feeds)
    check([total, picked], feeds)
    assert again is total
    with pytest.raises(InputError, match="'nothing' is no output of the model; its outputs are 'total', 'picked'"):
        inference.run(["nothing"], feeds)


def test_nodes_and_metadata(inference: InferenceSession) -> None:
    assert [(node.name, node.shape, node.type) for node in inference.get_inputs()] == [
        ("x", ["N", 4], "tensor(float)"),
        ("y", ["N", 4], "tensor(float)"),
        ("index", ["K"], "tensor(int64)"),
        ("start", [], "tensor(int64)"),
    ]
    assert [node.name for node in inference.get_outputs()] == ["total", "picked", "ranges"]
    metadata = inference.get_modelmeta()
    assert (metadata.producer_name, metadata.graph_name, metadata.version) == ("hand", "fake", 3)
    assert metadata.custom_metadata_map == {"author": "nobody"}
    assert inference.get_providers() == ort.get_available_providers() == ["CPUExecutionProvider"]
    assert inference.get_overridable_initializers() == []


def test_every_name_that_onnxruntime_users_call_is_there() -> None:
    for name in ("run", "run_with_iobinding", "run_with_ort_values", "io_binding", "get_inputs", "get_outputs",
                 "get_modelmeta", "get_providers", "set_providers", "get_provider_options", "get_session_options",
                 "get_overridable_initializers", "end_profiling"):  # fmt: skip
        assert hasattr(onnxruntime.InferenceSession, name)
        assert hasattr(InferenceSession, name)
    bindings = (name for name in vars(onnxruntime.IOBinding) if not name.startswith("_"))
    missing = {name for name in bindings if not hasattr(ort.IOBinding, name)}
    assert missing <= {"get_outputs_as_ortvaluevector", "bind_input", "bind_output"}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8", "int32", "int64", "bool"])
def test_type_names(dtype: str) -> None:
    theirs = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(1, dtype))
    ours = OrtValue.ortvalue_from_numpy(np.zeros(1, dtype))
    assert type_name(dtype) == ours.data_type() == theirs.data_type()
    assert ours.element_type() == theirs.element_type()
    assert ours.shape() == list(theirs.shape())


def test_io_binding_copies_nothing(inference: InferenceSession) -> None:
    feeds = feeds_of(8)
    total = OrtValue.ortvalue_from_shape_and_type([8, 4], np.float32)
    ranges = np.empty(8, np.int64)
    binding = inference.io_binding()
    binding.bind_cpu_input("x", feeds["x"])
    binding.bind_ortvalue_input("y", OrtValue.ortvalue_from_numpy(feeds["y"]))
    index = feeds["index"]
    binding.bind_input("index", "cpu", 0, np.int64, index.shape, index.ctypes.data)
    binding.bind_cpu_input("start", feeds["start"])
    binding.bind_output("ranges", "cpu", 0, np.int64, [8], ranges.ctypes.data)
    binding.bind_ortvalue_output("total", total)
    binding.bind_output("picked")
    ranges[:] = -1
    inference.run_with_iobinding(binding)
    bound_ranges, bound_total, picked = binding.copy_outputs_to_cpu()
    assert bound_total is total.numpy()
    assert ranges.tolist() == [0] * 8
    assert bound_ranges.ctypes.data == ranges.ctypes.data
    check([bound_total, picked], feeds)

    feeds["y"][...] = 1  # the binding sees the change
    inference.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[1].numpy(), expected_of(feeds)[0])


def test_io_binding_refuses(inference: InferenceSession) -> None:
    binding = inference.io_binding()
    with pytest.raises(InputError, match="'x' is no output"):
        binding.bind_output("x")
    with pytest.raises(InputError, match="device 'cuda'"):
        binding.bind_output("total", "cuda")
    with pytest.raises(InputError, match="needs an element_type and a shape"):
        binding.bind_output("total", buffer_ptr=64)
    with pytest.raises(InputError, match="address is 0"):
        binding.bind_input("x", "cpu", 0, np.float32, [8, 4], 0)
    with pytest.raises(InputError, match="negative"):
        binding.bind_input("x", "cpu", 0, np.float32, [8, -4], 64)
    with pytest.raises(InputError, match="is no element type"):
        binding.bind_input("x", "cpu", 0, "float33", [8, 4], 64)
    with pytest.raises(InputError, match="input 'x' is missing"):
        inference.run_with_iobinding(binding)
    for name, value in feeds_of(8).items():
        binding.bind_cpu_input(name, value)
    binding.bind_ortvalue_output("total", OrtValue(np.empty((4, 4), np.float32)))
    with pytest.raises(InputError, match=r"output 'total': expected float32 \(8, 4\), got float32 \(4, 4\)"):
        inference.run_with_iobinding(binding)


def test_ort_values(inference: InferenceSession) -> None:
    feeds = feeds_of(8)
    values = {name: OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
    (total,) = inference.run_with_ort_values(["total"], values)
    np.testing.assert_array_equal(total.numpy(), expected_of(feeds)[0])
    total.update_inplace(feeds["x"])
    np.testing.assert_array_equal(total.numpy(), feeds["x"])
    with pytest.raises(InputError, match=r"expected float32 \(8, 4\), got float32 \(2, 2\)"):
        total.update_inplace(np.zeros((2, 2), np.float32))


def test_profiling(folder: Path, tmp_path: Path) -> None:
    options = SessionOptions(enable_profiling=True, profile_file_prefix=str(tmp_path / "trace_"))
    inference = InferenceSession(folder, options)
    feeds = feeds_of(4096)
    for _ in range(3):
        check(inference.run(None, feeds), feeds)
    events: list[dict[str, Any]] = json.loads(Path(inference.end_profiling()).read_text())
    first, _, third = (event for event in events if event["name"] == "copy")  # one thread's, once a run
    assert first["args"].keys() == {"nodes", "phase", "busy_us"} and first["args"]["nodes"] == "/Identity"
    assert first["ts"] + first["dur"] < third["ts"]
    # A thread is in one phase at a time.
    by_thread = sorted((event["tid"], event["ts"], event["dur"], event["args"]["phase"]) for event in events)
    assert all(
        one[0] != two[0] or one[3] == two[3] or one[1] + one[2] <= two[1] + 0.001 for one, two in pairwise(by_thread)
    )
    with pytest.raises(OptionError, match="enable_profiling"):
        InferenceSession(folder).end_profiling()


def test_options_reach_the_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def compile_model(model: object, options: Options) -> Path:
        seen.append((model, options))
        return folder

    module = types.ModuleType("opweld.compile")
    module.compile_model = compile_model  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "opweld.compile", module)
    options = SessionOptions(intra_op_num_threads=1)
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.add_free_dimension_override_by_name("N", 4096)
    inference = InferenceSession(b"onnx", options, target="x86-64-v3")
    InferenceSession("m.onnx", threads=2)
    assert seen == [
        (b"onnx", Options(level="basic", dims={"N": 4096}, target="x86-64-v3", threads=1)),
        (Path("m.onnx"), Options(threads=2)),
    ]
    assert set(inference.run(["ranges"], feeds_of(4096))[0]) == {0}


def test_options_that_cannot_be(folder: Path) -> None:
    with pytest.raises(AttributeError):
        SessionOptions().intra_op_threads = 2  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(OptionError, match="unknown option 'levle'"):
        InferenceSession(folder, levle="all")
    with pytest.raises(OptionError, match="intra_op_num_threads is -1"):
        InferenceSession(folder, SessionOptions(intra_op_num_threads=-1))
    with pytest.raises(OptionError, match=r"is 'x\.onnx', but opweld writes no ONNX model"):
        InferenceSession(folder, SessionOptions(optimized_model_filepath="x.onnx"))
    with pytest.raises(UnsupportedError, match="custom operators"):
        SessionOptions().register_custom_ops_library("x.so")
    options = SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    with pytest.raises(OptionError, match="'other'"):
        options.get_session_config_entry("other")


def test_other_providers_warn(folder: Path) -> None:
    with pytest.warns(UserWarning, match="none of CUDAExecutionProvider is available"):
        InferenceSession(folder, providers=[("CUDAExecutionProvider", {"device_id": 0})])
    InferenceSession(folder, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])

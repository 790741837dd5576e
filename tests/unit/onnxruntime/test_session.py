"""InferenceSession and its relatives, against the hand-written module; names and results as onnxruntime has them."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import pickle
import queue
import sys
import types
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state  # pyright: ignore[reportAttributeAccessIssue]

import opweld
from opweld import capi
from opweld import onnxruntime as ort
from opweld.errors import InputError, OptionError, RunError, UnsupportedError
from opweld.onnxruntime import GraphOptimizationLevel, InferenceSession, OrtValue, SessionOptions
from opweld.onnxruntime.io_binding import type_name
from opweld.options import Options
from tests.patience import PATIENCE_S
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
    with pytest.raises(InputError, match="'nothing' is not an output of the model; its outputs are 'total', 'picked'"):
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
                 "get_overridable_initializers", "end_profiling", "run_async", "enable_fallback", "disable_fallback",
                 "get_profiling_start_time_ns"):  # fmt: skip
        assert hasattr(onnxruntime.InferenceSession, name)
        assert hasattr(InferenceSession, name)
    bindings = (name for name in vars(onnxruntime.IOBinding) if not name.startswith("_"))
    missing = {name for name in bindings if not hasattr(ort.IOBinding, name)}
    assert missing == set()
    values = {name for name in vars(onnxruntime.OrtValue) if not name.startswith("_")}
    assert {name for name in values if not hasattr(OrtValue, name)} == {
        "as_sparse_tensor",
        "ort_value_from_sparse_tensor",
    }


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
    with pytest.raises(InputError, match="'x' is not an output"):
        binding.bind_output("x")
    with pytest.raises(InputError, match="device 'cuda'"):
        binding.bind_output("total", "cuda")
    with pytest.raises(InputError, match="needs an element_type and a shape"):
        binding.bind_output("total", buffer_ptr=64)
    with pytest.raises(InputError, match="address is 0"):
        binding.bind_input("x", "cpu", 0, np.float32, [8, 4], 0)
    with pytest.raises(InputError, match="negative"):
        binding.bind_input("x", "cpu", 0, np.float32, [8, -4], 64)
    for shape in ([2**62, 4], [0, 2**62, 4], [1] * 40):
        with pytest.raises(InputError, match="more dims or elements than memory can hold"):
            binding.bind_input("x", "cpu", 0, np.float32, shape, 64)
        with pytest.raises(InputError, match="more dims or elements than memory can hold"):
            OrtValue.ortvalue_from_shape_and_type(shape, np.float32)
    with pytest.raises(InputError, match="cannot allocate memory"):
        OrtValue.ortvalue_from_shape_and_type([2**56], np.float32)
    with pytest.raises(InputError, match="expected a list of whole numbers"):
        binding.bind_input("x", "cpu", 0, np.float32, [8.5, 4], 64)  # type: ignore[list-item]
    with pytest.raises(InputError, match="is not an element type"):
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
    assert InferenceSession(folder).end_profiling() == ""


def test_options_reach_the_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def compile_model(model: object, options: Options) -> Path:
        seen.append((model, options))
        return folder

    module = types.ModuleType("opweld.cached")
    module.compile_model = compile_model  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "opweld.cached", module)
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
        InferenceSession(folder, levle="all")  # pyright: ignore[reportCallIssue]
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
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not in available provider names"):
        InferenceSession(folder, providers=[("CUDAExecutionProvider", {"device_id": 0})])
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"):
        session = InferenceSession(folder, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}
    with pytest.warns(UserWarning, match="TensorrtExecutionProvider"):
        session.set_providers(["TensorrtExecutionProvider"], [{"fp16": "1"}])
    InferenceSession(folder, providers="CPUExecutionProvider")  # pyright: ignore[reportArgumentType] - as onnxruntime


@pytest.mark.parametrize(
    ("providers", "options", "message"),
    [
        (3, None, "providers is 3, expected a list"),
        ([3], None, "'providers' holds 3"),
        ([("CPUExecutionProvider", 1)], None, "expected a name or a pair"),
        (["CPUExecutionProvider"], [], "should be the same length"),
        (["CPUExecutionProvider"], [1], "not a dict"),
        ([("CPUExecutionProvider", {})], [{}], "only names are expected"),
    ],
)
def test_providers_that_cannot_be(folder: Path, providers: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InferenceSession(folder, providers=providers, provider_options=options)


def test_optimisers_of_onnxruntime_are_not_here(folder: Path) -> None:
    with pytest.warns(UserWarning, match="opweld has no ConstantFolding, MatMulAddFusion"):
        InferenceSession(folder, disabled_optimizers={"MatMulAddFusion", "ConstantFolding"})
    with pytest.raises(OptionError, match="read_config_from_model"):
        InferenceSession(folder, read_config_from_model=True)
    session = InferenceSession(folder, enable_fallback=False)
    session.disable_fallback()
    session.enable_fallback()
    check(session.run(None, feeds_of(2)), feeds_of(2))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("session.load_model_format", "ORT"),
        ("ep.context_enable", "1"),
        ("session.model_external_initializers_file_folder_path", "/anywhere"),
    ],
)
def test_entries_that_ask_for_what_cannot_be(folder: Path, key: str, value: str) -> None:
    options = SessionOptions()
    options.add_session_config_entry(key, value)
    with pytest.raises(OptionError, match=f"{key}' is '{value}', which is not supported"):
        InferenceSession(folder, options)
    options.add_session_config_entry("session.load_model_format", "ONNX")


@pytest.mark.parametrize(("entry", "option"), [(None, None), ("0", None), ("1", "zero")])
def test_denormal_numbers_stay_unless_they_are_asked_to_go(entry: str | None, option: str | None) -> None:
    options = SessionOptions()
    if entry is not None:
        options.add_session_config_entry("session.set_denormal_as_zero", entry)
    assert options.compile_options().get("denormals") == option


@pytest.mark.parametrize(
    ("name", "value"),
    [("intra_op_num_threads", "2"), ("intra_op_num_threads", 2.5), ("graph_optimization_level", "all"),
     ("enable_profiling", "yes"), ("logid", 3), ("graph_optimization_level", 7)],
)  # fmt: skip
def test_values_of_options_that_cannot_be(folder: Path, name: str, value: object) -> None:
    options = SessionOptions()
    setattr(options, name, value)
    with pytest.raises(OptionError, match=name):
        InferenceSession(folder, options)


def test_options_of_onnxruntime_itself(folder: Path, tmp_path: Path) -> None:
    theirs = onnxruntime.SessionOptions()
    theirs.intra_op_num_threads = 3
    theirs.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    theirs.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    ours = SessionOptions.of(theirs)
    assert ours.compile_options() == {"level": "basic", "threads": 3}
    feeds = feeds_of(3)
    check(InferenceSession(folder, theirs).run(None, feeds, onnxruntime.RunOptions()), feeds)
    for name in (n for n in dir(theirs) if not n.startswith("_") and not callable(getattr(theirs, n))):
        assert hasattr(ours, name), name
        if not name.startswith("profile"):
            assert int(getattr(ours, name) or 0) == int(
                getattr(getattr(theirs, name), "value", getattr(theirs, name)) or 0
            )
    with pytest.raises(OptionError, match="sess_options is 3"):
        InferenceSession(folder, 3)  # pyright: ignore[reportArgumentType]


def test_run_options(inference: InferenceSession) -> None:
    options = ort.RunOptions(terminate=True)
    with pytest.raises(RuntimeError, match="terminate is set"):
        inference.run(None, feeds_of(2), options)
    with pytest.raises(RunError, match="terminate is set"):
        inference.run_with_iobinding(inference.io_binding(), options)
    options.add_run_config_entry("a", "b")
    assert options.get_run_config_entry("a") == "b"
    with pytest.raises(RuntimeError, match="'c'"):
        options.get_run_config_entry("c")
    with pytest.raises(UnsupportedError, match="adapters"):
        options.add_active_adapter(None)


def test_run_async(inference: InferenceSession) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    feeds, data = feeds_of(4), object()
    inference.run_async(None, feeds, lambda *answer: answers.put(answer), data)
    outputs, given, error = answers.get(timeout=PATIENCE_S)
    check(outputs, feeds)
    assert given is data and error == ""
    inference.run_async(["nothing"], feeds, lambda *answer: answers.put(answer), data)
    assert answers.get(timeout=PATIENCE_S) == (
        [],
        data,
        "'nothing' is not an output of the model; its outputs are 'total', 'picked', 'ranges'",
    )


@pytest.mark.parametrize("options", [None, SessionOptions(intra_op_num_threads=1, enable_profiling=True)])
def test_sessions_pickle(folder: Path, monkeypatch: pytest.MonkeyPatch, options: SessionOptions | None) -> None:
    monkeypatch.chdir(folder.parent)
    session = InferenceSession(folder.name, options)
    monkeypatch.chdir("/")
    copy = pickle.loads(pickle.dumps(session))
    feeds = feeds_of(4)
    check(copy.run(None, feeds), feeds)
    assert copy.get_session_options() == (options or SessionOptions())
    assert copy._model_path == session._model_path == folder.name


def test_sessions_reach_other_processes(folder: Path) -> None:
    feeds = feeds_of(4)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        check(pool.apply(InferenceSession.run, (InferenceSession(folder), None, feeds)), feeds)


def test_errors_are_those_that_callers_of_onnxruntime_catch(inference: InferenceSession, folder: Path) -> None:
    feeds = feeds_of(2)
    theirs = {name for name in dir(onnxruntime_pybind11_state) if _is_error(onnxruntime_pybind11_state, name)}
    assert theirs <= {
        name for name in dir(capi.onnxruntime_pybind11_state) if _is_error(capi.onnxruntime_pybind11_state, name)
    }
    errors = opweld.capi.onnxruntime_pybind11_state
    with pytest.raises(ValueError, match="input 'x' is missing"):  # theirs is a ValueError too
        inference.run(None, {})
    with pytest.raises(errors.InvalidArgument):
        inference.run(None, feeds | {"x": feeds["x"][0]})
    with pytest.raises(errors.InvalidArgument):
        inference.run(None, feeds | {"z": feeds["x"]})
    with pytest.raises(errors.NoSuchFile, match="no such file"):
        InferenceSession(folder / "nothing.onnx")
    with pytest.raises(errors.InvalidProtobuf, match="not an ONNX model"):
        InferenceSession(b"garbage")
    with pytest.raises(errors.InvalidGraph, match="is empty"):
        InferenceSession(b"")
    with pytest.raises(errors.Fail):
        InferenceSession(b"")
    for kind in (OptionError, TypeError):  # theirs is a TypeError
        for wrong in (5, None, [b""], np.zeros(3)):
            with pytest.raises(kind, match="cannot be loaded from"):
                InferenceSession(wrong)  # pyright: ignore[reportArgumentType]


def _is_error(module: types.ModuleType, name: str) -> bool:
    value = getattr(module, name)
    return isinstance(value, type) and issubclass(value, Exception) and not name.endswith("Error")


def test_ort_values_are_arrays_to_others() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    value = OrtValue.ortvalue_from_numpy(array)
    assert np.asarray(value) is array
    assert np.array(value, np.float64).dtype == np.float64
    np.testing.assert_array_equal(np.from_dlpack(value), array)
    assert OrtValue.from_dlpack(array).data_ptr() == value.data_ptr() == array.ctypes.data
    assert value.tensor_size_in_bytes() == 24
    assert (value.is_tensor(), value.is_sparse_tensor(), value.is_tensor_sequence()) == (True, False, False)
    bits = OrtValue.ortvalue_from_numpy_with_onnx_type(np.array([0x3F80], np.uint16), 16)
    assert bits.data_type() == "tensor(bfloat16)" and float(bits.numpy()[0]) == 1
    with pytest.raises(InputError, match="sizes differ"):
        OrtValue.ortvalue_from_numpy_with_onnx_type(array, 16)
    with pytest.raises(InputError, match="not a tensor"):
        OrtValue.ortvalue_from_numpy(np.array(["a"]))
    with pytest.raises(InputError, match="device 'cuda'"):
        ort.OrtDevice.make("cuda", 0)


def test_bindings_know_their_session(inference: InferenceSession, folder: Path) -> None:
    binding = ort.IOBinding(inference)
    with pytest.raises(InputError, match="'q' is not an input of the model; its inputs are x, y, index, start"):
        binding.bind_cpu_input("q", np.zeros(1))
    with pytest.raises(InputError, match="made for another session"):
        InferenceSession(folder).run_with_iobinding(binding)


def test_what_processes_set_changes_nothing() -> None:
    ort.set_default_logger_severity(3)
    ort.set_default_logger_verbosity(0)
    ort.set_seed(1)
    ort.disable_telemetry_events()
    ort.enable_telemetry_events()
    assert (ort.get_device(), ort.get_all_providers()) == ("CPU", ["CPUExecutionProvider"])
    assert ort.get_version_string() == onnxruntime.__version__, "say in API_VERSION whose calls these are"
    assert ort.get_build_info().startswith("opweld ")


@pytest.fixture(scope="module")
def affine() -> bytes:
    """relu(x @ w), x of shape [N, 3] whose first dim denotes the batch."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])
    x.type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Relu", ["z"], ["y"])],
        "g",
        [x],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])],
        [numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(3, 2), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def test_an_empty_batch_is_answered(affine: bytes) -> None:
    session = InferenceSession(affine)
    x = np.ones((2, 3), np.float32)
    expected: Any = onnxruntime.InferenceSession(affine).run(None, {"x": x[:0]})[0]
    for _ in range(2):
        (answer,) = session.run(None, {"x": x[:0]})
        assert (answer.shape, answer.dtype) == (expected.shape, expected.dtype)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x[:0])
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0].shape == (0, 2)
    assert pickle.loads(pickle.dumps(session)).run(None, {"x": x})[0].tolist() == [[6, 9], [6, 9]]


def test_initializers_are_replaced(affine: bytes) -> None:
    x = np.ones((2, 3), np.float32)
    options = SessionOptions()
    options.add_initializer("w", OrtValue.ortvalue_from_numpy(np.full((3, 2), 2, np.float32)))
    assert InferenceSession(affine, options).run(None, {"x": x})[0].tolist() == [[6, 6], [6, 6]]
    assert InferenceSession(affine).run(None, {"x": x})[0].tolist() == [[6, 9], [6, 9]]
    wrong = {"v": (np.float32, (3, 2), "stores no 'v'"), "w": (np.float64, (2, 3), r"the model stores float \[3, 2\]")}
    for name, (dtype, shape, message) in wrong.items():
        options = SessionOptions()
        options.add_external_initializers([name], [OrtValue.ortvalue_from_numpy(np.zeros(shape, dtype))])
        with pytest.raises(OptionError, match=message):
            InferenceSession(affine, options)


def test_dims_are_fixed_by_what_they_denote(affine: bytes) -> None:
    options = SessionOptions()
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
    session = InferenceSession(affine, options)
    assert [value.shape for value in (*session.get_inputs(), *session.get_outputs())] == [[2, 3], [2, 2]]
    with pytest.raises(InputError, match=r"expected shape \[2, 3\]"):
        session.run(None, {"x": np.ones((1, 3), np.float32)})


def shapes_of(session: Any) -> list[list[Any]]:
    return [value.shape for value in (*session.get_inputs(), *session.get_outputs())]


@pytest.mark.parametrize(
    "kind, name", [("name", "batch"), ("denotation", "DATA_BATCH")], ids=["by name", "by denotation"]
)
@pytest.mark.parametrize("declared", [["batch", 2], None])
def test_fixed_dims_are_shown_as_onnxruntime_shows_them(kind: str, name: str, declared: list[Any] | None) -> None:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, declared)],
        [numpy_helper.from_array(np.ones((3, 2), np.float32), "w")],
    )
    graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    found: list[list[list[Any]]] = []
    for module in (onnxruntime, opweld):
        options = module.SessionOptions()
        getattr(options, f"add_free_dimension_override_by_{kind}")(name, 2)
        found.append(shapes_of(module.InferenceSession(model, options)))
    assert found == [[[2, 3], [2, 2]]] * 2


@pytest.mark.parametrize(
    "nodes, given, declared",
    [
        ([("Relu", "x", "y")], ["n", 4], None),
        ([("Relu", "x", "y")], [None, 4], None),
        ([("Relu", "x", "y")], [-1, 4], None),
        ([("Relu", "x", "y")], ["n", 4], [None, None]),
        ([("Relu", "x", "y")], ["n", 4], ["a", "b"]),
        ([("Concat", "x x", "y", {"axis": 0})], ["n", 4], None),
        ([("Transpose", "x", "y")], ["n", "m"], None),
        ([("ReduceSum", "x", "y", {"keepdims": 0})], ["n", 4], None),
    ],
)
def test_shapes_that_a_model_leaves_out_are_those_that_onnxruntime_infers(
    nodes: list[Any], given: list[Any], declared: list[Any] | None
) -> None:
    graph = helper.make_graph(
        [helper.make_node(op, ins.split(), [out], **(more[0] if more else {})) for op, ins, out, *more in nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, declared)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    assert shapes_of(InferenceSession(model)) == shapes_of(onnxruntime.InferenceSession(model))


def test_sequences_have_no_shape_and_tensors_beside_them_have() -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("SequenceConstruct", ["x", "y"], ["s"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
            helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    for session in (InferenceSession(model), onnxruntime.InferenceSession(model)):
        assert shapes_of(session) == [["n", 4], ["n", 4], []]


def test_what_programs_read_of_sessions_is_there(affine: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(affine)
    for model in (affine, str(path)):
        theirs: Any = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        session: Any = pickle.loads(pickle.dumps(InferenceSession(model)))
        for name in ("_model_path", "_model_bytes", "_providers", "_provider_options", "_fallback_providers",
                     "_enable_fallback", "_overridable_initializers", "_sess_options_initial"):  # fmt: skip
            assert getattr(session, name) == getattr(theirs, name), name
        for name in ("_inputs_meta", "_outputs_meta"):
            assert [v.name for v in getattr(session, name)] == [v.name for v in getattr(theirs, name)]
        assert session._model_meta.graph_name == theirs._model_meta.graph_name == "g"
        assert session._sess_options is session.get_session_options()
        feeds = {"x": np.ones((2, 3), np.float32)}
        for inner in (session._sess, theirs._sess):
            assert inner.run(["y"], feeds, None)[0].tolist() == [[6, 9], [6, 9]]
            assert [value.name for value in (*inner.inputs_meta, *inner.outputs_meta)] == ["x", "y"]
            assert inner.get_providers() == ["CPUExecutionProvider"]
            assert inner.model_meta.graph_name == "g"
        session.disable_fallback()
        assert not session._enable_fallback
    options = SessionOptions()
    assert InferenceSession(affine, options)._sess_options_initial is options  # pyright: ignore[reportPrivateUsage]


def test_inner_modules_are_those_that_onnxruntime_has() -> None:
    for name in ("_pybind_state", "onnxruntime_inference_collection", "onnxruntime_validation"):
        module = importlib.import_module(f"opweld.capi.{name}")
        theirs = importlib.import_module(f"onnxruntime.capi.{name}")
        assert getattr(capi, name) is module
        assert {n for n in vars(module) if not n.startswith("_") and n != "annotations"} & {*vars(theirs)}
    assert capi._pybind_state.InvalidArgument is InputError  # pyright: ignore[reportPrivateUsage]
    assert capi.onnxruntime_inference_collection.InferenceSession is InferenceSession
    assert capi.onnxruntime_validation.get_package_name_and_version_info()[0] == "onnxruntime"

"""Opening artifacts, good and bad, and the calls of opweld.h that no session makes."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import opweld
from opweld.build.toolchain import build_shared
from opweld.errors import ArtifactError, InputError
from opweld.runtime import library as runtime
from opweld.runtime.bind import Module
from opweld.runtime.library import Tensor, c_headers, c_sources, load
from opweld.runtime.session import Session
from opweld.target import Target
from tests.patience import PATIENCE_S
from tests.unit.runtime.fake_model import MANIFEST, WEIGHTS, Build, check, feeds_of
from tests.unit.runtime.files import native, plan_of


def test_module_for_another_processor(write_artifact: Build, tmp_path: Path) -> None:
    folder = write_artifact(tmp_path / "a.opweld", ISA='"x86-64-v3,avx1024"')
    with pytest.raises(ArtifactError, match=r"compiled for x86-64-v3,avx1024, but this processor lacks avx1024"):
        Session(folder)


@pytest.mark.parametrize("isa", ["", "x86-64", "x86-64-v2 sse4.2", "x86-64-v3+fma"])
def test_module_for_this_processor(write_artifact: Build, tmp_path: Path, isa: str) -> None:
    Session(write_artifact(tmp_path / "a.opweld", ISA=f'"{isa}"'))


def test_processor_features_agree_with_the_system(write_artifact: Build, tmp_path: Path) -> None:
    flags = Path("/proc/cpuinfo").read_text()
    for feature, flag in {"avx2": " avx2 ", "avx512f": " avx512f ", "avx512vnni": " avx512_vnni "}.items():
        folder = write_artifact(tmp_path / f"{feature}.opweld", ISA=f'"{feature}"')
        if flag in flags:
            Session(folder)
        else:
            with pytest.raises(ArtifactError, match=f"lacks {feature}"):
                Session(folder)


def test_module_of_another_interface(write_artifact: Build, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="speaks interface 99, this runtime 5: compile the model again"):
        Session(write_artifact(tmp_path / "a.opweld", ABI=99))


def test_module_that_contradicts_itself(write_artifact: Build, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"variant 'even': buffer 6 \(kind 2, index 0\) is inconsistent"):
        Session(write_artifact(tmp_path / "a.opweld", SCALE_OFFSET=69))


def test_weights_of_another_size(write_artifact: Build, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"weights.bin' has 69 bytes, the module expects 68"):
        Session(write_artifact(tmp_path / "a.opweld", weights=WEIGHTS + b"x"))


def test_module_without_entry(write_artifact: Build, runtime_so: Path, tmp_path: Path) -> None:
    folder = write_artifact(tmp_path / "a.opweld")
    shutil.copy(runtime_so, folder / "module.so")
    with pytest.raises(ArtifactError, match="is not an opweld module"):
        Module(folder, runtime_so)


def test_runtime_that_is_none(write_artifact: Build, tmp_path: Path) -> None:
    folder = write_artifact(tmp_path / "a.opweld")
    for content in (b"", b"\x7fELF garbage", (folder / "module.so").read_bytes()):
        (tmp_path / "runtime.so").write_bytes(content)
        with pytest.raises(ArtifactError, match=r"no opweld runtime for this machine"):
            Module(folder, tmp_path / "runtime.so")


def test_a_replaced_artifact_is_loaded_anew(write_artifact: Build, tmp_path: Path) -> None:
    folder = write_artifact(tmp_path / "a.opweld")
    first = Session(folder)
    other = WEIGHTS[:64] + np.float32(5).tobytes()
    write_artifact(folder, weights=other, ISA='"x86-64"')
    second = Session(folder)
    feeds = feeds_of(8)
    check(first.run(feeds), feeds)
    np.testing.assert_array_equal(second.run(feeds)[0], (feeds["x"] + feeds["y"]) * np.float32(5) + feeds["x"])
    maps = Path("/proc/self/maps").read_text()
    inodes = {line.split()[4] for line in maps.splitlines() if str(folder.parent) in line and "module.so" in line}
    assert len(inodes) == 2


def test_libraries_of_equal_content_are_loaded_once(runtime_so: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.so"
    shutil.copy(runtime_so, copy)
    assert load(copy) is load(runtime_so)
    assert load(copy).opw_version() == b"0.1.0"


@pytest.mark.parametrize("name", ["native", "aarch64"])
def test_runtime_compiles_without_warnings(tmp_path: Path, name: str) -> None:
    flags = ("-Wall", "-Wextra", "-Wshadow", "-Werror")
    build_shared(c_sources(), tmp_path / "r.so", target=Target.of(name), headers=c_headers(), flags=flags)


def test_runtime_uses_no_vector_extension(runtime_so: Path) -> None:
    objdump = shutil.which("objdump")
    if objdump is None or platform.machine() != "x86_64":
        pytest.skip("needs objdump on x86-64")
    text = subprocess.run([objdump, "-d", runtime_so], capture_output=True, text=True, check=True).stdout
    assert "%xmm" in text
    assert "%ymm" not in text
    assert "%zmm" not in text


def test_opening_is_fast_and_numpy_is_enough(folder: Path) -> None:
    program = f"""
import sys, time
sys.modules.update(dict.fromkeys(["onnx", "onnx_ir", "onnxruntime", "torch", "ml_dtypes", "ziglang", "typer", "rich"]))
import numpy as np
from opweld.runtime.session import Session
from opweld.onnxruntime import InferenceSession
start = time.thread_time()  # others may use the machine
session = Session({str(folder)!r})
assert time.thread_time() - start < 0.1
x = np.ones((2, 4), np.float32)
feeds = {{"x": x, "y": x, "index": np.zeros(1, np.int64), "start": np.array(0)}}
assert session.run(feeds)[0].tolist() == [[7.0] * 4] * 2
assert InferenceSession({str(folder)!r}).run(["picked"], feeds)[0].tolist() == [7.0]
"""
    source = str(Path(runtime.__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": source}
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, env=environment, timeout=PATIENCE_S)


# ---- calls below the session ----


def bind(module: Module, shapes: dict[str, tuple[int, ...]], threads: int = 1, **changes: Any) -> tuple[int, str]:
    tensors = (Tensor * 4)()
    start = ctypes.c_int64(0)
    for tensor, name, dtype in zip(tensors, ("x", "y", "index", "start"), module.input_dtypes, strict=True):
        tensor.dtype = changes.get("dtype", dtype)
        tensor.rank = len(shapes[name])
        tensor.shape[: tensor.rank] = shapes[name]
    if not changes.get("without_values"):
        tensors[3].data = ctypes.addressof(start)
    message = ctypes.create_string_buffer(1000)
    plan = ctypes.c_void_p()
    status = module.library.opw_bind(module.handle, tensors, threads, ctypes.byref(plan), message, 1000)
    assert (status == runtime.OK) == (plan.value is not None)
    if plan.value:
        module.library.opw_plan_release(plan)
    return status, message.value.decode()


@pytest.fixture(scope="module")
def module(folder: Path) -> Module:
    return Module(folder, folder / "runtime.so")


@pytest.mark.parametrize(
    ("n", "k", "status", "message"),
    [
        (8, 3, runtime.OK, ""),
        (2**36, 3, runtime.TOO_LARGE, "feed smaller inputs"),
        (2**58, 3, runtime.TOO_LARGE, "'even'"),
        (2**60, 3, runtime.INVALID_INPUT, "input 'x': dimension 1 is 4"),
        (-2, 3, runtime.INVALID_INPUT, "input 'x': dimension 0 is -2"),
        (8, 2**61, runtime.INVALID_INPUT, "input 'index'"),
        (8, 2**60 - 1, runtime.TOO_LARGE, "may use"),
        (0, 2**40, runtime.TOO_LARGE, "may use"),
    ],
)
def test_sizes_no_machine_has(module: Module, n: int, k: int, status: int, message: str) -> None:
    result, text = bind(module, {"x": (n, 4), "y": (n, 4), "index": (k,), "start": ()})
    assert (result, message in text) == (status, True), text


def test_bind_refuses(module: Module) -> None:
    shapes = {"x": (8, 4), "y": (8, 4), "index": (3,), "start": ()}
    assert bind(module, shapes, dtype=2) == (runtime.INVALID_INPUT, "input 'x': expected element type 1, got 2")
    assert bind(module, shapes | {"y": (8,)}) == (runtime.INVALID_INPUT, "input 'y': expected 2 dimensions, got 1")
    assert bind(module, shapes, without_values=True)[0] == runtime.INVALID_INPUT
    assert bind(module, shapes, threads=-1)[0] == runtime.INVALID_INPUT
    assert bind(module, shapes, threads=10**6)[0] == runtime.INVALID_INPUT
    assert bind(module, shapes, threads=0)[0] == runtime.OK


def test_messages_are_cut(module: Module) -> None:
    tensors = (Tensor * 4)()
    plan = ctypes.c_void_p()
    message = ctypes.create_string_buffer(b"#" * 20)
    assert module.library.opw_bind(module.handle, tensors, 1, ctypes.byref(plan), message, 8) == runtime.INVALID_INPUT
    assert message.raw == b"input '\0" + b"#" * 12 + b"\0"
    assert module.library.opw_bind(module.handle, tensors, 1, ctypes.byref(plan), None, 0) == runtime.INVALID_INPUT


def test_values_that_differ_from_the_plan(folder: Path) -> None:
    session = Session(folder)
    feeds = feeds_of(8)
    plan = plan_of(session, feeds)
    with pytest.raises(InputError, match="input 'start': other values than the plan was made for"):
        native(session)._execute(plan, list((feeds | {"start": np.array(1)}).values()), session.run(feeds))


def test_plan_of_another_model(folder: Path) -> None:
    feeds = feeds_of(8)
    one, two = Session(folder), Session(folder)
    with pytest.raises(InputError, match="belongs to another model"):
        native(one)._execute(plan_of(two, feeds), list(feeds.values()), two.run(feeds))


def test_a_limit_on_address_space_is_respected(folder: Path) -> None:
    program = f"""
import resource, numpy as np
from opweld.errors import InputError
from opweld.runtime.session import Session
session = Session({str(folder)!r})
x = np.zeros((8 << 20, 4), np.float32)
feeds = {{"x": x, "y": x, "index": np.zeros(1, np.int64), "start": np.array(0)}}
resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
try:
    session.run(feeds)
except InputError as error:
    print(error)
"""
    environment = os.environ | {"PYTHONPATH": str(Path(runtime.__file__).parents[2])}
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment, timeout=PATIENCE_S
    )
    assert "needs 0.47 GB for these input shapes (0.268 GB of intermediate values)" in answer.stdout
    assert "may use 0.419 GB" in answer.stdout


def test_manifest_of_another_module(write_artifact: Build, tmp_path: Path) -> None:
    folder = write_artifact(tmp_path / "a.opweld", manifest=dataclasses.replace(MANIFEST, outputs=()))
    with pytest.raises(ArtifactError, match="manifest and module disagree"):
        Session(folder)


def test_names_that_c_cannot_hold(write_artifact: Build, tmp_path: Path) -> None:
    inputs = (dataclasses.replace(MANIFEST.inputs[0], name='a"\0\n*/ä'), *MANIFEST.inputs[1:])
    session = Session(write_artifact(tmp_path / "a.opweld", manifest=dataclasses.replace(MANIFEST, inputs=inputs)))
    feeds = feeds_of(8)
    renamed = {inputs[0].name: feeds["x"], **{name: feeds[name] for name in ("y", "index", "start")}}
    check(session.run(renamed), feeds)


def test_manifest_declares_what_is_fed(write_artifact: Build, tmp_path: Path) -> None:
    inputs = (dataclasses.replace(MANIFEST.inputs[0], shape=(6, 4)), *MANIFEST.inputs[1:])
    session = Session(write_artifact(tmp_path / "a.opweld", manifest=dataclasses.replace(MANIFEST, inputs=inputs)))
    check(session.run(feeds_of(6)), feeds_of(6))
    with pytest.raises(InputError, match=r"input 'x': expected shape \[6, 4\], got \[8, 4\]"):
        session.run(feeds_of(8))


def resident(path: Path) -> tuple[int, int]:
    """(bytes mapped, bytes in memory) of a file in this process."""
    found = {"Size": 0, "Rss": 0}
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(":")
        if "-" in name.split(" ")[0]:
            inside = line.endswith(str(path))
        elif inside and name in found:
            found[name] += 1024 * int(rest.split()[0])
    return found["Size"], found["Rss"]


@pytest.mark.skipif(
    tuple(map(int, platform.release().split(".")[:2])) < (5, 14), reason="pages come with the first run"
)
def test_weights_are_in_memory_before_the_first_run(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 1024] x, float[1024, 1024] w) => (float[1, 1024] y) { y = MatMul(x, w) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1024, 1024), np.float32), "w"))
    del model.graph.input[1]
    opweld.compile(model).save(tmp_path / "m.opweld")
    opened = Session(tmp_path / "m.opweld")
    size, held = resident(tmp_path / "m.opweld" / "weights.bin")
    assert size == held >= 4 << 20
    assert opened.run({"x": np.ones((1, 1024), np.float32)})[0][0, 0] == 1024

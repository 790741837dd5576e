"""explain, analyze and profile, as they are called in Python: on whatever a model is."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opweld
from opweld import accounts
from opweld.accounts import account_of, left_without_compiler
from opweld.build.cache import Cache
from opweld.build.toolchain import Compiler
from opweld.display import Shown, Table
from opweld.errors import ModelError, OptionError, ToolchainError, UnsupportedError
from opweld.options import Options
from opweld.runtime.session import Session
from opweld.table import Column, of_names
from tests.unit.cli.test_main import opweld as command

HOSTILE = "<script>alert('a')</script>&\x1b[31m"


def graph(weights: np.ndarray[Any, Any]) -> onnx.ModelProto:
    """relu(x @ w) and its largest element by column, of x of shape [batch, 8]."""
    made = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["t"], name=HOSTILE),
            helper.make_node("Relu", ["t"], ["y"], name="relu"),
            helper.make_node("ReduceMax", ["y"], ["m"], name="largest", axes=[0], keepdims=0),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4]),
            helper.make_tensor_value_info("m", TensorProto.FLOAT, [4]),
        ],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of the model."""
    file = tmp_path_factory.mktemp("inspected") / "small.onnx"
    onnx.save(graph(np.ones((8, 4), np.float32)), file)
    return file


@pytest.fixture(scope="module")
def model(path: Path) -> opweld.Model:
    """The model, compiled."""
    return opweld.compile(path)


def test_what_is_explained_may_be_a_file_an_artifact_or_open(path: Path, model: opweld.Model) -> None:
    kinds: list[Any] = [path, str(path), path.read_bytes(), onnx.load(path), model.path, model, model.session]
    kinds += [opweld.InferenceSession(path), opweld.InferenceSession(model.path), opweld.load(model.path)]
    expected = [decision.to_json() for decision in model.explain().decisions]
    assert expected
    for kind in kinds:
        assert [decision.to_json() for decision in opweld.explain(kind).decisions] == expected
        assert opweld.analyze(kind).after.amounts.flops.value == model.analyze().after.amounts.flops.value > 0


def test_python_prints_what_the_command_prints(path: Path, model: opweld.Model, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "small.opweld")
    for kind in (path, folder):
        found = opweld.explain(kind)
        assert f"{found}\n" == command("explain", kind).stdout
        assert found.all() == command("explain", kind, "--all").stdout
        assert found.all(ids=True) == command("explain", kind, "--ids").stdout
        assert found.node("relu") == command("explain", kind, "--node", "relu").stdout
        assert found.rule("fuse") == command("explain", kind, "--rule", "fuse").stdout
    assert len(str(opweld.explain(path)).splitlines()) < 40


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty cache, and no C compiler."""

    def refuse(cls: type[Compiler]) -> Compiler:
        raise ToolchainError("there is no C compiler")

    monkeypatch.setenv("OPWELD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Compiler, "find", classmethod(refuse))


def test_explaining_and_analyzing_need_no_compiler(path: Path, model: opweld.Model, no_compiler: None) -> None:
    with pytest.raises(ToolchainError):
        opweld.compile(path)
    assert str(opweld.explain(path)).splitlines()[1:] == str(model.explain()).splitlines()[1:]
    found, expected = opweld.analyze(path, sizes={"batch": 3}), model.analyze(sizes={"batch": 3})
    assert found.after == expected.after and found.before == expected.before
    assert found.memory.arena is None and expected.memory.arena is not None


def test_instructions_are_those_of_every_kernel(path: Path, model: opweld.Model, tmp_path: Path) -> None:
    found = model.explain()
    told = found.instructions()
    assert told.keys() == {f"{v.name}/{k.name}" for v in found.account.record.variants for k in v.kernels}
    assert any("arithmetic" in text or "fma" in text for text in told.values())
    node = found.account.record.nodes[0].name
    assert "instructions: " not in found.node(node)
    printed = command("explain", model.path, "--instructions").stdout
    assert printed.splitlines() == [f"{kernel}: {text}" for kernel, text in told.items()]


def test_what_is_found_without_a_compiler_is_what_compiling_leaves(
    path: Path, model: opweld.Model, no_compiler: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, left = left_without_compiler(path, Options())[0], account_of(model.path)
    assert found.ledger.dumps() == left.ledger.dumps()
    assert found.schedules.regions == left.schedules.regions
    assert found.schedules.decisions == left.schedules.decisions
    assert found.record.dumps() == left.record.dumps()
    (entry,) = [entry for entry in Cache.open().entries() if entry.kind == accounts.KIND]
    monkeypatch.setattr("opweld.pipeline.dry_run_texts", None)  # it is kept, and not found again
    assert left_without_compiler(path, Options())[0].record.dumps() == left.record.dumps()
    monkeypatch.undo()
    monkeypatch.setenv("OPWELD_CACHE", str(entry.path.parents[2]))
    (entry.path / "graph.json").write_text("{")
    assert left_without_compiler(path, Options(level="all"))[0].record.dumps() == left.record.dumps()


@pytest.fixture
def failing_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and a C compiler that fails; the file that is there once it was started."""
    program, started = tmp_path / "failing-cc", tmp_path / "started"
    program.write_text(f"#!/bin/sh\ntouch '{started}'\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("OPWELD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPWELD_CC", str(program))
    return started


def test_no_compiler_is_started_to_explain_or_analyze(path: Path, tmp_path: Path, failing_compiler: Path) -> None:
    for arguments in (("explain", path), ("analyze", path, "--dim", "batch=3"), ("lock", path, "-o", tmp_path / "l")):
        answer = command(*arguments)
        assert answer.returncode == 0, answer.stderr
    assert str(opweld.explain(path)) and opweld.analyze(path).memory.arena is None
    assert not failing_compiler.exists()
    with pytest.raises(ToolchainError):
        opweld.compile(path)
    assert failing_compiler.exists()


def test_what_another_compiler_made_is_found(
    path: Path, failing_compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = os.environ["OPWELD_CC"]
    monkeypatch.delenv("OPWELD_CC")
    model = opweld.compile(path)
    monkeypatch.setenv("OPWELD_CC", named)
    monkeypatch.setattr("opweld.pipeline.dry_run_texts", None)
    assert opweld.analyze(path).memory.arena == model.analyze().memory.arena is not None
    assert "of memory for values" in command("analyze", path).stdout
    assert not failing_compiler.exists()


def test_kernels_have_the_threads_that_their_work_repays(path: Path, model: opweld.Model, no_compiler: None) -> None:
    (small, *_), (large, *_) = (opweld.analyze(path, sizes={"batch": n}, threads=3).kernels for n in (1, 1 << 22))
    assert small.work.threads == 1 and large.work.threads == 3


def test_what_lies_beside_the_file_is_part_of_it(tmp_path: Path, no_compiler: None) -> None:
    file = tmp_path / "large.onnx"

    stored = graph(np.full((8, 4), 2, np.float32))
    onnx.save(stored, file, save_as_external_data=True, location="weights", size_threshold=0)
    options = Options()
    first = left_without_compiler(file, options)[0]
    assert first.record.dumps() == left_without_compiler(file, options)[0].record.dumps()
    (entry,) = [entry for entry in Cache.open().entries() if entry.kind == accounts.KIND]
    before = (entry.path / "external.json").read_text()
    np.full((8, 4), 3, np.float32).tofile(tmp_path / "weights")
    left_without_compiler(file, options)[0]
    assert (entry.path / "external.json").read_text() != before


def test_what_is_compiled_already_takes_no_options(model: opweld.Model) -> None:
    for kind in (model, model.path, model.session):
        with pytest.raises(OptionError, match="level: the model is compiled already"):
            opweld.explain(kind, level="none")
        with pytest.raises(OptionError, match="target, tune: the model is compiled already"):
            opweld.analyze(kind, target="native", tune="off")
    assert opweld.explain(model.path).decisions


def test_what_is_no_model_is_refused(tmp_path: Path, path: Path) -> None:
    with pytest.raises(ModelError, match="is a folder"):
        opweld.explain(tmp_path)
    with pytest.raises(OptionError, match="no node of that name"):
        opweld.explain(path).node("absent")
    with pytest.raises(OptionError, match="no such rule"):
        opweld.explain(path).rule("absent")
    with pytest.raises(OptionError, match="sizes: 'batch' is 0"):
        opweld.analyze(path, sizes={"batch": 0})
    split = helper.make_node("SequenceAt", ["x", "i"], ["y"])
    interface = [
        helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None),
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
    ]
    made = helper.make_graph([split], "g", interface, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    proto = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with pytest.raises(UnsupportedError, match="each way to feed it"):
        opweld.explain(opweld.InferenceSession(proto.SerializeToString()))


def test_a_model_is_profiled_on_feeds_or_on_made_up_ones(model: opweld.Model) -> None:
    made = model.profile({"x": np.ones((5, 8), np.float32)}, runs=2)
    assert dict(made.inputs) == {"x": (5, 8)} and len(made.timed) == 2
    assert {name for kernel in made.kernels for name in kernel.nodes} >= {"relu"}
    assert model.profile(runs=1).kernels
    with pytest.raises(OptionError, match="runs is 0"):
        model.profile(runs=0)


@pytest.fixture(scope="module")
def objects(model: opweld.Model) -> dict[str, Shown]:
    """What shows itself, by name."""
    made: dict[str, Shown] = {"model": model, "explanation": model.explain(), "analysis": model.analyze()}
    return made | {"profile": model.profile(runs=1), "check": model.verify()}


@pytest.mark.parametrize("name", ["model", "explanation", "analysis", "profile", "check"])
def test_objects_show_themselves_on_one_screen(name: str, objects: dict[str, Shown]) -> None:
    shown = objects[name]
    text, page = repr(shown), getattr(shown, "_repr_html_")()  # noqa: B009 - as notebooks call it
    assert 0 < len(text.splitlines()) < 50
    assert "\x1b" not in text + page
    if name not in ("explanation", "model"):
        assert all(len(line) <= 100 for line in text.splitlines())
    assert not re.search(r"<script|javascript:|\son\w+=", page)
    assert set(re.findall(r"<(\w+)", page)) <= {"div", "pre", "table", "thead", "tbody", "tr", "th", "td"}
    for piece in shown.shown():
        assert not isinstance(piece, Table) or page.count("<tr>") > len(piece.rows)


def test_whatever_a_name_holds_is_text() -> None:
    class Named(Shown):
        def shown(self) -> list[str | Table]:
            return [HOSTILE, Table((of_names("<b>"), Column("n")), ((HOSTILE, "1"),))]

    page = Named()._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert "<script" not in page and "<b>" not in page
    assert page.count("&lt;script&gt;") == 2


def test_the_public_names_are_what_the_package_shows() -> None:
    assert {name for name in dir(opweld) if not name.startswith("_")} == {*opweld.__all__} - {"__version__"}
    assert isinstance(opweld.compile(graph(np.ones((8, 4), np.float32))).session, Session)

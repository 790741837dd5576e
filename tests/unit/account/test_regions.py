"""The kernels of a compilation, kept in the model: what nodes are marked with, and the functions of fused kernels."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import opweld
from opweld.account.outcomes import MEANINGS
from opweld.account.regions import KERNELS, OUTCOME, Form
from opweld.accounts import account_of
from opweld.cached import compile_model
from opweld.cli.main import application
from opweld.errors import OptionError, UnsupportedError
from opweld.options import Options
from opweld.pipeline import dry_run
from opweld.record import KernelEntry, Record
from opweld.target import Target
from opweld.tensor.intern import compilation
from tests.unit.rewrite.rewritten import computed, model_of, normal

OPWELD = application()

TEXT = """g (float[n, 24] x) => (float[n, 2, 4] y, float[n, 1] z) {
    a = MatMul(x, w) b = Add(a, k) c = Relu(b)
    d = Reshape(c, s) e = Exp(d) y = Neg(e)
    z = ReduceMax<keepdims = 1>(x, last) }"""
WEIGHTS = {"w": normal(24, 8), "k": normal(8), "s": np.array([-1, 2, 4]), "last": np.array([1])}
FED = {"x": normal(5, 24)}

CHOICE = """g (float[3, 8] x, bool p) => (float[3, 8] y) {
    [exp] a = Exp(x)
    [if] b = If(p) <then_branch = t () => (float[3, 8] u) { [neg] r = Neg(a) [cos] s = Cos(r) [mul] u = Mul(s, a) },
                    else_branch = e () => (float[3, 8] v) { [sin] v = Sin(a) }>
    [tanh] c = Tanh(b) [abs] y = Abs(c) }"""

UNKNOWN = """<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
    g (float[n] x) => (float[n] y) { a = Identity(x) b = own.Thing(a) y = Neg(b) }"""


FUSED_ONES = ("Gemm", "Relu", "Reshape", "Exp", "Neg")
"""MatMul and Add are a Gemm when they are put together."""


def marks(nodes: Iterable[onnx.NodeProto], key: str = KERNELS) -> dict[str, str]:
    """What nodes are marked with, by their operators."""
    return {n.op_type: next((e.value for e in n.metadata_props if e.key == key), "") for n in nodes}


def nodes_of(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes of a model and its functions, but for calls and constants."""
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    return [node for node in nodes if node.domain != KERNELS and node.op_type != "Constant"]


@pytest.mark.parametrize("form", [True, "metadata", "functions"])
def test_nodes_are_marked_with_the_kernels_of_the_compilation(form: Form | bool, tmp_path: Path) -> None:
    model = model_of(TEXT, WEIGHTS)
    model.ir_version = 8
    made = opweld.optimize(model, keep_regions=form)
    onnx.checker.check_model(made, full_check=True)
    assert made.ir_version == 10, "nodes have metadata since"
    for wanted, found in zip(computed(model, FED), computed(made, FED), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    found = marks(nodes_of(made))
    assert found.keys() == {*FUSED_ONES, "ReduceMax"}
    assert len({found[name] for name in FUSED_ONES}) == 1
    path = tmp_path / "made.onnx"
    onnx.save(made, path)
    kernels = {kernel.name for kernel in account_of(compile_model(path, Options())).kernels}
    assert len(kernels) == 2 and set(found.values()) == kernels, "the names that explain uses"
    assert {entry.key: entry.value for entry in made.metadata_props}[KERNELS].startswith("2 for ")


def test_a_kernel_of_several_nodes_is_a_function() -> None:
    made = opweld.optimize(model_of(TEXT, WEIGHTS), keep_regions="functions")
    (function,) = made.functions
    call, alone = made.graph.node
    assert (call.domain, call.op_type) == (function.domain, function.name)
    assert marks([call])[function.name] == function.name
    assert tuple(node.op_type for node in function.node if node.op_type != "Constant") == FUSED_ONES
    assert "predicted to take" in function.doc_string
    assert alone.op_type == "ReduceMax"
    again = opweld.optimize(made)
    assert len(again.graph.node) == 6, "functions are inlined when the file is read"


def test_every_node_says_what_became_of_it() -> None:
    found = marks(opweld.optimize(model_of(TEXT, WEIGHTS), keep_regions=True).graph.node, OUTCOME)
    assert found == dict.fromkeys(FUSED_ONES, "fused") | {"Reshape": "index arithmetic", "ReduceMax": "alone"}
    assert set(found.values()) <= set(MEANINGS)


@pytest.mark.parametrize("form", [True, "functions"])
def test_kernels_of_several_variants_are_told_apart(form: Form | bool) -> None:
    model = model_of(CHOICE)
    made = opweld.optimize(model, keep_regions=form)
    onnx.checker.check_model(made, full_check=True)
    for p in (True, False):
        feeds = {"x": normal(3, 8), "p": np.array(p)}
        np.testing.assert_array_equal(computed(made, feeds)[0], computed(model, feeds)[0], strict=True)
    (choice,) = (node for node in made.graph.node if node.op_type == "If")
    bodies = {attribute.name: list(attribute.g.node) for attribute in choice.attribute}
    if form == "functions":
        assert [node.domain for node in bodies["then_branch"]] == [KERNELS]
        return
    found = marks(bodies["then_branch"])
    assert len(set(found.values())) == 1
    assert ": " in found["Neg"], "kernels of several variants go by their names too"
    assert marks(bodies["else_branch"])["Sin"] not in ("", found["Neg"])


def test_marks_are_made_anew() -> None:
    made = opweld.optimize(model_of(TEXT, WEIGHTS), keep_regions="functions")
    fresh = opweld.optimize(model_of(TEXT, WEIGHTS), keep_regions=True)
    assert marks(opweld.optimize(made, keep_regions=True).graph.node) == marks(fresh.graph.node)


def placeless(record: Record) -> Record:
    def kernel(entry: KernelEntry) -> KernelEntry:
        return replace(entry, constants=tuple((0, size) for _, size in entry.constants))

    variants = (replace(variant, kernels=tuple(map(kernel, variant.kernels))) for variant in record.variants)
    return replace(record, variants=tuple(variants))


def test_a_dry_run_has_the_account_of_compiling(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model_of(TEXT, WEIGHTS), path)
    left = account_of(compile_model(path, Options()))
    with compilation():
        found = dry_run(path, Options(), Target.of("native"))
    assert placeless(found.record) == placeless(left.record), "only compiling knows where weights are stored"
    assert found.ledger.dumps() == left.ledger.dumps()


def test_a_file_with_its_regions_is_written(tmp_path: Path) -> None:
    source, out, told = (tmp_path / name for name in ("model.onnx", "seen.onnx", "told.json"))
    onnx.save(model_of(TEXT, WEIGHTS), source)
    arguments = ["optimize", str(source), "-o", str(out), "--keep-regions", "--functions", "--json", str(told)]
    answer = CliRunner().invoke(OPWELD, arguments)
    assert answer.exit_code == 0, answer.output
    assert "regions: nodes of 2 kernels, 1 of several nodes; functions: 1" in answer.output
    made = onnx.load(out)
    onnx.checker.check_model(made, full_check=True)
    (name,) = (function.name for function in made.functions)
    regions = json.loads(told.read_text())["regions"]
    assert regions["functions"] == [name] and regions["kernels"][name] == 5 and not regions["refused"]


def test_without_a_compilation_nothing_is_written(tmp_path: Path) -> None:
    source, out = tmp_path / "model.onnx", tmp_path / "seen.onnx"
    source.write_bytes(onnx.parser.parse_model(UNKNOWN).SerializeToString())
    for arguments, error, words in (
        (["--keep-regions"], UnsupportedError, "no regions to keep, as the model cannot be compiled: .*Thing"),
        (["--functions"], OptionError, "give --keep-regions too"),
    ):
        with pytest.raises(error, match=words):
            CliRunner().invoke(OPWELD, ["optimize", str(source), "-o", str(out), *arguments], catch_exceptions=False)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    with pytest.raises(OptionError, match="expected True, False"):
        opweld.optimize(source, keep_regions="pictures")  # pyright: ignore[reportArgumentType]

"""Tensor programs are models: written by hand or parsed, they go the way that ONNX files go."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opweld
from opweld.accounts import account_of
from opweld.errors import AssumptionError, ModelError, ModelTypeError, OptionError
from opweld.frontends import source_of
from opweld.programs import (
    LAST,
    Axis,
    Constant,
    DType,
    Ending,
    Flow,
    Input,
    Segment,
    Symbol,
    SymbolSource,
    Tensor,
    TensorProgram,
    as_dim,
    binary,
    const,
    load,
    parse_program,
    reduce,
)
from tests.patience import PATIENCE_S

Array = np.ndarray[Any, Any]

TEXT = """
program dense
symbol batch >= 1 = dim 0 of x
input x f32[batch, 24]
constant weights f32[24, 5]
tensor product f32[i0: batch, i1: 5] from "dense"
  over r0: 24
  = sum<r0>(mul(x[i0, r0], weights[r0, i1]))
tensor active f32[i0: batch, i1: 5]
  = max(product[i0, i1], 0.0)
output y = active
"""

WEIGHTS = np.random.default_rng(7).standard_normal((24, 5)).astype(np.float32)


def parsed(weights: Array = WEIGHTS, text: str = TEXT) -> TensorProgram:
    return parse_program(text, {"weights": weights})


def written(weights: Array = WEIGHTS) -> TensorProgram:
    """The same, put together."""
    batch = Symbol("batch")
    row, column, inner = Axis("i", batch.dim), Axis("j", as_dim(5)), Axis("k", as_dim(24))
    read, kept = (row.dim, inner.dim), (inner.dim, column.dim)
    term = binary("mul", load("x", DType.F32, read), load("weights", DType.F32, kept))
    product = Tensor("product", DType.F32, (row, column), reduce("sum", (inner,), term), ("dense",))
    body = binary("max", load("product", DType.F32, (row.dim, column.dim)), const(0.0, DType.F32))
    return TensorProgram(
        "dense",
        (Input("x", DType.F32, (batch.dim, as_dim(24))),),
        (Constant("weights", DType.F32, (24, 5), lambda: weights),),
        (product, Tensor("active", DType.F32, (row, column), body)),
        (("y", "active"),),
        (SymbolSource(batch, "x", 0),),
    )


def right(x: Array, weights: Array = WEIGHTS) -> Array:
    return np.maximum(x.astype(np.float64) @ weights, 0)


def rows(count: int) -> Array:
    return np.random.default_rng(count).standard_normal((count, 24)).astype(np.float32)


@pytest.mark.parametrize("made", [parsed, written])
@pytest.mark.parametrize("level", ["none", "all"])
def test_a_program_compiles_and_runs_for_every_size(made: Callable[[], TensorProgram], level: Any) -> None:
    model = opweld.compile(made(), level=level, threads=1)
    assert [(info.name, info.dtype, info.shape) for info in model.inputs] == [("x", "float32", ("batch", 24))]
    assert [(info.name, info.dtype, info.shape) for info in model.outputs] == [("y", "float32", ("batch", 5))]
    for count in (1, 7, 33):
        np.testing.assert_allclose(model.run({"x": rows(count)})["y"], right(rows(count)), rtol=1e-4, atol=1e-5)
    assert model.verify().passed


def test_what_is_compiled_is_saved_loaded_pickled_explained_and_profiled(tmp_path: Path) -> None:
    model = opweld.compile(parsed(), threads=1)
    wanted = model.run({"x": rows(3)})["y"]
    loaded = opweld.load(model.save(tmp_path / "dense.opweld"))
    np.testing.assert_array_equal(loaded.run({"x": rows(3)})["y"], wanted)
    again = pickle.loads(pickle.dumps(model))
    assert again.path == model.path and again.verify().passed
    explained = opweld.explain(parsed())
    assert all("contraction" in explained.node(name) for name in ("dense", "active"))
    assert "(2 of 2)" in str(opweld.explain(model))
    assert model.analyze({"batch": 4}).after.amounts.flops.value == 2 * 4 * 24 * 5 + 4 * 5
    assert "active" in str(model.profile({"x": rows(3)}, runs=3))


def test_the_account_tells_the_nodes_and_parameters_of_a_program() -> None:
    record = account_of(opweld.compile(parsed(), threads=1).path).record
    told = {node.name: (node.inputs, node.outputs, node.weights) for node in record.nodes}
    assert told == {
        "dense": (("x", "weights"), ("product",), ("weights",)),
        "active": (("product",), ("active",), ()),
    }
    assert record.parameters == {"weights": (120, 480)} and record.outputs == ("y",)


def test_equal_programs_are_one_entry_of_the_cache_and_other_data_is_another() -> None:
    first = opweld.compile(parsed(), threads=1)
    assert opweld.compile(parsed(WEIGHTS.copy()), threads=1).path == first.path
    other = opweld.compile(parsed(2 * WEIGHTS), threads=1)
    assert other.path != first.path
    np.testing.assert_allclose(other.run({"x": rows(2)})["y"], right(rows(2), 2 * WEIGHTS), rtol=1e-4, atol=1e-5)
    assert opweld.compile(parsed(text=TEXT.replace("0.0", "0.5")), threads=1).path != first.path


def test_dims_are_fixed_hinted_and_refused_by_name() -> None:
    fixed = opweld.compile(parsed(), dims={"batch": 4}, threads=1)
    assert fixed.inputs[0].shape == (4, 24) and fixed.outputs[0].shape == (4, 5)
    np.testing.assert_allclose(fixed.run({"x": rows(4)})["y"], right(rows(4)), rtol=1e-4, atol=1e-5)
    hinted = opweld.compile(parsed(), dim_hints={"batch": 16}, threads=1)
    assert account_of(hinted.path).sizes == {"batch": 16}
    with pytest.raises(OptionError, match="'btach'"):
        opweld.compile(parsed(), dims={"btach": 4})
    with pytest.raises(OptionError, match="at least 1"):
        opweld.compile(parsed(), dims={"batch": 0})
    with pytest.raises(AssumptionError, match="batch"):
        opweld.compile(parsed(), threads=1).run({"x": rows(0)})


@pytest.mark.parametrize(
    ("option", "value"), [("lengths", {"x": 1}), ("ranks", {"x": 2}), ("constants", {"x": [1]}), ("rules", [object()])]
)
def test_options_that_mean_nothing_for_a_program_are_refused(option: str, value: Any) -> None:
    with pytest.raises(opweld.OpweldError, match=option if option != "rules" else "rule"):
        opweld.compile(parsed(), **{option: value})
    with pytest.raises(ModelTypeError, match="TensorProgram"):
        opweld.optimize(parsed())  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("line", "other", "told"),
    [
        ("output y = active", "output y = nothing", "'nothing'"),
        ("weights[r0, i1]", "weights[r0]", "weights"),
        ("active", '"an evil */ name"', "'an evil */ name'"),
        ("= dim 0 of x", "= dim 2 of x", "batch"),
    ],
)
def test_a_malformed_program_is_refused_by_name(line: str, other: str, told: str) -> None:
    with pytest.raises(ModelError) as refused:
        opweld.compile(parsed(text=TEXT.replace(line, other)))
    assert "'dense'" in str(refused.value) and told in str(refused.value)


@pytest.mark.parametrize("weights", [WEIGHTS.astype(np.float64), WEIGHTS[:, :3]])
def test_data_that_does_not_fit_its_constant_is_refused(weights: Array) -> None:
    with pytest.raises(ModelError, match="tensor program 'dense': the data of constant 'weights'"):
        opweld.compile(parsed(weights))


def test_a_constant_without_data_is_refused() -> None:
    with pytest.raises(ModelError, match="weights"):
        opweld.compile(parse_program(TEXT))


def counting() -> Flow:
    """y: x doubled until its sum is at least 100: a segment that follows itself, and one that answers."""

    def program(name: str, guard: str, rest: str) -> TensorProgram:
        text = f"program {name}\nsymbol more = value 0 of go\n{guard}\ninput v f32[4]\ninput go b8[]\n{rest}"
        return parse_program(text)

    first = parse_program(
        "program begin\ninput x f32[4]\n"
        "tensor sum f32[]\n  over r0: 4\n  = sum<r0>(x[r0])\n"
        "tensor more b8[]\n  = lt(sum[], 100.0:f32)\n"
        "tensor copy f32[i0: 4]\n  = x[i0]\noutput v = copy\noutput go = more"
    )
    again = program(
        "again",
        'guard more - 1 == 0 because "the sum is small"',
        "tensor twice f32[i0: 4]\n  = add(v[i0], v[i0])\n"
        "tensor sum f32[]\n  over r0: 4\n  = sum<r0>(twice[r0])\n"
        "tensor next b8[]\n  = lt(sum[], 100.0:f32)\noutput twice = twice\noutput next = next",
    )
    over = program("over", 'guard more == 0 because "the sum is large"', "output y = v")
    back = Ending(1, moves=(("v", "twice"), ("go", "next")))
    return Flow(("x",), (("y", "y"),), (Segment((first,), (Ending(1),)), Segment((again, over), (back, LAST))))


def test_a_flow_of_programs_decides_as_it_runs() -> None:
    model = opweld.compile(counting(), threads=1)
    assert [info.name for info in model.outputs] == ["y"] and model.outputs[0].shape == (4,)
    for start in (1.0, 7.0, 400.0):
        x = np.full(4, start, np.float32)
        wanted = x.copy()
        while wanted.sum() < 100:
            wanted += wanted
        np.testing.assert_array_equal(model.run({"x": x})["y"], wanted)


def test_a_flow_that_does_not_fit_together_is_refused() -> None:
    flow = counting()
    first, rest = flow.segments
    wrong = {
        "needs a segment": replace(flow, segments=()),
        "two outputs": replace(flow, outputs=(("y", "v"), ("y", "v"))),
        "1 programs and 2 endings": replace(flow, segments=(replace(first, endings=(LAST, LAST)), rest)),
        "followed by segment 7": replace(flow, segments=(replace(first, endings=(Ending(7),)), rest)),
        "'x', which is not an input": replace(flow, inputs=("z",)),
        "the input 'z'": replace(flow, inputs=("x", "z")),
        "output 'y' of the flow is 'nothing'": replace(flow, outputs=(("y", "nothing"),)),
    }
    for told, made in wrong.items():
        with pytest.raises(ModelError, match=re.escape(told)):
            source_of(made)


@pytest.mark.parametrize("own", [True, False])
def test_a_program_keeps_values_between_runs(own: bool) -> None:
    """As its text says, or as the caller does."""
    text = (
        "program counter\ninput x f32[3]\ninput total f32[3]\n"
        "tensor sum f32[i0: 3]\n  = add(x[i0], total[i0])\noutput y = sum\noutput next = sum\n"
    )
    program = parse_program(text + "state total becomes next\n" * own)
    model = opweld.compile(program, threads=1, states={} if own else {"total": "next"})
    assert [info.name for info in model.inputs] == ["x"] and [info.name for info in model.outputs] == ["y"]
    state, x = model.new_state(), np.arange(3, dtype=np.float32)
    for count in (1, 2, 3):
        np.testing.assert_array_equal(model.run({"x": x}, state)["y"], count * x)


def test_programs_compile_where_there_is_no_onnx() -> None:
    code = "import sys\nfor name in ('onnx', 'onnx_ir'):\n    sys.modules[name] = None\n"
    code += f"import numpy as np, opweld\nfrom opweld.programs import parse_program\nTEXT = {TEXT!r}\n"
    code += "program = parse_program(TEXT, {'weights': np.ones((24, 5), np.float32)})\n"
    code += "print(opweld.compile(program, threads=1).run({'x': np.ones((2, 24), np.float32)})['y'].tolist())"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == f"{[[24.0] * 5] * 2}\n"


def test_a_source_is_one_already() -> None:
    source = source_of(parsed())
    assert source_of(source) is source and source.title == "the tensor program 'dense'"


def test_the_guide_does_what_it_says() -> None:
    guide = Path(__file__).parents[3] / "docs" / "guides" / "add-a-frontend.md"
    (code,) = re.findall(r"```python\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["model"].verify().passed and names["model"].inputs[0].shape == ("batch", 24)

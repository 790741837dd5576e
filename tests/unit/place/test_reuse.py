"""Results in place of dying operands."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opweld
from opweld.ledger import Ledger
from opweld.tensor.parse import parse_program
from tests.unit.tile.pipeline import check_compiled, compile_with, with_data

APART = ("fuse.block", "rewrite.consecutive")
"""Small products after one another would be one kernel."""


def residual(reads_later: bool) -> bytes:
    """a = relu(x); c = (a w1) w2 + a; y = c w3, and with `reads_later` a is read once more after c."""
    weights = [numpy_helper.from_array(_matrix(seed), f"w{seed}") for seed in (1, 2, 3)]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "relu"),
        helper.make_node("MatMul", ["a", "w1"], ["b"], "first"),
        helper.make_node("MatMul", ["b", "w2"], ["m"], "second"),
        helper.make_node("Add", ["m", "a"], ["c"], "residual"),
        helper.make_node("MatMul", ["c", "w3"], ["y" if not reads_later else "n"], "third"),
    ]
    if reads_later:
        nodes.append(helper.make_node("Add", ["n", "a"], ["y"], "again"))
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["m", 32]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "residual", value[:1], value[1:], weights)
    return onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()


def _matrix(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((32, 32), np.float32)


@pytest.mark.parametrize("reads_later", [False, True])
def test_in_place_only_when_the_operand_dies(reads_later: bool) -> None:
    model = opweld.compile(residual(reads_later), disable=APART)
    ledger = Ledger.loads((model.path / "ledger.json").read_text())
    sites = [decision.site for decision in ledger if decision.rule == "place.reuse" and decision.fired]
    assert any("residual" in site for site in sites) is not reads_later
    for rows in (1, 5, 70):
        x = np.random.default_rng(rows).standard_normal((rows, 32), np.float32)
        a = np.maximum(x, 0).astype(np.float64)
        c = a @ _matrix(1) @ _matrix(2) + a
        expected = c @ _matrix(3) + (a if reads_later else 0)
        error = np.abs(model.run({"x": x})["y"] - expected).max() / np.abs(expected).max()
        assert error < 1e-5


def test_disabled_it_changes_no_byte() -> None:
    x = np.random.default_rng(0).standard_normal((9, 32), np.float32)
    with_reuse = opweld.compile(residual(False), disable=APART)
    without = opweld.compile(residual(False), disable=("place.reuse", *APART))
    assert with_reuse.session.plan({"x": x}).arena < without.session.plan({"x": x}).arena
    assert with_reuse.run({"x": x})["y"].tobytes() == without.run({"x": x})["y"].tobytes()


THREE = """program three
input x f32[5, 8]
constant w1 f32[8, 8]
constant w2 f32[8, 8]
constant w3 f32[8, 8]
tensor a f32[i0: 5, i1: 8] from "First"
  over r0: 8
  = sum<r0>(mul(x[i0, r0], w1[r0, i1]))
tensor b f32[i0: 5, i1: 8] from "Second"
  over r0: 8
  = sum<r0>(mul(x[i0, r0], w2[r0, i1]))
tensor c f32[i0: 5, i1: 8] from "Third"
  over r0: 8
  = sum<r0>(mul(x[i0, r0], w3[r0, i1]))
tensor s f32[i0: 5, i1: 8] from "Third"
  = add(add(c[i0, i1], a[i0, i1]), b[i0, i1])
tensor y f32[i0: 5, i1: 8] from "Last"
  over r0: 8
  = sum<r0>(mul(s[i0, r0], w1[r0, i1]))
output y = y
"""


def test_which_operand_is_overwritten_can_be_pinned() -> None:
    program = with_data(parse_program(THREE))
    made = compile_with(program, Ledger(APART))
    whether, which = (d for d in made.ledger if d.rule == "place.reuse")
    assert (whether.taken, which.taken) == ("in-place", "First 0")
    again = compile_with(program, Ledger(APART, pins={which.id: "Second 0"}))
    assert again.placed.storages["s"].root == "b"
    check_compiled(program, again, {})


def test_what_cannot_be_overwritten_says_why() -> None:
    """The first result is multiplied by the sum once more."""
    text = THREE.replace("w1[r0, i1]))\noutput", "a[i1, r0]))\noutput").replace(
        "y f32[i0: 5, i1: 8]", "y f32[i0: 5, i1: 5]"
    )
    text = text.replace("add(add(c[i0, i1], a[i0, i1]), b[i0, i1])", "add(c[i0, i1], a[i0, i1])")
    made = compile_with(with_data(parse_program(text)), Ledger(APART))
    (refused,) = (d for d in made.ledger if d.rule == "place.reuse" and d.subject.startswith("Third"))
    assert dict(refused.failed) == {"First 0": "it is read again later"}
    assert refused.near_miss

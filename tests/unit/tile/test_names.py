"""Names of a model's values that are also those of registers and scratch memory."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opweld
from opweld.target import Target
from opweld.tensor.parse import parse_program
from tests.unit.tile.pipeline import Compiled, check, compile_program, with_data
from tests.unit.tile.programs import PROGRAMS


def softmax_of_products(x: str, w: str, b: str, v: str) -> onnx.ModelProto:
    """softmax(relu(x @ w + b) @ v), whose input and weights are called so."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", [x, w], ["t"]),
        helper.make_node("Add", ["t", b], ["u"]),
        helper.make_node("Relu", ["u"], ["p"]),
        helper.make_node("MatMul", ["p", v], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(random.standard_normal(shape, np.float32), name)
        for name, shape in ((w, (16, 24)), (b, (24,)), (v, (24, 8)))
    ]
    ends = [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["batch", 16])]
    graph = helper.make_graph(nodes, "g", ends, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(
    "names", [("v0", "v1", "v3", "v6"), ("r0_0", "row0", "r1_0", "acc"), ("max", "sum", "scale", "acc")]
)
@pytest.mark.parametrize("disable", [(), ("fuse.block",)])
def test_a_value_of_any_name_is_no_register(names: tuple[str, str, str, str], disable: tuple[str, ...]) -> None:
    x = np.random.default_rng(1).standard_normal((5, 16), np.float32)
    plain = opweld.compile(softmax_of_products("x", "w", "b", "v"), disable=disable).run({"x": x})["y"]
    other = opweld.compile(softmax_of_products(*names), disable=disable).run({names[0]: x})["y"]
    np.testing.assert_array_equal(other, plain)


def made_names(compiled: Compiled) -> set[str]:
    """Names that compiling gave to memory: copies, and what kernels hold."""
    kept = {block.name for item in compiled.kernels for block in item.kernel.scratch}
    return (kept | compiled.placed.storages.keys()) - compiled.program.signatures.keys()


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_value_may_have_any_name_that_compiling_gives(name: str, target: str) -> None:
    """Another name would be another value: an input called as the copy of another one was overwritten by it."""
    text = PROGRAMS[name]
    program = parse_program(text)
    given = [value.name for value in (*program.inputs, *program.constants)]
    for made in sorted(made_names(compile_program(with_data(program), Target.of(target)))):
        renamed = next((value for value in given if not made.startswith(value)), None)
        if renamed is not None and made not in program.signatures:
            check(re.sub(rf"\b{renamed}\b", made, text), target=Target.of(target))

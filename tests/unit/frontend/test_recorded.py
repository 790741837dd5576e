"""The nodes of a file are recorded as it names them, with what the compiler calls them and where they come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from opweld.frontend import onnx as frontend
from opweld.frontend.explore import segments
from opweld.frontend.explored import explored_nodes
from opweld.frontend.graph import graph_of
from opweld.frontend.recorded import TRACE, recorded_nodes, source_of, stored_parameters
from opweld.record import FileNode

FRAME = '  File "{}", line {}, in forward\n    return x\n'
TORCH = "/env/lib/python3.11/site-packages/torch/nn/modules/linear.py"


def model(*nodes: onnx.NodeProto, outputs: tuple[str, ...] = ("y",)) -> onnx.ModelProto:
    def declared(name: str, *shape: Any) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(nodes, "g", [declared("x", "n", 4)], [declared(name, None, None) for name in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def recorded(proto: onnx.ModelProto) -> dict[str, FileNode]:
    loaded = frontend.load(proto)
    nodes = recorded_nodes(proto, loaded, stored_parameters(proto))
    return {node.name: node for node in explored_nodes(nodes, segments(graph_of(loaded), {}))}


def test_nodes_are_as_the_file_has_them_and_say_what_is_known_before_a_run() -> None:
    proto = model(
        helper.make_node("Constant", [], ["c"], name="two", value_float=2.0),
        helper.make_node("Shape", ["x"], ["s"], name="size"),
        helper.make_node("Mul", ["x", "c"], ["m"]),
        helper.make_node("Relu", ["m"], ["y"], name="relu"),
        outputs=("y", "s"),
    )
    del proto.graph.output[1:]
    nodes = recorded(proto)
    unnamed = next(node for node in nodes.values() if node.operator == "Mul")
    assert unnamed.name and unnamed.called == (unnamed.name,), "what has no name goes by that of the compiler"
    assert (unnamed.inputs, unnamed.outputs, unnamed.reached, unnamed.known) == (("x", "c"), ("m",), True, False)
    assert nodes["two"].known and nodes["size"].known and not nodes["relu"].known


def test_parameters_are_stored_numbers_and_neither_shapes_nor_lone_constants() -> None:
    constant = helper.make_tensor("", TensorProto.FLOAT16, [4, 3], np.zeros((4, 3)))
    proto = model(
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Constant", [], ["v"], value=constant),
        helper.make_node("Mul", ["a", "eps"], ["b"], name="scale"),
        helper.make_node("Reshape", ["b", "shape"], ["y"], name="reshape"),
    )
    for array, name in ((np.zeros((4, 4), np.float32), "w"), (np.zeros((), np.float32), "eps")):
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    proto.graph.initializer.append(numpy_helper.from_array(np.array([-1]), "shape"))
    packed = proto.graph.initializer.add(name="q", data_type=TensorProto.INT4, dims=[3, 3])
    packed.raw_data = bytes(5)
    assert stored_parameters(proto) == {"w": (16, 64), "v": (12, 24), "q": (9, 5)}
    assert {name: node.weights for name, node in recorded(proto).items() if node.weights} == {"product": ("w",)}


def test_nodes_of_bodies_say_whose() -> None:
    def body(operator: str) -> onnx.GraphProto:
        value = helper.make_tensor_value_info(operator, TensorProto.FLOAT, None)
        return helper.make_graph(
            [helper.make_node(operator, ["x"], [operator], name=f"in_{operator}")], "b", [], [value]
        )

    choice = helper.make_node("If", ["p"], ["y"], name="choice", then_branch=body("Exp"), else_branch=body("Abs"))
    always = helper.make_node("Constant", [], ["p"], name="p", value=helper.make_tensor("", TensorProto.BOOL, [], [1]))
    nodes = recorded(model(always, choice))
    assert {name: node.body for name, node in nodes.items()} == {
        "p": "", "choice": "", "in_Exp": "choice", "in_Abs": "choice",
    }  # fmt: skip
    assert nodes["in_Exp"].reached and not nodes["in_Abs"].reached, "the condition is known"


def test_the_exporter_of_torchscript_writes_it_to_the_documentation() -> None:
    calls = f"{TORCH}(134): forward\nnet.py(3): forward\n{TORCH}(1768): _slow_forward\nrun.py(9): <module>\n"
    for text, source in ((calls, "net.py:3"), ("what it does, see net.py (3): there", ""), ("", "")):
        assert source_of(helper.make_node("Relu", ["x"], ["y"], doc_string=text)) == source


@pytest.mark.parametrize(
    ("trace", "source"),
    [
        (FRAME.format("net.py", 3), "net.py:3"),
        (FRAME.format("run.py", 9) + FRAME.format("net.py", 3) + FRAME.format(TORCH, 134), "net.py:3"),
        (FRAME.format(TORCH, 134), f"{TORCH}:134"),
        ("nothing of that form", ""),
        ("", ""),
    ],
)
def test_the_line_of_the_program_is_the_innermost_outside_of_pytorch(trace: str, source: str) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="relu")
    node.metadata_props.add(key="namespace", value="whatever")
    node.metadata_props.add(key=TRACE, value=trace)
    assert source_of(node) == source
    assert recorded(model(node))["relu"].source == source, "conversion between opsets loses metadata, the record not"

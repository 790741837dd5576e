"""Sound models to start from: random graphs, ONNX's own test models, one of each kind of container, small real ones."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.zoo.fetch import cache_folder
from opweld.frontend.check import OLDEST_OPSET
from tests.random.generate import case_of
from tests.unit.frontend.models import model_of, node

LARGEST = 3 << 20
"""Bytes of a file that is taken up; a mutant of it must be read within seconds."""


def source_of(choose: random.Random) -> tuple[str, onnx.ModelProto]:
    """A sound model and its name."""
    kind = choose.random()
    if kind < 0.65:
        seed = choose.randrange(1 << 30)
        return f"graph {seed}", case_of(seed).model
    if kind < 0.80:
        name = choose.choice(sorted(containers()))
        copy = onnx.ModelProto()
        copy.CopyFrom(containers()[name])
        return name, copy
    paths = zoo_files() if kind > 0.95 and zoo_files() else suite_files()
    path = choose.choice(paths)
    return f"{path.parent.name}/{path.name}", onnx.load(path, load_external_data=False)


@cache
def suite_files() -> list[Path]:
    """The model tests that come with onnx."""
    folder = Path(onnx.__file__).parent / "backend/test/data"
    found = [path for path in sorted(folder.glob("*/*/model.onnx")) if path.stat().st_size < LARGEST]
    found = [path for path in found if path.parts[-3] in ("simple", "pytorch-operator", "pytorch-converted")]
    return [path for path in found if onnx.load(path).opset_import[0].version >= OLDEST_OPSET]


@cache
def zoo_files() -> list[Path]:
    """The small real models that were fetched on this machine, if any."""
    return [path for path in sorted(cache_folder().glob("*.onnx")) if path.stat().st_size < LARGEST]


@cache
def containers() -> dict[str, onnx.ModelProto]:
    """Models with bodies, functions, recurrences, windows, computed shapes, tensors of every kind, external data."""
    return {
        "functions": _functions(),
        "if": _conditional(),
        "loop": _loop(),
        "scan": _scan(),
        "shapes": _shapes(),
        "old": _old(),
        "external": _external(),
        "quantized": _quantized(),
        **{op.lower(): _recurrent(op, gates) for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1))},
        **{op.lower(): _window(op) for op in ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool")},
    }


def _functions() -> onnx.ModelProto:
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    outer = [
        helper.make_node("Inner", ["a"], ["t"], domain="mine"),
        helper.make_node("Inner", ["t"], ["b"], domain="mine"),
    ]
    inner = [helper.make_node("LeakyRelu", ["a"], ["b"], alpha=0.5)]
    functions = [
        helper.make_function("mine", name, ["a"], ["b"], body, imports)
        for name, body in (("Outer", outer), ("Inner", inner))
    ]
    call = helper.make_node("Outer", ["x"], ["y"], domain="mine", name="call")
    return model_of([call], {"x": ["n", 3]}, ["y"], opset=18, functions=functions)


def _conditional() -> onnx.ModelProto:
    def body(op: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info("b", TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(op, ["x"], ["b"], name=op)], op, [], [out])

    branch = helper.make_node("If", ["c"], ["y"], name="if", then_branch=body("Relu"), else_branch=body("Neg"))
    nodes = [node("Shape", ["x"], "s"), node("Size", ["s"], "k"), node("Equal", ["k", "two"], "c"), branch]
    return model_of(nodes, {"x": ["n", 3]}, ["y"], {"two": np.array(2)}, opset=17)


def _loop() -> onnx.ModelProto:
    """Counts from the input's first element on, and stacks what it passes, as long as it is below seven."""
    ints, bools, floats = TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT
    info = helper.make_tensor_value_info
    nodes = [
        node("Add", ["s", "one"], "s_next"),
        node("Less", ["s_next", "most"], "again"),
        node("Identity", ["s"], "row"),
    ]
    body = helper.make_graph(
        nodes,
        "body",
        [info("i", ints, []), info("go", bools, []), info("s", floats, [2])],
        [info("again_scalar", bools, []), info("s_next", floats, [2]), info("row", floats, [2])],
    )
    body.node.append(node("ReduceMin", ["again_u8"], "again_min", keepdims=0))
    body.node.insert(2, node("Cast", ["again"], "again_u8", to=int(TensorProto.UINT8)))
    body.node.append(node("Cast", ["again_min"], "again_scalar", to=int(bools)))
    loop = helper.make_node("Loop", ["trips", "", "x"], ["last", "y"], name="loop", body=body)
    weights = {"one": np.ones(2, np.float32), "most": np.array(7, np.float32)}
    return model_of([loop], {"x": [2], "trips": []}, ["y", "last"], weights, opset=18, kinds={"trips": ints})


def _scan() -> onnx.ModelProto:
    """Running sums of rows."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Add", ["s", "x_row"], "s_next"), node("Relu", ["s_next"], "y_row")],
        "body",
        [info("s", TensorProto.FLOAT, [3]), info("x_row", TensorProto.FLOAT, [3])],
        [info("s_next", TensorProto.FLOAT, [3]), info("y_row", TensorProto.FLOAT, [3])],
    )
    scan = helper.make_node("Scan", ["first", "x"], ["last", "y"], name="scan", num_scan_inputs=1, body=body)
    return model_of([scan], {"x": ["t", 3]}, ["y", "last"], {"first": np.zeros(3, np.float32)}, opset=18)


def _shapes() -> onnx.ModelProto:
    nodes = [
        node("Shape", ["x"], "s"),
        node("Gather", ["s", "zero"], "n"),
        node("Concat", ["n", "minus"], "t", axis=0),
        node("Reshape", ["x", "t"], "r"),
        node("Slice", ["r", "zero", "n", "zero"], "l"),
        node("Unsqueeze", ["l", "zero"], "u"),
        node("Squeeze", ["u", "zero"], "q"),
        node("Expand", ["q", "t2"], "e"),
        node("Pad", ["e", "pads"], "p"),
        node("Tile", ["p", "reps"], "i"),
        node("Split", ["i"], "y", axis=1, num_outputs=1),
    ]
    weights = {
        "zero": np.array([0]), "minus": np.array([-1]), "t2": np.array([1, 12]), "pads": np.array([0, 1, 0, 1]),
        "reps": np.array([1, 2]),
    }  # fmt: skip
    return model_of(nodes, {"x": ["n", 3, 4]}, ["y"], weights, opset=18)


def _old() -> onnx.ModelProto:
    nodes = [
        node("Squeeze", ["x"], "s", axes=[0]),
        node("Unsqueeze", ["s"], "u", axes=[0]),
        node("Upsample", ["u", "scales"], "v", mode="nearest"),
        node("Pad", ["v"], "p", pads=[0, 0, 1, 1, 0, 0, 1, 1]),
        node("Slice", ["p"], "l", starts=[0], ends=[1], axes=[0]),
        node("BatchNormalization", ["l", "g", "g", "g", "g"], "b"),
        node("Softmax", ["b"], "y", axis=1),
    ]
    weights = {"scales": np.array([1, 1, 2, 2], np.float32), "g": np.ones(3, np.float32)}
    return model_of(nodes, {"x": [1, 3, 4, 4]}, ["y"], weights, opset=9, ir_version=5)


def _external() -> onnx.ModelProto:
    model = model_of([node("Add", ["x", "w"], "y")], {"x": [3]}, ["y"], {"w": np.ones(3, np.float32)})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", "0"), ("length", "12")):
        tensor.external_data.add(key=key, value=value)
    return model


def _quantized() -> onnx.ModelProto:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q"),
        node("DequantizeLinear", ["q", "s", "z"], "d"),
        node("MatMul", ["d", "w"], "y"),
    ]
    weights = {"s": np.array(0.5, np.float32), "z": np.array(3, np.uint8), "w": np.ones((4, 2), np.float32)}
    return model_of(nodes, {"x": ["n", 4]}, ["y"], weights, opset=19)


def _recurrent(op: str, gates: int) -> onnx.ModelProto:
    weights = {name: np.ones((1, gates * 4, size), np.float32) for name, size in (("w", 3), ("r", 4))}
    recurrent = helper.make_node(op, ["x", "w", "r"], ["y", "h"], hidden_size=4, direction="forward", name=op)
    return model_of([recurrent], {"x": ["t", 1, 3]}, ["y", "h"], weights, opset=17)


def _window(op: str) -> onnx.ModelProto:
    weights = {"w": np.ones((2, 2, 3, 3), np.float32)} if op.startswith("Conv") else {}
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
    return model_of([node(op, ["x", *weights], "y", **window)], {"x": [1, 2, "h", 9]}, ["y"], weights, opset=17)

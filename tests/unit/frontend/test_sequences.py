from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from opweld.errors import ModelError, UnspecifiedError, UnsupportedError
from tests.unit.frontend.models import model_of
from tests.unit.ops.one_node import normal, programs_of, run

node = helper.make_node
INTS = {name: np.array(value, np.int64) for name, value in {
    "zero": 0, "one": 1, "two": 2, "last": -1, "far": 9, "sizes": [1, 3, 2],
}.items()}  # fmt: skip


def compare(nodes: Sequence[onnx.NodeProto], *outputs: str, dims: Sequence[Any] = (6, 4), more: Any = ()) -> None:
    model = model_of(nodes, {"x": dims, "z": dims}, outputs, INTS)
    programs = programs_of(model)
    for shape in more or (dims,):
        feeds = {"x": normal(*shape), "z": normal(*shape, seed=1)}
        expected: Any = ReferenceEvaluator(model).run(None, feeds)
        found = run(programs, feeds)
        for name, wanted in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(found[name], wanted)


LIST = [
    node("Neg", ["x"], ["n"]),
    node("SequenceConstruct", ["x", "z", "n"], ["three"]),
]


def test_lists() -> None:
    nodes = [
        *LIST,
        node("SequenceAt", ["three", "one"], ["a"]),
        node("SequenceErase", ["three", "zero"], ["two_left"]),
        node("SequenceInsert", ["two_left", "x", "last"], ["again"]),
        node("SequenceInsert", ["again", "n"], ["four"]),
        node("SequenceErase", ["four"], ["back"]),
        node("Identity", ["back"], ["same"]),
        node("SequenceAt", ["same", "last"], ["b"]),
        node("SequenceLength", ["four"], ["c"]),
    ]
    compare(nodes, "a", "b", "c")


@pytest.mark.parametrize("stacks", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_concatenation(stacks: int, axis: int) -> None:
    nodes = [
        node("SequenceEmpty", [], ["none"], dtype=TensorProto.FLOAT),
        node("SequenceInsert", ["none", "x"], ["first"]),
        node("SequenceInsert", ["first", "z"], ["both"]),
        node("ConcatFromSequence", ["both"], ["y"], axis=axis, new_axis=stacks),
    ]
    compare(nodes, "y", dims=("n", 4), more=((6, 4), (1, 4)))


def test_pieces_of_known_sizes() -> None:
    nodes = [
        node("SplitToSequence", ["x", "sizes"], ["pieces"], axis=0),
        node("SequenceAt", ["pieces", "one"], ["a"]),
        node("SequenceAt", ["pieces", "last"], ["b"]),
        node("SequenceLength", ["pieces"], ["c"]),
        node("SequenceErase", ["pieces", "zero"], ["rest"]),
        node("ConcatFromSequence", ["rest"], ["d"], axis=0),
    ]
    compare(nodes, "a", "b", "c", "d")


@pytest.mark.parametrize("keeps", [0, 1])
def test_single_elements(keeps: int) -> None:
    nodes = [
        node("SplitToSequence", ["x"], ["pieces"], axis=1, keepdims=keeps),
        node("SequenceAt", ["pieces", "one"], ["a"]),
        node("SequenceAt", ["pieces", "last"], ["b"]),
        node("SequenceLength", ["pieces"], ["c"]),
        node("ConcatFromSequence", ["pieces"], ["d"], axis=1, new_axis=1 - keeps),
    ]
    compare(nodes, "a", "b", "c", "d", dims=("n", "m"), more=((6, 4), (1, 2)))


def test_pieces_of_one_size() -> None:
    """The last one is shorter."""
    nodes = [
        node("SplitToSequence", ["x", "two"], ["pieces"], axis=1),
        node("SequenceAt", ["pieces", "one"], ["a"]),
        node("SequenceLength", ["pieces"], ["b"]),
    ]
    compare(nodes, "a", "b", dims=("n", "m"), more=((6, 4), (2, 3)))


def test_pieces_of_a_computed_tensor_whose_size_is_known() -> None:
    """How many there are decides what is concatenated; only an input declares its size."""
    nodes = [
        node("Relu", ["x"], ["positive"]),
        node("SplitToSequence", ["positive", "two"], ["pieces"], axis=1),
        node("ConcatFromSequence", ["pieces"], ["a"], axis=0),
    ]
    compare(nodes, "a", dims=("n", 4), more=((6, 4), (2, 4)))


def test_inside_of_a_body() -> None:
    """A body may take tensors out of a sequence of the graph around it."""
    out = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    branches = [
        helper.make_graph([node("SequenceAt", ["three", place], ["inner"])], place, [], [out])
        for place in ("one", "two")
    ]
    nodes = [
        *LIST,
        node("Size", ["x"], ["size"]),
        node("Cast", ["size"], ["go"], to=TensorProto.BOOL),
        node("If", ["go"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    compare(nodes, "y")


def test_a_map() -> None:
    """Of two sequences and a tensor; the body has a constant of its own."""

    def info(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)

    body = helper.make_graph(
        [
            node("Constant", [], ["half"], value=numpy_helper.from_array(np.array(0.5, np.float32))),
            node("Add", ["p", "q"], ["sum"]),
            node("Mul", ["sum", "half"], ["mean"]),
            node("Sub", ["mean", "r"], ["out"]),
        ],
        "body",
        [info("p"), info("q"), info("r")],
        [info("out"), info("sum")],
    )
    nodes = [
        *LIST,
        node("SequenceConstruct", ["z", "n", "x"], ["others"]),
        node("SequenceMap", ["three", "others", "z"], ["mapped", "sums"], body=body),
        node("ConcatFromSequence", ["mapped"], ["y"], axis=0),
        node("SequenceAt", ["sums", "one"], ["s"]),
    ]
    # The reference evaluator maps no more than one sequence.
    programs = programs_of(model_of(nodes, {"x": ("n", 4), "z": ("n", 4)}, ["y", "s"], INTS))
    for rows in (6, 1):
        x, z = normal(rows, 4), normal(rows, 4, seed=1)
        found = run(programs, {"x": x, "z": z})
        means = [(p + q) / 2 - z for p, q in ((x, z), (z, -x), (-x, x))]
        np.testing.assert_allclose(found["y"], np.concatenate(means), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found["s"], z - x, rtol=1e-6)


def test_optionals() -> None:
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [6, 4])
    nodes = [
        node("Optional", ["x"], ["some"]),
        node("Optional", [], ["none"], type=kind),
        node("OptionalHasElement", ["some"], ["a"]),
        node("OptionalHasElement", ["none"], ["b"]),
        node("OptionalHasElement", [], ["c"]),
        node("OptionalHasElement", ["x"], ["d"]),
        node("OptionalGetElement", ["some"], ["e"]),
    ]
    model = model_of(nodes, {"x": (6, 4)}, list("abcde"))
    x = normal(6, 4)
    found = run(programs_of(model), {"x": x})
    assert [bool(found[name]) for name in "abcd"] == [True, False, False, True]
    np.testing.assert_array_equal(found["e"], x)


def test_what_is_refused() -> None:
    def load(*nodes: onnx.NodeProto, dims: Sequence[Any] = (6, 4)) -> None:
        programs_of(model_of([*LIST, *nodes], {"x": dims, "z": dims, "p": ()}, ["y"], INTS, kinds={"p": 7}))

    with pytest.raises(ModelError, match="out of range"):
        load(node("SequenceAt", ["three", "far"], ["y"]))
    with pytest.raises(ModelError, match="out of range"):
        load(node("SequenceErase", ["three", "far"], ["s"]), node("SequenceAt", ["s", "one"], ["y"]))
    with pytest.raises(UnspecifiedError, match="depends on 'p'"):
        load(node("SequenceErase", ["three", "p"], ["s"]), node("SequenceAt", ["s", "one"], ["y"]))
    with pytest.raises(UnsupportedError, match="unknown before its shape"):
        load(
            node("SplitToSequence", ["x", "two"], ["s"]),
            node("SequenceErase", ["s"], ["t"]),
            node("SequenceAt", ["t", "one"], ["y"]),
            dims=("n", 4),
        )
    with pytest.raises((UnsupportedError, ModelError), match="sequence"):
        load(node("Neg", ["three"], ["y"]))
    with pytest.raises(ModelError, match="is empty"):
        kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [6, 4])
        load(node("Optional", [], ["none"], type=kind), node("OptionalGetElement", ["none"], ["y"]))


def test_a_constant_in_a_list() -> None:
    weight = numpy_helper.from_array(normal(6, 4, seed=5))
    nodes = [
        node("Constant", [], ["w"], value=weight),
        node("SequenceConstruct", ["x", "w"], ["both"]),
        node("ConcatFromSequence", ["both"], ["y"], axis=1),
    ]
    compare(nodes, "y")

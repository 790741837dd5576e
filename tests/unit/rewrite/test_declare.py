"""What is added to a convolution has its sizes declared, where the file gets no larger for it."""

from __future__ import annotations

import numpy as np
import onnx

from opweld.rewrite.optimize import Optimized
from tests.unit.rewrite.rewritten import Array, model_of, normal, rewritten

TEXT = """g (float[n, 4, h, w] x) => (float[n, 4, p, q] y) {
    a = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, v) r = Relu(a) i = Identity(r)
    b = Conv<pads = [1, 1, 1, 1]>(i, v) y = Add(b, r) }"""


def optimized(**stored: Array) -> Optimized:
    return rewritten(model_of(TEXT, {"v": normal(4, 4, 3, 3), **stored}), {"x": normal(2, 4, 7, 8)})


def test_operands_of_a_sum_have_the_same_names_of_sizes() -> None:
    shapes = [list(node.outputs[0].shape or ()) for node in optimized(more=normal(100)).model.graph][:3]
    assert shapes[1] == shapes[2] == ["n", 4, "size0", "size1"]


def test_a_file_gets_no_larger_for_it() -> None:
    model = model_of(TEXT.replace("i = Identity(r)", "").replace("(i, v)", "(r, v)"), {"v": normal(4, 4, 3, 3)})
    for node in model.graph.node:  # nothing to leave out that would make room
        del node.attribute[:]
    made = rewritten(model)
    assert all(node.outputs[0].shape is None for node in list(made.model.graph)[:-1])


def test_names_of_sizes_are_new() -> None:
    model = model_of(TEXT.replace("h, w]", "size0, w]"), {"v": normal(4, 4, 3, 3), "more": normal(100)})
    made = rewritten(model, {"x": normal(2, 4, 7, 8)})
    assert list(made.model.graph[1].outputs[0].shape or ()) == ["n", 4, "size1", "size2"]


def test_defaults_make_room() -> None:
    text = TEXT.replace(
        "<pads = [1, 1, 1, 1]>", "<pads = [1, 1, 1, 1], dilations = [1, 1], strides = [1, 1], group = 1>"
    )
    made = rewritten(model_of(text, {"v": normal(4, 4, 3, 3)}), {"x": normal(2, 4, 7, 8)})
    assert [set(node.attributes) for node in made.model.graph if node.op_type == "Conv"] == [
        {"strides", "pads"},
        {"pads"},
    ]


def test_sizes_that_are_fed_stay_right() -> None:
    for height in (1, 6):
        before = model_of(TEXT, {"v": normal(4, 4, 3, 3), "more": np.zeros(100, np.float32)})
        onnx.checker.check_model(before, full_check=True)
        rewritten(before, {"x": normal(1, 4, height, 5)})

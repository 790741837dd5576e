"""Weights rounded to integers: which are, which are not and why, and that what is computed is exactly their product."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opweld
from opweld.errors import OptionError
from opweld.fuse.weights import FIXED
from opweld.ledger import Decision
from opweld.options import PrecisionName
from opweld.tensor.integer_weights import block_length, quantize_blocks, quantize_weights

RULE = "fuse.precision"
LARGE = 2048
"""Rows and columns of weights that no cache holds, so that a product of one row waits for their bytes."""


def model_of(weights: np.ndarray, rows: int | str, transposed: bool = False, name: str = "head") -> bytes:
    """x [rows, k] times weights [k, n], stored [n, k] where transposed, and a bias."""
    k, n = weights.shape
    stored = np.ascontiguousarray(weights.T) if transposed else weights
    bias = np.linspace(-1, 1, n, dtype=np.float32)
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], name=name, transB=int(transposed))
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, k])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, n])],
        [numpy_helper.from_array(stored, "w"), numpy_helper.from_array(bias, "b")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnx.ModelProto.SerializeToString(made)


def weights_of(k: int, n: int) -> np.ndarray:
    made = np.random.default_rng(0).standard_normal((k, n)).astype(np.float32)
    made[:, n // 2] = 0
    made[: k // 2, n // 3] = 0
    return made


def decisions_of(model: bytes, precision: PrecisionName, target: str = "x86-64-v4") -> Sequence[Decision]:
    found = opweld.explain(model, precision=precision, target=target).decisions
    return [one for one in found if one.rule == RULE]


def check(model: bytes, rounded: np.ndarray, precision: PrecisionName, form: str, rows: int = 3) -> None:
    """Compiles with all weights in a form, and compares with float64 of these weights: K products and sums are each
    rounded by at most 2 ** -24 of the sum of magnitudes."""
    (decision,) = decisions_of(model, precision, "x86-64-v3")
    compiled = opweld.compile(model, precision=precision, pins={decision.id: form}, target="x86-64-v3", threads=2)
    x = np.random.default_rng(1).standard_normal((rows, len(rounded))).astype(np.float32)
    (y,) = compiled.run({"x": x}).values()
    bias = np.linspace(-1, 1, rounded.shape[1], dtype=np.float32)
    wide, held = x.astype(np.float64), rounded.astype(np.float64)
    magnitudes = np.abs(wide) @ np.abs(held) + np.abs(bias)
    assert (np.abs(y - (wide @ held + bias)) <= 2 * (len(held) + 2) * 2.0**-24 * magnitudes).all()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("k", "n"), [(64, 48), (63, 17)])
def test_products_are_of_weights_of_8_bits(k: int, n: int, transposed: bool) -> None:
    weights = weights_of(k, n)
    rounded = quantize_weights(weights, 1).values()
    check(model_of(weights, "rows", transposed), rounded, "int8-weights", "int8")


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("k", "n"), [(256, 48), (48, 17)])
def test_products_are_of_weights_of_4_bits(k: int, n: int, transposed: bool) -> None:
    weights = weights_of(k, n)
    rounded = quantize_blocks(weights, 0, block_length(k)).values()
    check(model_of(weights, "rows", transposed), rounded, "int4-weights", "int4")


def fixed_point(model: bytes, x: np.ndarray, target: str = "x86-64-v3") -> list[np.ndarray]:
    """What a model answers whose products are of integers, wherever they can be."""
    pins = {decision.id: FIXED for decision in decisions_of(model, "int8-weights", target)}
    return list(
        opweld.compile(model, precision="int8-weights", pins=pins, target=target, threads=2).run({"x": x}).values()
    )


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rows", [1, 2, "rows"])
def test_products_in_fixed_point_hold_24_bits(rows: int | str, transposed: bool) -> None:
    weights = weights_of(64, 17)
    x = np.random.default_rng(1).standard_normal((3 if isinstance(rows, str) else rows, 64)).astype(np.float32)
    x[0] *= 1e-20
    x[-1, 1:] *= 1e-3
    (y,) = fixed_point(model_of(weights, rows, transposed), x)
    rounded = quantize_weights(weights, 1).values().astype(np.float64)
    bias = np.linspace(-1, 1, 17, dtype=np.float32)
    right = x.astype(np.float64) @ rounded + bias
    # An element is off by half a step, 2 ** -24 of the row's largest; sums are rounded a few times as they are put
    # together, which the first byte alone may make as large as the row's largest by all weights.
    reach = np.abs(x).max(axis=1, keepdims=True) * np.abs(rounded).sum(axis=0)
    assert (np.abs(y - right) <= 8 * 2.0**-24 * (reach + np.abs(bias) + np.abs(right))).all()


def test_rows_without_a_range_are_none_in_fixed_point_either() -> None:
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    x[0], x[1, 5], x[2, 5] = 0, np.inf, np.nan
    weights = weights_of(64, 17)
    (y,) = fixed_point(model_of(weights, "rows"), x)
    assert (y[0] == np.linspace(-1, 1, 17, dtype=np.float32)).all()
    assert not np.isfinite(y[1:3]).any() and np.isfinite(y[3]).all()


def test_what_several_products_read_is_split_once() -> None:
    random = np.random.default_rng(2)
    weights = [random.standard_normal((64, n)).astype(np.float32) for n in (16, 24)]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", f"w{n}"], [f"y{n}"]) for n in range(2)],
        "two",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 5, 64])],
        [helper.make_tensor_value_info(f"y{n}", TensorProto.FLOAT, None) for n in range(2)],
        [numpy_helper.from_array(w, f"w{n}") for n, w in enumerate(weights)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    model = onnx.ModelProto.SerializeToString(made)
    x = random.standard_normal((2, 5, 64)).astype(np.float32)
    for y, w in zip(fixed_point(model, x), weights, strict=True):
        right = x.astype(np.float64) @ quantize_weights(w, 1).values().astype(np.float64)
        np.testing.assert_allclose(y, right, atol=1e-5 * np.abs(right).max())
    pins = {decision.id: FIXED for decision in decisions_of(model, "int8-weights")}
    kernels = opweld.analyze(model, precision="int8-weights", pins=pins, target="x86-64-v4").kernels
    assert len([k for k in kernels if "contraction" in k.entry.name]) == 2
    assert len(kernels) <= 6  # steps, bytes, and of each product its sums and what puts them together


@pytest.mark.parametrize("head", [8, 6])
def test_neighbours_of_merged_heads_are_those_of_one_head(head: int) -> None:
    """What attention gives, [heads, rows, head], as the projection behind it reads it. Heads of 6 have words that lie
    across two."""
    heads, rows = 4, 3
    weights = weights_of(heads * head, 17)
    graph = helper.make_graph(
        [
            helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
            helper.make_node("Reshape", ["t", "shape"], ["m"]),
            helper.make_node("MatMul", ["m", "w"], ["y"]),
        ],
        "merged",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [heads, rows, head])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([rows, -1]), "shape"), numpy_helper.from_array(weights, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    model = onnx.ModelProto.SerializeToString(made)
    (decision,) = decisions_of(model, "int8-weights", "x86-64-v3")
    assert (FIXED in decision.failed) == (head == 6)
    if head == 6:
        assert "4 at a time" in str(decision.failed[FIXED])
        return
    x = np.random.default_rng(1).standard_normal((heads, rows, head)).astype(np.float32)
    (y,) = fixed_point(model, x)
    rounded = quantize_weights(weights, 1).values().astype(np.float64)
    wide = x.transpose(1, 0, 2).reshape(rows, -1).astype(np.float64)
    # See above: half a step of the row's largest, by all weights, and a few roundings.
    reach = np.abs(wide).max(axis=1, keepdims=True) * np.abs(rounded).sum(axis=0)
    assert (np.abs(y - wide @ rounded) <= 8 * 2.0**-24 * (reach + np.abs(wide @ rounded))).all()


def test_sums_that_are_none_of_words_are_not_in_fixed_point() -> None:
    (decision,) = decisions_of(model_of(weights_of(62, 17), "rows"), "int8-weights")
    assert "4 at a time" in str(decision.failed[FIXED])


@pytest.mark.parametrize("k", [63, 40])
def test_weights_that_blocks_do_not_divide_have_8_bits(k: int) -> None:
    weights = weights_of(k, 24)
    model = model_of(weights, "rows")
    (decision,) = decisions_of(model, "int4-weights")
    assert str(k) in str(decision.failed["int4"])
    check(model, quantize_weights(weights, 1).values(), "int4-weights", "int8")


@pytest.mark.parametrize(("precision", "form"), [("int8-weights", "int8"), ("int4-weights", "int4")])
def test_products_that_wait_for_weights_are_rounded(precision: PrecisionName, form: str) -> None:
    (decision,) = decisions_of(model_of(weights_of(LARGE, LARGE), 1), precision)
    assert decision.taken.startswith(form) and "off by" in decision.reason
    wide, narrow = decision.alternatives[0].bytes, decision.alternatives[-1].bytes
    assert isinstance(wide, int) and isinstance(narrow, int) and narrow < wide / 3


def test_products_that_wait_for_arithmetic_keep_their_floats() -> None:
    for k, rows in ((LARGE, 512), (32, 1)):
        for precision in ("int8-weights", "int4-weights"):
            (decision,) = decisions_of(model_of(weights_of(k, k), rows), precision)
            assert decision.taken == "fp32" and "no less time" in decision.reason


def test_weights_without_a_range_keep_their_floats() -> None:
    for value in (np.nan, np.inf):
        weights = weights_of(LARGE, LARGE)
        weights[3, 5] = value
        (decision,) = decisions_of(model_of(weights, 1, name="projection"), "int8-weights")
        assert decision.taken == "fp32" and "projection" in decision.reason and "NaN or infinity" in decision.reason


def test_nothing_is_rounded_unless_asked_for() -> None:
    assert not decisions_of(model_of(weights_of(LARGE, LARGE), 1), "fp32")


def test_integers_of_all_operands_need_data() -> None:
    with pytest.raises(OptionError, match="opweld quantize"):
        opweld.compile(model_of(weights_of(8, 8), 1), precision="int8")  # pyright: ignore[reportArgumentType]

"""Weights rounded to integers: which are, which are not and why, and that what is computed is exactly their product."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opweld
from opweld.errors import OptionError
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
    assert decision.taken == form and "off by" in decision.reason
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

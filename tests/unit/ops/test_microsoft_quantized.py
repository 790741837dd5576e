from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from opweld.errors import UnsupportedError
from opweld.ledger import Ledger
from opweld.ops.registry import references
from opweld.tensor.dim import product
from opweld.tensor.expr import Binary, Load, Reduce
from opweld.tensor.program import Scan
from opweld.tensor.simplify import simplify_flow
from tests.unit.ops.one_node import Array, feeds_of, flow_of, normal
from tests.unit.ops.runtime_node import MICROSOFT, check_runtime, runtime_model
from tests.unit.tile.pipeline import compile_with, run


def small(dtype: Any, *shape: int, seed: int = 0) -> Array:
    limits = np.iinfo(dtype)
    return np.random.default_rng([seed, *shape]).integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def scale(value: float) -> Array:
    return np.array(value, np.float32)


def quantized(dtype: Any, outputs: int = 1) -> dict[str, Any]:
    """Options of nodes that give this type; where a number of units is nearly halfway between two, float32 may round
    it the other way: a few elements are a step apart."""
    code = TensorProto.UINT8 if dtype == np.uint8 else TensorProto.INT8
    return {"types": dict.fromkeys(range(outputs), code), "steps": 1}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_sums_and_products(dtype: Any) -> None:
    zero = np.array(7, dtype)
    for op in ("QLinearAdd", "QLinearMul"):
        pair = [
            small(dtype, 3, 1, 50),
            scale(0.0213),
            zero,
            small(dtype, 4, 50, seed=1),
            scale(0.0517),
            np.array(3, dtype),
        ]
        check_runtime(op, [*pair, scale(0.0973), zero], **quantized(dtype))


def test_zero_points_may_be_absent() -> None:
    a, b = small(np.uint8, 3, 50), small(np.uint8, 3, 50, seed=1)
    wanted = np.rint((a * 0.0213 + b * 0.0517) / 0.0973).clip(0, 255).astype(np.uint8)
    inputs = [a, scale(0.0213), None, b, scale(0.0517), None, scale(0.0973)]
    check_runtime("QLinearAdd", inputs, expected=[wanted], **quantized(np.uint8))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_activations(dtype: Any) -> None:
    x, zero = small(dtype, 3, 70), np.array(5, dtype)
    options: dict[str, Any] = {"constant": (1, 2, 3, 4), **quantized(dtype)}
    check_runtime("QLinearSigmoid", [x, scale(0.04), zero, scale(1 / 256), zero], **options)
    check_runtime("QLinearLeakyRelu", [x, scale(0.04), zero, scale(0.03), zero], alpha=0.2, **options)
    check_runtime("QLinearSoftmax", [x, scale(0.04), zero, scale(1 / 128), zero], opset=13, axis=-1, **options)


def test_concatenation() -> None:
    zero = np.array(9, np.uint8)
    first, second = small(np.uint8, 2, 3, 30), small(np.uint8, 2, 5, 30)
    inputs = [scale(0.05), zero, first, scale(0.04), zero, second, scale(0.06), np.array(2, np.uint8)]
    check_runtime("QLinearConcat", inputs, axis=1, constant=(0, 1, 3, 4, 6, 7), **quantized(np.uint8))


@pytest.mark.parametrize("last", [0, 1])
def test_global_average(last: int) -> None:
    zero = np.array(9, np.uint8)
    inputs = [small(np.uint8, 2, 6, 5, 4), scale(0.05), zero, scale(0.01), zero]
    check_runtime("QLinearGlobalAveragePool", inputs, channels_last=last, **quantized(np.uint8))


def test_quantize_and_back() -> None:
    zero = np.array(3, np.uint8)
    check_runtime("QuantizeLinear", [normal(4, 5) * 40, scale(0.25), zero], **quantized(np.uint8))
    check_runtime("DequantizeLinear", [small(np.uint8, 4, 5), scale(0.25), zero])


@pytest.mark.parametrize("zeros", ["none", "packed", "float"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("depth", [32, 96, 40])
def test_weights_of_few_bits(depth: int, bits: int, zeros: str) -> None:
    n, block = 6, 32
    blocks = -(-depth // block)
    weights, scales = small(np.uint8, n, blocks, block * bits // 8), np.abs(normal(n, blocks)) + np.float32(0.1)
    points: dict[str, Array | None] = {
        "none": None,
        "packed": small(np.uint8, n, -(-blocks * bits // 8)),
        "float": np.float32(1 << (bits - 1)) + normal(n, blocks),
    }
    options: dict[str, Any] = {"K": depth, "N": n, "bits": bits, "block_size": block, "tolerance": 1e-5}
    inputs = [normal(2, 3, depth), weights, scales, points[zeros]]
    check_runtime("MatMulNBits", inputs, constant=(1, 2, 3), dims={0: [2, "m", depth]}, **options)
    check_runtime("MatMulNBits", [*inputs[:3], None, None, normal(n)], constant=(1, 2), **options)


@pytest.mark.parametrize("depth", [96, 40])
@pytest.mark.parametrize("padded", [False, True])
def test_rows_of_weights_in_groups_that_are_named(depth: int, padded: bool) -> None:
    n, block = 6, 32
    blocks = -(-depth // block)
    named = np.random.default_rng(0).integers(0, blocks, blocks * block if padded else depth).astype(np.int32)
    inputs = [normal(3, depth), small(np.uint8, n, blocks, block // 2), np.abs(normal(n, blocks))]
    for zero in (8 + normal(n, blocks), None):
        check_runtime(
            "MatMulNBits",
            [*inputs, zero, named, normal(n)],
            constant=(1, 2, 3, 4),
            tolerance=1e-5,
            K=depth,
            N=n,
            bits=4,
            block_size=block,
        )
    packed = [*inputs, small(np.uint8, n, -(-blocks // 2)), named]
    with pytest.raises(UnsupportedError, match="packed zero points beside g_idx"):
        flow_of(runtime_model("MatMulNBits", packed, MICROSOFT, constant=(1, 2, 3, 4), K=depth, N=n, block_size=block))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_products_to_floats(dtype: Any) -> None:
    x, b, zero = normal(2, 5, 12) * 3, small(dtype, 12, 7), np.array(4, dtype)
    check_runtime("DynamicQuantizeMatMul", [x, b, scale(0.02), zero, normal(7)], constant=(1, 2, 3, 4), tolerance=1e-5)
    check_runtime("DynamicQuantizeMatMul", [x, b, np.abs(normal(7))], constant=(1, 2), tolerance=1e-5)
    a = small(np.uint8, 5, 12)
    inputs = [a, b, scale(0.03), np.abs(normal(7)), np.array(100, np.uint8), small(dtype, 7), normal(7)]
    check_runtime("MatMulIntegerToFloat", inputs, constant=(1, 2, 3, 4, 5, 6), tolerance=1e-5)


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_lstm(direction: str, per_row: bool) -> None:
    hidden, features, steps, batch = 6, 5, 7, 2
    ways = 2 if direction == "bidirectional" else 1
    rows = (ways, 4 * hidden) if per_row else (ways,)
    scales = [0.004 + 0.002 * np.abs(normal(*rows, seed=seed)) for seed in (1, 2)]
    zeros = [np.zeros(rows, np.int8) for _ in range(2)]
    w, r = small(np.int8, ways, features, 4 * hidden), small(np.int8, ways, hidden, 4 * hidden, seed=1)
    bias, state = normal(ways, 8 * hidden), normal(ways, batch, hidden)
    x = normal(steps, batch, features)
    inputs = [x, w, r, bias, None, state, state, None, scales[0], zeros[0], scales[1], zeros[1]]
    constant = (1, 2, 3, 8, 9, 10, 11)
    options: dict[str, Any] = {"outputs": 3, "constant": constant, "direction": direction}
    check_runtime("DynamicQuantizeLSTM", inputs, hidden_size=hidden, **options)
    # A state of zeros has steps of no size.
    check_runtime("DynamicQuantizeLSTM", [*inputs[:5], None, None, *inputs[7:]], hidden_size=hidden, **options)


def lstm_inputs(direction: str, hidden: int, features: int, zero: int) -> list[Array | None]:
    ways = 2 if direction == "bidirectional" else 1
    w, r = small(np.uint8, ways, features, 4 * hidden), small(np.uint8, ways, hidden, 4 * hidden, seed=1)
    numbers = [np.full(ways, 0.01, np.float32), np.full(ways, zero, np.uint8)] * 2
    return [normal(5, 2, features), w, r, normal(ways, 8 * hidden), None, None, None, None, *numbers]


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_products_of_an_lstm_are_sums_of_integers(direction: str) -> None:
    """Whatever holds them: the results are the same, bit by bit."""
    inputs = lstm_inputs(direction, 48, 24, 120)
    options: dict[str, Any] = {"constant": (1, 2, 3, *range(8, 12)), "hidden_size": 48, "direction": direction}
    flow = flow_of(runtime_model("DynamicQuantizeLSTM", inputs, MICROSOFT, outputs=3, **options))
    (program,) = simplify_flow(flow, Ledger()).segments[0].programs
    results: dict[str, dict[str, Array]] = {}
    for way in ("integers", "halves", "whole floats"):
        decisions = [d for d in compile_with(program, Ledger()).ledger if d.rule == "fuse.integer"]
        assert len(decisions) == (4 if direction == "bidirectional" else 2), "of the inputs, and of each step"
        compiled = compile_with(program, Ledger(pins={d.id: way for d in decisions}))
        results[way] = run(compiled, feeds_of(inputs, options["constant"]))
    first, *others = results.values()
    for other in others:
        for name, value in other.items():
            np.testing.assert_array_equal(value, first[name], err_msg=name)


def test_products_of_what_is_quantized_dynamically_are_sums_of_integers() -> None:
    inputs = [normal(5, 12), small(np.int8, 12, 7), scale(0.02), np.array(4, np.int8)]
    flow = flow_of(runtime_model("DynamicQuantizeMatMul", inputs, MICROSOFT, constant=(1, 2, 3)))
    (program,) = simplify_flow(flow, Ledger()).segments[0].programs
    (decision,) = [d for d in compile_with(program, Ledger()).ledger if d.rule == "fuse.integer"]
    assert not decision.failed


def test_products_of_rounded_states_are_products_of_two() -> None:
    """As those of an LSTM are, so that they are computed as fast; and extremes are found side by side."""
    hidden, features = 32, 5
    w, r = small(np.int8, 1, features, 4 * hidden), small(np.int8, 1, hidden, 4 * hidden)
    numbers = [np.array([0.01], np.float32), np.zeros(1, np.int8)] * 2
    inputs = [normal(7, 1, features), w, r, None, None, None, None, None, *numbers]
    model = runtime_model("DynamicQuantizeLSTM", inputs, MICROSOFT, constant=(1, 2, *range(8, 12)), hidden_size=hidden)
    (program,) = flow_of(model).segments[0].programs
    (scan,) = (item for item in program.items if isinstance(item, Scan))
    reduced = [step.body for step in scan.steps if isinstance(step.body, Reduce)]
    (total,) = (body for body in reduced if body.kind == "sum")
    assert isinstance(total.body, Binary) and total.body.op == "mul"
    assert isinstance(total.body.x, Load) and isinstance(total.body.y, Load)
    lengths = [product(axis.extent for axis in body.axes).constant for body in reduced if body.kind != "sum"]
    assert sorted(lengths, key=str) == [16, 16, 2, 2]


@pytest.mark.parametrize("op", ["DynamicQuantizeMatMul", "QLinearAdd"])
def test_references_keep_the_precision_of_what_they_are_given(op: str) -> None:
    """So that a model in its own precision tells what rounding does to it."""
    zero = np.array(4, np.uint8)
    pair = [small(np.uint8, 3, 5), scale(0.02), zero]
    inputs = {
        "DynamicQuantizeMatMul": [normal(3, 5), small(np.int8, 5, 4), scale(0.02), np.array(1, np.int8), normal(4)],
        "QLinearAdd": [*pair, *pair, scale(0.05), zero],
    }[op]
    (output,) = references([(MICROSOFT, op)]).values()
    assert output(*inputs).dtype == (np.float32 if op == "DynamicQuantizeMatMul" else np.uint8)


def test_zeros_have_steps() -> None:
    x = np.zeros((2, 3), np.float32)
    inputs = [x, small(np.int8, 3, 4), scale(0.5), np.array(1, np.int8)]
    check_runtime("DynamicQuantizeMatMul", inputs, constant=(1, 2, 3))

"""Constants of 4 and 2 bits as words: what is computed from them, and where there are none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opweld
from opweld.fuse.codes import counted, counting_in_bits, from_words, words_of
from opweld.ledger import Decision, Ledger
from opweld.quantize.writing import packed_int4
from opweld.target import Target
from opweld.tensor.axes import split
from opweld.tensor.dim import Axis, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.evaluate import evaluate_tensor
from opweld.tensor.expr import Load, Reduce, binary, cast, const, load, reduce
from opweld.tensor.parse import parse_program
from opweld.tensor.program import Constant, Tensor, TensorProgram
from tests.unit.tile.pipeline import Compiled, check_compiled, compile_with, with_data
from tests.unit.tile.programs import blocks_of_codes

RANDOM = np.random.default_rng(0)


def summed_over(operand: Load, axis: Axis) -> Reduce:
    made = reduce("sum", (axis,), cast(operand, DType.F32))
    assert isinstance(made, Reduce)
    return made


def element(dtype: DType, rows: int) -> tuple[Load, Axis]:
    k, j = Axis("k", as_dim(rows)), Axis("j", as_dim(5))
    operand = load("w", dtype, (k.dim, j.dim))
    assert isinstance(operand, Load)
    return operand, k


@pytest.mark.parametrize("dtype", [DType.U4, DType.I4, DType.U2, DType.I2])
def test_elements_of_words_are_those_of_bytes(dtype: DType) -> None:
    low, high = dtype.limits
    data = RANDOM.integers(low, high + 1, (32, 5)).astype(dtype.numpy)
    constant = Constant("w", dtype, data.shape, lambda: data, ())
    k, j = Axis("i0", as_dim(32)), Axis("i1", as_dim(5))
    operand = load("w", dtype, (k.dim, j.dim))
    assert isinstance(operand, Load)
    words = words_of("words", constant, 0)
    assert words.shape == (32 * dtype.bits // 32, 5)
    field = from_words(cast(operand, DType.F32), operand, "words", 0)
    assert field is not None
    value = binary("mul", field.value, field.inverse)
    made = evaluate_tensor(Tensor("y", DType.F32, (k, j), value, ()), {"words": words.read()})
    assert np.array_equal(made, data.astype(np.float32))


@pytest.mark.parametrize("dtype", [DType.U4, DType.I4, DType.U2, DType.I2])
@pytest.mark.parametrize("way", ["minus", "from", "plus", "scaled"])
def test_what_is_added_to_an_element_is_multiplied_as_its_field_is(dtype: DType, way: str) -> None:
    """A zero point that stays in the sum; of powers of two all is exact."""
    low, high = dtype.limits
    data = RANDOM.integers(low, high + 1, (32, 5)).astype(dtype.numpy)
    zeros = np.array([-4.125, 0.5, 7.625, 1.0, -0.25], np.float32)
    k, j = Axis("i0", as_dim(32)), Axis("i1", as_dim(5))
    operand = load("w", dtype, (k.dim, j.dim))
    assert isinstance(operand, Load)
    code, zero = cast(operand, DType.F32), load("z", DType.F32, (j.dim,))
    wide, two = data.astype(np.float32), const(2.0, DType.F32)
    value, expected = {
        "minus": (binary("sub", code, zero), wide - zeros),
        "from": (binary("sub", zero, code), zeros - wide),
        "plus": (binary("add", zero, code), zeros + wide),
        "scaled": (binary("mul", zero, binary("div", binary("sub", code, zero), two)), zeros * ((wide - zeros) / 2)),
    }[way]
    constant = Constant("w", dtype, data.shape, lambda: data, ())
    field = from_words(value, operand, "words", 0)
    assert field is not None
    made = evaluate_tensor(
        Tensor("y", DType.F32, (k, j), binary("mul", field.value, field.inverse), ()),
        {"words": words_of("words", constant, 0).read(), "z": zeros},
    )
    assert np.array_equal(made, expected)


def test_what_is_no_multiple_of_an_element_is_not_taken_from_its_field() -> None:
    operand, _ = element(DType.U4, 32)
    code = cast(operand, DType.F32)
    for value in (binary("mul", code, code), binary("max", code, code), cast(code, DType.F16)):
        assert from_words(value, operand, "words", 0) is None


@pytest.mark.parametrize("dtype", [DType.U4, DType.I4, DType.U2, DType.I2])
def test_a_tensor_that_is_divided_keeps_its_axis_whole(dtype: DType) -> None:
    """Or whoever computes it would have every eighth element in its lanes."""
    operand, k = element(dtype, 64)
    field = from_words(cast(operand, DType.F32), operand, "words", 0)
    assert field is not None
    assert len(split((k,), field.inverse, ())[0]) == 2
    made = counting_in_bits(field.inverse)
    assert split((k,), made, ())[0] == (k,)
    before, after = (evaluate_tensor(Tensor("y", DType.F32, (k,), one, ()), {}) for one in (field.inverse, made))
    np.testing.assert_array_equal(before, after)


def test_words_are_whole() -> None:
    for rows, expected in ((64, 0), (63, None), (8, None), (4, None)):
        operand, axis = element(DType.I4, rows)
        assert counted(operand, summed_over(operand, axis)) == expected
    operand, axis = element(DType.I8, 64)
    assert counted(operand, summed_over(operand, axis)) is None


def product(k: int, n: int, block: int, rows: int | str, axis: int = 0) -> tuple[bytes, np.ndarray]:
    """x [rows, k] times weights of int4 with a scale for each block of k; and the weights in float64."""
    codes = RANDOM.integers(-8, 8, (k, n)).astype(np.int8)
    scales = RANDOM.uniform(0.5, 2.0, (-(-k // block), n)).astype(np.float32)
    wide = codes * np.repeat(scales.astype(np.float64), block, 0)[:k]
    stored = (codes, scales) if axis == 0 else (np.ascontiguousarray(codes.T), np.ascontiguousarray(scales.T))
    weights = TensorProto(name="w", data_type=TensorProto.INT4, dims=stored[0].shape, raw_data=packed_int4(stored[0]))
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=axis, block_size=block)]
    nodes.append(
        helper.make_node("MatMul", ["x", "d"], ["y"])
        if axis == 0
        else helper.make_node("Gemm", ["x", "d"], ["y"], transB=1)
    )
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, k])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, n])],
        [weights, numpy_helper.from_array(stored[1], "s")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnx.ModelProto.SerializeToString(model), wide


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("k", "n", "block"), [(64, 48, 32), (96, 1, 16), (40, 33, 16), (63, 17, 32), (256, 70, 256), (24, 5, 8)]
)
def test_products_are_those_of_float64(k: int, n: int, block: int, axis: int) -> None:
    model, weights = product(k, n, block, "rows", axis)
    compiled = opweld.compile(model, threads=2)
    for rows in (1, 4, 8, 23):
        x = RANDOM.standard_normal((rows, k)).astype(np.float32)
        (y,) = compiled.run({"x": x}).values()
        expected = x.astype(np.float64) @ weights
        assert np.abs(y - expected).max() <= 1e-5 * (np.abs(x).astype(np.float64) @ np.abs(weights)).max()


def pinned(text: str, target: str, wanted: Callable[[Decision], str | None]) -> tuple[TensorProgram, Compiled]:
    """A program compiled with what is wanted of decisions, some of which are asked for where others are so."""
    program, known = with_data(parse_program(text)), Target.of(target)
    made = compile_with(program, Ledger(), known)
    for _ in range(3):
        pins = {decision.id: answer for decision in made.ledger if (answer := wanted(decision))}
        made = compile_with(program, Ledger(pins=pins), known)
    return program, made


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("way", ["in registers", "in memory"])
@pytest.mark.parametrize("dtype", ["u4", "i4", "u2", "i2"])
def test_the_other_factor_is_divided_in_registers_or_in_memory(dtype: str, way: str, target: str) -> None:
    def wanted(decision: Decision) -> str | None:
        if decision.rule != "fuse.prologue":
            return None
        return "in registers" if "words" in decision.subject else way

    program, made = pinned(blocks_of_codes(3, 64, 40, dtype), target, wanted)
    (other,) = (d for d in made.ledger if d.rule == "fuse.prologue" and "words" not in d.subject)
    assert other.taken == way
    check_compiled(program, made, {})


@pytest.mark.parametrize(("block", "scales"), [(32, "sums"), (8, "sums"), (4, "products")])
def test_rows_of_a_tile_sum_blocks_though_not_all_sums_fit_the_registers(block: int, scales: str) -> None:
    """Two rows of four vectors are 8 sums of blocks and 8 of all, of 16 registers."""
    wanted = {"fuse.prologue": "in registers", "schedule.vectors": "4", "schedule.height": "2"}
    _, made = pinned(blocks_of_codes("N", 64, 64, "i8", block), "x86-64-v3", lambda d: wanted.get(d.rule))
    assert {d.taken for d in made.ledger if d.rule == "schedule.scales"} == {scales}

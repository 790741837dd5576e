"""The judge of quantised values: a tie may go either way, by one step, and what follows from it follows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser

from opweld.frontend.reference.recurrent import dynamic_lstm
from tests.random.generate import Case
from tests.random.kept import load_case, save_case
from tests.random.quantized.generate import case_of
from tests.random.quantized.judge import StepJudge

HEADER = '<ir_version: 11, opset_import: ["" : 23, "com.microsoft" : 1]>\n'
CHAIN = """g (float[4] x) => (uint8[4] q, float[4] y)
    <float s = {0.1}, uint8 z = {3}> { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"""


def judge_of(text: str, **feeds: np.ndarray) -> StepJudge:
    return StepJudge(Case(7, onnx.parser.parse_model(HEADER + text), (feeds,)))


def near_ties() -> np.ndarray:
    """Values whose second is a tie but for a rounding; the others are far from any."""
    return np.array([0.1, 0.25, 0.52, 0.7], np.float32)


def test_a_tie_goes_either_way_and_what_reads_it_follows() -> None:
    judge = judge_of(CHAIN, x=near_ties())
    for tie in (5, 6):
        codes = np.array([4, tie, 8, 10], np.uint8)
        floats = (codes.astype(np.float32) - 3) * np.float32(0.1)
        assert judge.verdict(0, [codes, floats])[0] in ("right", "noise")
        other = np.array([4, 11 - tie, 8, 10], np.uint8)
        assert judge.verdict(0, [other, floats])[0] == "wrong", "the floats of other codes"


def test_a_step_beside_a_tie_and_two_steps_at_one_are_wrong() -> None:
    judge = judge_of(CHAIN, x=near_ties())
    for codes in ([4, 5, 9, 10], [4, 7, 8, 10], [4, 3, 8, 10]):
        made = np.array(codes, np.uint8)
        found, why = judge.verdict(0, [made, (made.astype(np.float32) - 3) * np.float32(0.1)])
        assert found == "wrong", codes
        assert "QuantizeLinear" in why


def test_a_tie_that_is_no_output_moves_what_follows() -> None:
    text = """g (float[1, 4] x) => (float[1, 1] y) <float s = {0.1}, uint8 z = {3}, float[4, 1] w = {1, 1, 1, 1}>
        { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = MatMul(d, w) }"""
    judge = judge_of(text, x=near_ties()[None])
    for steps, verdict in ((15, "right"), (16, "noise"), (60, "wrong")):
        found, _ = judge.verdict(0, [np.full((1, 1), 0.1 * steps, np.float32)])
        assert found == verdict or (steps < 60 and found in ("right", "noise")), steps


def test_a_tie_inside_of_an_operator_moves_its_result_and_the_codes_of_it() -> None:
    """The fourth of five is a tie of 255 steps from -1 to 1; the operator multiplies codes by 127 steps of 0.05."""
    text = """g (float[1, 5] x) => (float[1, 1] y, uint8[1, 1] q)
        <uint8[5, 1] w = {0, 0, 0, 127, 0}, float v = {0.05}, float s = {0.01}, uint8 z = {0}>
        { y = com.microsoft.DynamicQuantizeMatMul(x, w, v) q = QuantizeLinear(y, s, z) }"""
    step = 2 / 255
    judge = judge_of(text, x=np.array([[-1, 1, 0, 10.5 * step, 0]], np.float32))
    for codes, verdicts in ((10, "right noise"), (11, "right noise"), (30, "wrong")):
        y = np.full((1, 1), codes * step * 127 * 0.05, np.float32)
        assert judge.verdict(0, [y, np.clip(np.rint(y / np.float32(0.01)), 0, 255).astype(np.uint8)])[0] in verdicts


LSTM = """g (float[2, 1, 2] x, int8[1, 2, 8] w, int8[1, 2, 8] r, float[1, 1, 2] h, float[1, 1, 2] c)
    => (float[2, 1, 1, 2] y, uint16[2, 1, 1, 2] q)
    <float[1] v = {0.005}, float[1] u = {0.004}, int8[1] z = {0}, float s = {0.00002}, uint16 m = {32768}> {
    y = com.microsoft.DynamicQuantizeLSTM <hidden_size = 2> (x, w, r, "", "", h, c, "", v, z, u, z)
    q = QuantizeLinear(y, s, m) }"""


def saturated() -> dict[str, np.ndarray]:
    """The first step's gates are open, so that its states are 1 and -1: halfway between two zero points. The second's
    inputs are so small that its gates follow from those states alone."""
    w = np.zeros((1, 2, 8), np.int8)
    w[..., :6] = 127
    x = np.array([[100, 100], [0.1, -0.1]], np.float32).reshape(2, 1, 2)
    r = np.random.default_rng(3).integers(-127, 127, (1, 2, 8)).astype(np.int8)
    h, c = (np.array(pair, np.float32).reshape(1, 1, 2) for pair in ([0.5, 0.25], [20, -20]))
    return {"x": x, "w": w, "r": r, "h": h, "c": c}


def lstm_answers(feeds: dict[str, np.ndarray], scale: float = 0.004, off: float = 0.0) -> list[np.ndarray]:
    """What the model above makes with that scale of R, each float on the way being off by so much of itself."""
    unit, recurrent = (np.array([number], np.float32) for number in (0.005, scale))
    zero = np.array([0], np.int8)
    states = (feeds["h"], feeds["c"])
    y, _, _ = dynamic_lstm(
        feeds["x"], feeds["w"], feeds["r"], None, None, *states, None, unit, zero, recurrent, zero,
        result=lambda x: x * np.float32(1 + off), hidden_size=2,
    )  # fmt: skip
    return [y, np.clip(np.rint(y / np.float32(0.00002)) + 32768, 0, 65535).astype(np.uint16)]


def test_states_of_a_recurrence_at_ties_go_either_way_and_its_scale_does_not() -> None:
    feeds = saturated()
    judge = judge_of(LSTM, **feeds)
    made = [lstm_answers(feeds, off=off) for off in (0, 2.0**-23, -(2.0**-23))]
    assert any((np.abs(codes.astype(int) - made[0][1]) > 10).any() for _, codes in made), "the states are at ties"
    for answers in made:
        assert judge.verdict(0, answers)[0] in ("right", "noise")
    # Off by more than a code of each state can do, which is 16 times what was seen.
    for answers in (lstm_answers(feeds, scale=0.006), lstm_answers({**feeds, "r": np.roll(feeds["r"], 1, 2)})):
        assert judge.verdict(0, answers)[0] == "wrong"


def test_sums_of_integers_are_equal() -> None:
    text = """g (uint8[1, 2] x, int8[2, 1] w) => (int32[1, 1] y) { y = MatMulInteger(x, w) }"""
    judge = judge_of(text, x=np.array([[3, 200]], np.uint8), w=np.array([[-2], [100]], np.int8))
    assert judge.verdict(0, [np.array([[19994]], np.int32)])[0] == "right"
    assert judge.verdict(0, [np.array([[19995]], np.int32)])[0] == "wrong"


OPERATORS = (
    "QuantizeLinear DequantizeLinear DynamicQuantizeLinear MatMulInteger ConvInteger QLinearMatMul QLinearConv "
    "QLinearAdd QLinearMul QLinearSigmoid QLinearLeakyRelu QLinearSoftmax QLinearConcat QLinearAveragePool "
    "QLinearGlobalAveragePool QGemm DynamicQuantizeMatMul MatMulIntegerToFloat MatMulNBits DynamicQuantizeLSTM"
)


def test_graphs_are_valid_the_same_again_and_hold_all_operators(tmp_path: Path) -> None:
    drawn: set[str] = set()
    kinds: set[int] = set()
    for seed in range(80):
        case = case_of(seed)
        drawn |= {node.op_type for node in case.model.graph.node}
        kinds |= {tensor.data_type for tensor in case.model.graph.initializer}
        if seed < 4:
            onnx.checker.check_model(case.model)
            assert case_of(seed).model.SerializeToString(deterministic=True) == case.model.SerializeToString(
                deterministic=True
            )
    assert set(OPERATORS.split()) <= drawn
    names = {onnx.TensorProto.DataType.Name(kind) for kind in kinds}
    assert {"INT4", "UINT4", "INT8", "UINT8", "INT16", "UINT16", "INT32"} <= names


def test_codes_of_four_bits_come_back_from_files(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(HEADER + "g (int4[3] x) => (int4[3] y) { y = Identity(x) }")
    codes = np.array([-8, 0, 7]).astype(onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.INT4))
    save_case(Case(1, model, ({"x": codes},)), tmp_path)
    (again,) = load_case(tmp_path).feeds
    assert again["x"].dtype == codes.dtype and (again["x"] == codes).all()

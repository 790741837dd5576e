"""The judge itself: what is off by more than roundings is wrong, what roundings explain is noise; crashes are seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.random.generate import Case, case_of
from tests.random.judge import Finding, Judge
from tests.random.kept import load_case, save_case
from tests.random.net import Worker
from tests.random.reduce import _Reducer  # pyright: ignore[reportPrivateUsage]


def case(text: str, **feeds: np.ndarray) -> Case:
    header = '<ir_version: 11, opset_import: ["" : 23]>\n'
    return Case(7, onnx.parser.parse_model(header + text), (feeds,))


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


SOFTMAX = "g (float[3, 5] x) => (float[3, 5] y) { y = Softmax(x) }"


def test_right_wrong_and_other_shapes() -> None:
    judge = Judge(case(SOFTMAX, x=normal(3, 5)))
    (right,) = judge.right(0)
    assert right.dtype == np.float64
    answer = right.astype(np.float32)
    assert judge.verdict(0, [answer])[0] == "right"
    off = answer.copy()
    off[2, 1] += 1e-4
    assert judge.verdict(0, [off])[0] == "wrong"
    special = answer.copy()
    special[0, 0] = np.nan
    assert judge.verdict(0, [special])[0] == "wrong"
    assert judge.verdict(0, [answer.T.copy()])[0] == "wrong"
    assert judge.verdict(0, [right])[0] == "wrong", "float64 where float32 is declared"


def test_cancellation_is_noise_and_nonsense_is_not() -> None:
    text = "g (float[8] x) => (float[8] y) { c = Constant<value_float: float = 65536.0>() a = Add(x, c) y = Sub(a, c) }"
    judge = Judge(case(text, x=normal(8)))
    step = np.float32(2.0**-7)
    (right,) = judge.right(0)
    assert judge.verdict(0, [(right + step).astype(np.float32)])[0] in ("right", "noise")
    assert judge.verdict(0, [(right + 30 * step).astype(np.float32)])[0] == "wrong"


def test_a_comparison_of_what_rounding_decides_is_noise() -> None:
    text = "g (float[4] x) => (bool[4] y) { a = Exp(x) b = Log(a) y = Greater(x, b) }"
    judge = Judge(case(text, x=normal(4)))
    (right,) = judge.right(0)
    assert judge.verdict(0, [~right])[0] in ("noise", "disputed")
    judge = Judge(
        case("g (float[4] x, float[4] z) => (bool[4] y) { y = Greater(x, z) }", x=normal(4), z=normal(4)[::-1])
    )
    (right,) = judge.right(0)
    assert judge.verdict(0, [~right])[0] == "wrong"


def test_what_several_ties_decide_together_is_noise() -> None:
    """Whether all of seven elements of a row are above what roundings make of them: one trial in some hundred."""
    text = """g (float[2, 7] x, float[2, 7] t) => (int64[2] y)
        { a = Exp(x) b = Log(a) m = Add(x, t) g = Greater(m, b) i = Cast<to = 7>(g)
          axis = Constant<value = int64[1] {1}>() y = ReduceMin<keepdims = 0>(i, axis) }"""
    above = np.zeros((2, 7), np.float32)
    above[1, 1:] = 1
    judge = Judge(case(text, x=normal(2, 7), t=above))
    (right,) = judge.right(0)
    assert judge.verdict(0, [1 - right])[0] in ("noise", "disputed")
    above[0, 0] = -1
    judge = Judge(case(text, x=normal(2, 7), t=above))
    (right,) = judge.right(0)
    assert judge.verdict(0, [1 - right])[0] == "wrong"


def test_cases_are_the_same_again_and_valid() -> None:
    for seed in range(12):
        first, second = case_of(seed), case_of(seed)
        assert first.model.SerializeToString(deterministic=True) == second.model.SerializeToString(deterministic=True)
        onnx.checker.check_model(first.model, full_check=True)
        for one, other in zip(first.feeds, second.feeds, strict=True):
            assert one.keys() == other.keys()
            assert all(np.array_equal(one[name], other[name], equal_nan=one[name].dtype.kind == "f") for name in one)


def test_a_case_comes_back_from_its_files(tmp_path: Path) -> None:
    saved = case_of(5)
    save_case(saved, tmp_path)
    again = load_case(tmp_path)
    assert again.model == saved.model and again.seed == 5 and len(again.feeds) == len(saved.feeds)
    assert all(np.array_equal(again.feeds[0][name], array) for name, array in saved.feeds[0].items())


def test_a_crash_is_a_finding_and_the_next_job_is_done(tmp_path: Path) -> None:
    worker = Worker({"OPWELD_CACHE": str(tmp_path / "cache")})
    try:
        (crash,) = worker.run({"folder": str(tmp_path / "nothing"), "seed": 3, "levels": ["all"], "threads": [1]})
        assert crash.outcome == "crash" and crash.seed == 3 and "generating" in crash.what
        save_case(case(SOFTMAX, x=normal(3, 5)), tmp_path / "case")
        (found,) = worker.run({"folder": str(tmp_path / "case"), "seed": 7, "levels": ["all"], "threads": [1]})
        assert found.outcome == "right"
    finally:
        worker.close()


class Allergic(Worker):
    """Finds every model wrong that holds an Erf of a value that has an axis of at least three elements."""

    def run(self, job: dict) -> list[Finding]:
        model = load_case(job["folder"])
        nodes = [node for node in model.model.graph.node if node.op_type == "Erf"]
        values = Judge(model).all_values(0)
        bad = any(max(values[node.input[0]].shape, default=0) >= 3 for node in nodes)
        return [Finding(0, "all", 1, 0, "wrong" if bad else "right")]


@pytest.mark.parametrize("seed", [1, 3, 7])
def test_reduction_leaves_what_is_needed(seed: int, tmp_path: Path) -> None:
    start = case_of(seed)
    floats = [o for o in start.model.graph.output if o.type.tensor_type.elem_type == 1]
    start.model.graph.node.append(onnx.helper.make_node("Erf", [floats[0].name], ["planted"]))
    start.model.graph.output.append(onnx.helper.make_tensor_value_info("planted", 1, None))
    start.model.graph.output[-1].type.tensor_type.shape.CopyFrom(floats[0].type.tensor_type.shape)
    reduced = _Reducer(Finding(seed, "all", 1, 0, "wrong"), Allergic({}), tmp_path).run(start)
    assert [node.op_type for node in reduced.model.graph.node] == ["Erf"]
    assert sorted(set(reduced.feeds[0][reduced.model.graph.input[0].name].shape))[-1] == 3


def test_what_rounds_to_zero_and_the_sign_of_a_sum_are_noise() -> None:
    """Half of the least float16 is a tie; -0 + 0 is 0, where a product with zero is left out it is -0."""
    least = np.full(4, 2.0**-24, np.float16)
    text = """g (float16[4] x) => (bool[4] y)
        { f = Constant<value_float: float = 0.5>() h = Cast<to = 10>(f) a = Mul(x, h) y = Cast<to = 9>(a) }"""
    judge = Judge(case(text, x=least))
    assert judge.verdict(0, [np.zeros(4, bool)])[0] != "wrong"
    assert judge.verdict(0, [np.ones(4, bool)])[0] != "wrong"
    text = """g (float[2, 2] x) => (float[2] y) <float one = {1}>
        { axes = Constant<value = int64[1] {1}>() a = ReduceSum<keepdims = 0>(x, axes) y = Div(one, a) }"""
    judge = Judge(case(text, x=np.array([[-0.0, -0.0], [1, 1]], np.float32)))
    for sign in (-1, 1):
        assert judge.verdict(0, [np.array([sign * np.inf, 0.5], np.float32)])[0] != "wrong"
    assert judge.verdict(0, [np.array([np.inf, -0.5], np.float32)])[0] == "wrong"


def test_what_a_peer_leaves_unwritten_is_told() -> None:
    """Products over no elements and what is computed from them, and nothing else."""
    text = """g (float[2, K] x, float[K, 2] w) => (float[2, 2] z, float[2, K] b)
        { a = MatMul(x, w) b = Relu(x) z = Exp(a) }"""
    empty, full = np.zeros((2, 0), np.float32), normal(2, 3)
    assert Judge(case(text, x=empty, w=empty.T)).arbitrary(0) == {"a", "z"}
    assert not Judge(case(text, x=full, w=full.T)).arbitrary(0)


def test_the_signs_of_many_sums_are_noise() -> None:
    """A tensor of signs, each as likely as the other: a few trials would miss some of them."""
    text = "g (float[4096, 1] x, float[1, 2] w) => (float[4096, 2] y) { a = MatMul(x, w) y = Reciprocal(a) }"
    judge = Judge(case(text, x=normal(4096, 1), w=np.array([[0, 1]], np.float32)))
    answer = judge.right(0)[0].astype(np.float32)
    answer[:, 0] *= -1
    assert judge.verdict(0, [answer])[0] in ("noise", "disputed")
    answer[:, 1] *= -1
    assert judge.verdict(0, [answer])[0] == "wrong"


def test_what_every_rounding_decides_is_noise_whatever_chance_draws() -> None:
    """The largest probability is 0.99998; there is no float16 between it and 1."""
    text = """g (float16[3] x) => (int64 y)
        { p = Softmax<axis = 0>(x) f = Floor(p) y = ArgMax<axis = 0, keepdims = 0>(f) }"""
    for most, answer, verdict in ((10.71, 0, "right"), (10.71, 2, "noise"), (5.0, 2, "wrong")):
        judge = Judge(case(text, x=np.array([0, -30, most], np.float16)))
        assert judge.verdict(0, [np.array(answer)])[0] == verdict


def test_the_order_of_a_long_sum_is_noise() -> None:
    judge = Judge(case("g (float[16000] x) => (float[1] y) { y = ReduceSum(x) }", x=normal(16000)))
    one_by_one = np.cumsum(normal(16000), dtype=np.float32)[-1:]
    assert judge.verdict(0, [one_by_one])[0] in ("right", "noise")
    assert judge.verdict(0, [one_by_one + np.float32(0.05)])[0] == "wrong"


def test_a_neighbour_that_is_no_number_counts_with_weight_zero() -> None:
    """The middle of 3 elements lies on the second, which is mixed with the third: NaN times 0 is NaN."""
    text = """g (float[1, 1, 3] x) => (float[1, 1, 1] y)
        <int64[3] s = {1, 1, 1}> { y = Resize<mode = "linear">(x, , , s) }"""
    for last, right in ((np.nan, np.nan), (3, 2)):
        judge = Judge(case(text, x=np.array([[[1, 2, last]]], np.float32)))
        assert judge.verdict(0, [np.full((1, 1, 1), right, np.float32)])[0] == "right"
        assert judge.verdict(0, [np.full((1, 1, 1), 2.5, np.float32)])[0] == "wrong"

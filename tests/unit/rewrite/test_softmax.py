from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from tests.unit.rewrite.rewritten import computed, for_onnxruntime, kinds, normal, refusals, rewritten
from tests.unit.rewrite.written.softmax import LOG, SOFTMAX, X, model


@pytest.mark.parametrize("body", SOFTMAX.values(), ids=SOFTMAX)
def test_softmax_whoever_wrote_it(body: str) -> None:
    assert kinds(rewritten(model(body), X)) == ["Softmax"]
    assert kinds(for_onnxruntime(model(body), X)) == ["Softmax"]
    made = rewritten(model(body.replace("last", "middle")), X)
    assert kinds(made) == ["Softmax"]
    assert made.model.graph[0].attributes["axis"].value == 1


@pytest.mark.parametrize("body", LOG.values(), ids=LOG)
def test_its_logarithm_whoever_wrote_it(body: str) -> None:
    assert kinds(rewritten(model(body), X)) == ["LogSoftmax"]
    assert kinds(for_onnxruntime(model(body), X)) == ["LogSoftmax"]


def test_there_are_numbers_where_exponentials_leave_their_range() -> None:
    large = {"x": normal(2, 5, 12) * 1e3}
    before = model(SOFTMAX["by hand: without the maximum"])
    made = rewritten(before)
    assert not np.isfinite(computed(before, large)[0]).all()
    (after,) = computed(ir.serde.serialize_model(made.model), large)
    np.testing.assert_allclose(after.sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("body", "opset", "reason", "failed"),
    [
        ("e = Exp(x) s = ReduceSum(e, both) y = Div(e, s)", 21, "it sums along more than one axis, and Softmax has one",
         {"axes": "1, 2"}),
        ("e = Exp(x) s = ReduceSum<axes = [1]>(e) y = Div(e, s)", 11,
         "before opset 13 Softmax is along all axes from one on", {"axis": 1, "rank": 3, "opset": 11}),
        ("e = Exp(x) s = ReduceSum(e, last) d = Div(e, s) y = Add(d, s)", 21,
         "ReduceSum inside of it is read elsewhere too", {"value": "s", "other readers": 1}),
    ],
)  # fmt: skip
def test_what_is_nearly_softmax_stays(body: str, opset: int, reason: str, failed: dict[str, Any]) -> None:
    made = rewritten(model(body, opset), X)
    assert "Softmax" not in kinds(made)
    (refusal,) = refusals(made, "rewrite.softmax")
    assert (refusal.reason, refusal.failed) == (reason, failed)


def test_other_formulas_are_left_alone() -> None:
    for body in (
        "e = Exp(x) s = ReduceSum(x, last) y = Div(e, s)",
        "e = Exp(x) s = ReduceMax(e, last) y = Div(e, s)",
        "e = Exp(x) s = ReduceSum(e, last) y = Sub(e, s)",
    ):
        made = rewritten(model(body), X)
        assert not {"Softmax", "LogSoftmax"} & set(kinds(made))
        assert not [*refusals(made, "rewrite.softmax"), *refusals(made, "rewrite.log_softmax")]


def test_a_softmax_that_is_read_elsewhere_keeps_its_logarithm() -> None:
    made = rewritten(model("s = Softmax(x) l = Log(s) y = Add(s, l)"), X)
    assert kinds(made) == ["Softmax", "Log", "Add"]
    assert refusals(made, "rewrite.log_softmax")[0].failed == {"value": "s", "other readers": 1}

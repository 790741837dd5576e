"""Small models through the rewriter: what is left of them, and that they give what they gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper

from opweld.ledger import Decision, Ledger
from opweld.rewrite.optimize import Optimized, optimize_model
from opweld.rules import REWRITES
from opweld.verify.reference import float64_outputs

Array = NDArray[Any]


def model_of(text: str, weights: Mapping[str, Array] | None = None, opset: int = 21) -> onnx.ModelProto:
    """A model in ONNX's text form, without its header, with stored tensors."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in (weights or {}).items())
    return model


def normal(*shape: int, seed: int = 0) -> Array:
    """Normally distributed float32 numbers."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def rewritten(model: onnx.ModelProto, feeds: Mapping[str, Array] | None = None, **options: Any) -> Optimized:
    """The rewritten model. It passes ONNX's checker, gives what the model gave, in float64, and has nothing left to be
    rewritten."""
    made = optimize_model(model, lambda: Ledger(**options, rules=REWRITES))
    proto = ir.serde.serialize_model(made.model)
    onnx.checker.check_model(proto, full_check=True)
    assert [value.name for value in proto.graph.input] == [
        value.name
        for value in model.graph.input
        if value.name not in {tensor.name for tensor in model.graph.initializer}
    ]
    assert [value.name for value in proto.graph.output] == [value.name for value in model.graph.output]
    if feeds is not None:
        for before, after in zip(float64_outputs(model, feeds), float64_outputs(proto, feeds), strict=True):
            assert before.dtype == after.dtype and before.shape == after.shape
            scale = float(np.max(np.abs(before), initial=0)) if before.dtype.kind == "f" else 0
            # Weights that were combined are rounded to float32 once more.
            np.testing.assert_allclose(after, before, rtol=0, atol=1e-6 * scale)
    again = optimize_model(proto, lambda: Ledger(**options, rules=REWRITES))
    assert kinds(again) == kinds(made), "rewriting the result changes it again"
    return made


def kinds(made: Optimized) -> list[str]:
    """The operators that are left, in their order."""
    return [node.op_type for node in made.model.graph]


def refusals(made: Optimized, rule: str) -> Sequence[Decision]:
    """What a rule did not do."""
    return [decision for decision in made.ledger if decision.rule == rule and not decision.fired]


def for_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Array], **options: Any) -> Optimized:
    """The model rewritten for ONNX Runtime, where it must give what the model gives in float64, no worse than it did
    before by more than roundings. Rewriting again changes nothing."""
    made = optimize_model(model, lambda: Ledger(**options, rules=REWRITES), contributed=True)
    proto = ir.serde.serialize_model(made.model)
    onnx.checker.check_model(proto, full_check=True)
    right, before, after = float64_outputs(model, feeds), computed(model, feeds), computed(proto, feeds)
    for wanted, old, new in zip(right, before, after, strict=True):
        assert old.dtype == new.dtype and old.shape == new.shape
        scale, error = np.max(np.abs(wanted), initial=0), np.max(np.abs(old - wanted), initial=0)
        np.testing.assert_allclose(new, wanted, rtol=0, atol=max(1e-5 * scale, 4 * error))
    options.pop("pins", None)  # what was insisted on is done
    again = optimize_model(proto, lambda: Ledger(**options, rules=REWRITES), contributed=True)
    assert kinds(again) == kinds(made), "rewriting the result changes it again"
    return made


def computed(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """What ONNX Runtime gives, without optimising."""
    options: Any = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session: Any = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(feeds))]

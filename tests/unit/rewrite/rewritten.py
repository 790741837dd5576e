"""Small models through the rewriter: what is left of them, and that they give what they gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from opweld.ledger import Decision, Ledger
from opweld.rewrite.optimize import Optimized, optimize_model
from opweld.rules import REWRITES
from tests.unit.rewrite.answers import computed, same_answers, written

Array = NDArray[Any]

__all__ = ["Array", "computed", "for_onnxruntime", "kinds", "model_of", "normal", "refusals", "rewritten"]


def model_of(text: str, weights: Mapping[str, Array] | None = None, opset: int = 21) -> onnx.ModelProto:
    """A model in ONNX's text form, without its header, with stored tensors."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in (weights or {}).items())
    return model


def normal(*shape: int, seed: int = 0) -> Array:
    """Normally distributed float32 numbers."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def rewritten(
    model: onnx.ModelProto, feeds: Mapping[str, Array] | None = None, *, jumps: bool = False, **options: Any
) -> Optimized:
    """The rewritten model. Its file passes ONNX's checker and gives what the model gives, at two sizes of its symbolic
    dims, in float64, in its own types and in ONNX Runtime; rewriting it again changes nothing. `jumps`: as for
    `same_answers`."""
    return _checked(model, feeds, contributed=False, jumps=jumps, **options)


def for_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Array] | None, **options: Any) -> Optimized:
    """The same for ONNX Runtime, whose own operators may be written."""
    return _checked(model, feeds, contributed=True, **options)


def _checked(
    model: onnx.ModelProto,
    feeds: Mapping[str, Array] | None,
    contributed: bool,
    jumps: bool = False,
    **options: Any,
) -> Optimized:
    made = optimize_model(model, lambda: Ledger(**options, rules=REWRITES), contributed)
    proto = written(made)
    onnx.checker.check_model(proto, full_check=True)
    stored = {tensor.name for tensor in model.graph.initializer}
    assert [v.name for v in proto.graph.input] == [v.name for v in model.graph.input if v.name not in stored]
    assert [value.name for value in proto.graph.output] == [value.name for value in model.graph.output]
    same_answers(model, proto, feeds, jumps=jumps)
    options.pop("pins", None)  # what was insisted on is done
    again = optimize_model(proto, lambda: Ledger(**options, rules=REWRITES), contributed)
    assert kinds(again) == kinds(made), "rewriting the result changes it again"
    return made


def kinds(made: Optimized) -> list[str]:
    """The operators that are left, in their order."""
    return [node.op_type for node in made.model.graph]


def refusals(made: Optimized, rule: str) -> Sequence[Decision]:
    """What a rule did not do."""
    return [decision for decision in made.ledger if decision.rule == rule and not decision.fired]

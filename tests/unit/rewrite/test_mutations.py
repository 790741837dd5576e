"""Every idea as everybody writes it, and with one thing changed: either what is written for it gives the same numbers
still, or the ledger names what was changed, at that place."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opweld.errors import UnsupportedError
from opweld.rewrite.optimize import Optimized, optimize_model
from opweld.verification.reference import float64_outputs
from tests.unit.rewrite.rewritten import Array, computed
from tests.unit.rewrite.written.ideas import IDEAS, Idea
from tests.unit.rewrite.written.mutations import Mutant, mutants

CELLS = [pytest.param(idea, form, id=f"{idea.title}, {form}") for idea in IDEAS for form in idea.forms]


@pytest.mark.parametrize(("idea", "form"), CELLS)
def test_an_idea_is_recognised_whoever_wrote_it(idea: Idea, form: str) -> None:
    written = idea.model(idea.forms[form])
    made = optimize_model(written)
    assert _fires(made, idea)
    assert idea.operator in [node.op_type for node in made.model.graph]
    _check_same(written, made, idea.feeds)


@pytest.mark.slow
@pytest.mark.parametrize(("idea", "form"), CELLS)
def test_what_is_changed_in_an_idea_is_named(idea: Idea, form: str) -> None:
    seen = 0
    for mutant in mutants(idea.model(idea.forms[form])):
        feeds = {**idea.feeds, **mutant.feeds}
        if not _is_valid(mutant.model, feeds):
            continue
        seen += 1
        made, change = optimize_model(mutant.model), f"{mutant.kind} at {mutant.place}"
        _check_same(mutant.model, made, feeds, change)
        if _fires(made, idea):
            _check_rounded(mutant, made, feeds, change)
        else:
            assert _named(made, idea) & set(mutant.named), change
    assert seen


def _fires(made: Optimized, idea: Idea) -> bool:
    return any(decision.rule == idea.rule and decision.fired for decision in made.ledger)


def _named(made: Optimized, idea: Idea) -> set[str]:
    """The values and numbers that refusals name; what was copied of a value goes by its name."""
    refusals = [d for d in made.ledger if d.rule in (idea.rule, *idea.parts) and not d.fired]
    texts = [str(value) for decision in refusals for value in decision.failed.values()]
    return {word.partition("_opweld")[0] for text in texts for word in text.split(", ")}


def _is_valid(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> bool:
    """Whether a change left a model that can be computed: sizes may not fit any more."""
    try:
        onnx.checker.check_model(model, full_check=True)
        float64_outputs(model, feeds)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, UnsupportedError):
        return False
    return True


def _check_same(written: onnx.ModelProto, made: Optimized, feeds: Mapping[str, Array], change: str = "") -> None:
    after = ir.serde.serialize_model(made.model)
    for wanted, found in zip(float64_outputs(written, feeds), float64_outputs(after, feeds), strict=True):
        scale = np.max(np.abs(wanted[np.isfinite(wanted)]), initial=0) if wanted.dtype.kind == "f" else 0
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * scale, err_msg=change)


def _check_rounded(mutant: Mutant, made: Optimized, feeds: Mapping[str, Array], change: str) -> None:
    """A Cast that is gone made no difference, which numbers in float64 do not show."""
    left = [node.op_type for node in made.model.graph].count("Cast")
    if mutant.kind != "a Cast" or left >= 2:
        return
    after = ir.serde.serialize_model(made.model)
    for wanted, found in zip(computed(mutant.model, feeds), computed(after, feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.max(np.abs(wanted)), err_msg=change)

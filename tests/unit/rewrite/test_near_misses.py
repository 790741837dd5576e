"""What near misses name that no rule knows of, at small graphs; test_mutations.py has every idea and exporter."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from opweld.frontend import onnx as frontend
from opweld.rewrite.facts import certain_facts
from opweld.rewrite.near_misses import near_miss
from opweld.rewrite.rules.activations import Gelu
from opweld.rewrite.scope import Scope
from tests.unit.rewrite.rewritten import model_of, refusals, rewritten

NUMBERS = {
    name: np.array(value, np.float32) for name, value in {"root": 2**0.5, "one": 1, "half": 0.5, "two": 2}.items()
}
GELU = "a = Div(x, root) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half)"
NEAR: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a Cast": (
        GELU.replace("c = Add(b, one)", "h = Cast<to = 10>(b) w = Cast<to = 1>(h) c = Add(w, one)"),
        "there are Casts in between", {"from": "FLOAT, FLOAT16", "to": "FLOAT16, FLOAT", "values": "h, w"},
    ),
    "another reader": (
        GELU.replace("y = ", "g = ") + " e = Mul(b, two) y = Add(g, e)",
        "Erf inside of it is read elsewhere too", {"value": "b", "other readers": 1},
    ),
    "another number": (
        GELU.replace("root", "two"),
        "a number is not the one of the formula", {"value": "two", "is": "2", "wanted": "1.41421"},
    ),
    "a number that is fed": (
        GELU.replace("one", "fed"), "a number is not stored", {"value": "fed", "wanted": "1"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "reason", "failed"), NEAR.values(), ids=NEAR)
def test_what_keeps_a_formula_from_being_one_is_named(body: str, reason: str, failed: dict[str, Any]) -> None:
    used = {name: value for name, value in NUMBERS.items() if name in body}
    inputs = "float[n, 70] x, float fed" if "fed" in body else "float[n, 70] x"
    (refusal,) = refusals(rewritten(model_of(f"g ({inputs}) => (float[n, 70] y) {{ {body} }}", used)), "rewrite.gelu")
    assert (refusal.reason, refusal.failed) == (reason, failed)


def test_two_things_in_the_way_are_no_near_miss() -> None:
    body = GELU.replace("root", "two").replace("half", "one")
    made = rewritten(model_of(f"g (float[n, 70] x) => (float[n, 70] y) {{ {body} }}", NUMBERS))
    assert not refusals(made, "rewrite.gelu")


@pytest.mark.parametrize("body", [body for body, _, _ in NEAR.values()], ids=NEAR)
def test_the_graph_is_left_as_it_was(body: str) -> None:
    written = model_of(f"g (float[n, 70] x, float fed) => (float[n, 70] y) {{ {body} }}", NUMBERS)
    model = frontend.load(written)
    scope = Scope(model, certain_facts(frontend.load(written)))
    before = ir.serde.serialize_model(model).SerializeToString(deterministic=True)
    misses = [near_miss(Gelu(), node, scope) for node in model.graph if node.op_type == "Mul"]
    assert any(misses)
    assert ir.serde.serialize_model(model).SerializeToString(deterministic=True) == before

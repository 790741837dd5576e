"""Kernels of other packages for several nodes: kept where they are right and faster, left out where not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opweld
from opweld.accounts import account_of
from opweld.cached import compile_model
from opweld.ledger import MEASURED, Decision
from opweld.options import Options
from opweld.record import KernelEntry
from opweld.rewrite.engine import UNMEASURED
from opweld.tune import tried
from opweld.tune.candidates import _apart
from tests.unit.packages import installed, registrations

PACKAGE = """
import numpy as np
from opweld.operators import *
from opweld.rewrite import Proposal, Rule

class Nothing(Rule):
    "The running sum of x - x is nothing, where x is finite."
    name, operators, measured = "beta.nothing", ("CumSum",), True

    def look(self, node, scope):
        difference = scope.producer(node.inputs[0], "Sub")
        if difference is None or difference.inputs[0] is not difference.inputs[1]:
            return None
        x = difference.inputs[0]
        apply = lambda: scope.replace(node.outputs[0], scope.add(node, "Nothing", [x], domain="com.beta"))
        return Proposal("it is nothing", apply, (difference,))

@infers("Nothing", domain="com.beta")
def infer(scope, node):
    fact = scope.fact(required(node, 0))
    return [Fact(fact.dtype, fact.shape)]

@kernel("beta_nothing", source=\"\"\"
    static void beta_nothing_f32(const float *x, float *y, int64_t n, int64_t *error) {
        SOURCE
    }\"\"\", parts=lambda numbers: (numbers[0], numbers[0]), work=lambda numbers: numbers[0])
def nothing(x, y, n):
    y[:] = 0

@lowers("Nothing", domain="com.beta")
def lower(scope, node):
    fact = scope.fact(required(node, 0))
    *rows, n = fact.shape
    x = scope.tensor(required(node, 0))
    made, = scope.extern("beta_nothing", [x], [(fact.dtype, fact.shape)], [n], product(rows))
    scope.alias(node.outputs[0], made)

@computes("Nothing", domain="com.beta")
def compute(x):
    return np.zeros_like(x)
"""

ZEROS = "for (int64_t i = 0; i < n; i++) y[i] = 0;"
SLOW = ZEROS + " for (volatile int64_t i = 0; i < 300000; i++) ;"
WRONG_FOR_SEVEN = "for (int64_t i = 0; i < n; i++) y[i] = n == 7;"

MODEL = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[rows, 512] a, float[rows, 7] b) => (float[rows, 512] y, float[rows, 7] z) <int64 axis = {1}> {
        [first] d = Sub(a, a) [second] y = CumSum(d, axis) [third] e = Sub(b, b) [fourth] z = CumSum(e, axis) }""")

SHARED = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[rows, 512] a) => (float[rows, 512] y, float[rows, 512] z) <int64 axis = {1}> {
        [first] d = Sub(a, a) [second] y = CumSum(d, axis) [third] z = CumSum <reverse = 1> (d, axis) }""")

Decide = Callable[..., dict[str, Decision]]


@pytest.fixture
def decide(tmp_path: Path, cache_without_models: Path) -> Decide:
    """What is decided of the rule, by the value that it is about, with a kernel of this text."""

    @contextmanager
    def package(source: str, text: str) -> Generator[None]:
        folder = tmp_path / f"package{len(list(tmp_path.glob('package*')))}"
        folder.mkdir()
        (folder / "beta.py").write_text(text.replace("SOURCE", source))
        points = {"opweld.rules": {"beta": "beta:Nothing"}, "opweld.operators": {"beta": "beta"}}
        with registrations(), installed(folder, points):
            yield

    def decided(
        source: str, graph: onnx.ModelProto = MODEL, text: str = PACKAGE, **options: Any
    ) -> dict[str, Decision]:
        with package(source, text):
            model = compile_model(graph, Options(**options))
            if options.get("target") == "aarch64":
                return {d.subject: d for d in account_of(model).ledger if d.rule == "beta.nothing"}
            session = opweld.InferenceSession(str(model))
            feeds = {"a": np.ones((3, 512), np.float32), "b": np.ones((3, 7), np.float32)}
            made = session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()})
            assert not any(np.any(array) for array in made), "what is wrong is never run"
            return {d.subject: d for d in account_of(model).ledger if d.rule == "beta.nothing"}

    return decided


def test_what_is_right_and_faster_is_kept(decide: Decide) -> None:
    large = decide(ZEROS, dim_hints={"rows": 400})["y"]
    assert large.taken == "rewritten"
    assert large.reason.startswith(f"{MEASURED}: it is")
    was, now = (alternative.measured for alternative in large.alternatives)
    assert was is not None
    assert now is not None
    assert now < was


def test_what_is_slower_is_not(decide: Decide) -> None:
    for decision in decide(SLOW).values():
        assert decision.taken == "as written"
        assert decision.reason.startswith(f"{MEASURED}: it is") and decision.reason.endswith("slower")
        was, now = (alternative.measured for alternative in decision.alternatives)
        assert was is not None
        assert now is not None
        assert was < now


def test_of_two_places_the_wrong_one_is_left_out(decide: Decide, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "opweld"):
        found = decide(WRONG_FOR_SEVEN, dim_hints={"rows": 400})
    assert found["y"].taken == "rewritten"
    assert found["z"].taken == "as written"
    assert "answers differently: z by" in found["z"].reason
    assert "beta.nothing is left out: it answers differently" in caplog.text


def test_what_does_not_compile_is_left_out_with_the_reason(decide: Decide, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "opweld"):
        found = decide("no C;")
    assert {d.taken for d in found.values()} == {"as written"}
    assert "beta.nothing is left out: it fails" in caplog.text


ENDLESS = ZEROS + " for (volatile int64_t i = 0; ; i = 1) ;"
CRASHING = ZEROS + " *(volatile int *)8 = 1;"
GREEDY = ZEROS + " for (;;) { volatile char *more = __builtin_malloc(1 << 28); more[0] = 1; }"
ONE = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[rows, 512] a) => (float[rows, 512] y) <int64 axis = {1}> {
        [first] d = Sub(a, a) [second] y = CumSum(d, axis) }""")


@pytest.mark.parametrize(
    ("source", "why"),
    [(CRASHING, "it crashes (SIGSEGV)"), (ENDLESS, "it does not end within"), (GREEDY, "it crashes (SIGSEGV)")],
)
def test_what_takes_its_process_along_is_left_out_with_the_reason(
    source: str, why: str, decide: Decide, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tried, "PATIENCE", 5.0 if source is ENDLESS else 600.0)
    with caplog.at_level(logging.WARNING, "opweld"):
        found = decide(source, graph=ONE)
    assert {d.taken for d in found.values()} == {"as written"}
    assert all(why in d.reason for d in found.values())
    assert f"beta.nothing is left out: {why}" in caplog.text


def test_what_fails_without_a_word_is_left_out_too(decide: Decide) -> None:
    found = decide(ZEROS, text=PACKAGE.replace("*rows, n = fact.shape", "assert False"))
    assert {d.taken for d in found.values()} == {"as written"}
    assert all("AssertionError" in d.reason for d in found.values())


def test_places_that_share_a_node_are_judged_together(decide: Decide) -> None:
    found = decide(ZEROS, graph=SHARED, dim_hints={"rows": 400})
    y, z = (found[name].alternatives for name in "yz")
    assert [a.measured for a in y] == [a.measured for a in z]
    assert all(a.measured is not None for a in y)


def test_for_another_machine_nothing_is_measured(decide: Decide) -> None:
    found = decide(ZEROS, target="aarch64")
    assert {(d.taken, d.reason) for d in found.values()} == {("as written", UNMEASURED)}
    pinned = decide(ZEROS, target="aarch64", pins={found["y"].id: "rewritten"})
    assert (pinned["y"].taken, pinned["z"].taken) == ("rewritten", "as written")


def test_who_insists_has_it_unmeasured_and_who_does_not_want_it_has_it_not(decide: Decide) -> None:
    found = decide(SLOW)
    pinned = decide(SLOW, pins={found["y"].id: "rewritten"})
    assert pinned["y"].taken == "rewritten"
    assert pinned["y"].alternatives[1].measured is None
    disabled = decide(ZEROS, disable=("beta",))
    assert {d.taken for d in disabled.values()} == {"as written"}
    assert all(a.measured is None for d in disabled.values() for a in d.alternatives)


def test_kernels_of_nodes_that_nobody_knows_belong_to_what_changed() -> None:
    """A rule that adds two nodes cannot name them both after the one that they stand for."""

    def kernels(*nodes: tuple[str, ...]) -> list[KernelEntry]:
        return [KernelEntry(f"k{n}", f"r{n}", names, n, 0.0, 0, 0) for n, names in enumerate(nodes)]

    def decision(*site: str) -> Decision:
        return Decision(site[0], "beta.nothing", site, (), "", "", "")

    one, two, apart = decision("a", "b"), decision("e"), kernels(("a", "b"), ("c", "d"), ("e",))
    groups = _apart([one, two], apart, kernels(("a",), ("c", "d"), ("e",)))
    assert [(group.nodes, group.candidates) for group in groups] == [({"a", "b"}, [one]), ({"e"}, [two])]
    (group,) = _apart([one, two], apart, kernels(("a",), ("a_1",), ("c", "d"), ("e",)))
    assert group.nodes == {"a", "b", "a_1", "e"}
    assert group.candidates == [one, two]

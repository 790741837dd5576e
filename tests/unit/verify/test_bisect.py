"""One decision is made to give wrong numbers; that one has to be named."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
import typer
from onnx import TensorProto, helper, numpy_helper

from opweld.cli.bisect import bisect as command
from opweld.codegen.c import vectorise
from opweld.codegen.c.vector import integer, plus
from opweld.experiments import attempts
from opweld.experiments.attempts import ByError, ByTime, CompiledAttempts, OptimizedAttempts
from opweld.experiments.measure import Timing
from opweld.fuse import epilogues
from opweld.ledger import Alternative, Decision, Ledger
from opweld.options import Options
from opweld.place import layout
from opweld.rewrite.rules import linear
from opweld.runtime.session import Session
from opweld.schedule.schedule import ReductionSchedule
from opweld.tensor.dim import Axis, as_dim
from opweld.tensor.expr import binary, const
from opweld.tile.member import KernelBody, ReductionMember
from opweld.tile.tile import Loop, Statement, Store, map_statements
from opweld.verification.apart import Apart
from opweld.verification.bisect import Attempt, Bisection, Trial, bisect

Save = Callable[[list[onnx.NodeProto], dict[str, tuple[int, ...]]], Path]


# ------------------------------------------------------------------------------------------------------ without models


def pretended(count: int, culprits: Collection[int]) -> tuple[Bisection, list[int | None]]:
    """Halves a ledger of so many requests; bad is what has one of the culprits. Says how many were granted each
    time."""
    runs: list[int | None] = []

    def attempt(granted: Collection[str] | None, without: str) -> Attempt:
        ledger = Ledger([without] if without else (), granted=granted)
        taken = [
            ledger.decide(
                rule="fuse.chain",
                site=(f"n{number}",),
                subject=(str(number),),
                alternatives=(Alternative("apart"), Alternative("together")),
                prefer="together",
                reason="",
            )
            for number in range(count)
        ]
        runs.append(None if granted is None else len(granted))
        wrong = [number for number in culprits if taken[number] == "together"]
        return Attempt(ledger, Trial(not wrong, float(len(wrong)), "wrong" if wrong else ""))

    return bisect(attempt), runs


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 1000])
def test_any_one_of_them_is_found_in_few_runs(count: int) -> None:
    for culprit in {0, count // 3, count - 1}:
        found, runs = pretended(count, [culprit])
        assert found.found is not None and found.found.site == (f"n{culprit}",)
        assert found.before is not None and found.before.good
        assert found.after is not None and not found.after.good
        assert found.without is not None and found.without.good
        assert found.runs <= math.ceil(math.log2(count)) + 2
        assert len(runs) == found.runs + 1, "one more sees whether it is good without that one alone"


def test_of_two_the_first_is_named_and_the_other_remains() -> None:
    found, _ = pretended(50, [11, 30])
    assert found.found is not None and found.found.site in (("n11",), ("n30",))
    assert found.without is not None and not found.without.good


def test_what_is_good_takes_one_run_and_what_is_no_decision_two() -> None:
    found, runs = pretended(50, [])
    assert (found.found, found.whole.good, runs) == (None, True, [None])

    def always_bad(granted: Collection[str] | None, without: str) -> Attempt:
        ledger = Ledger(granted=granted)
        options = (Alternative("apart"), Alternative("together"))
        ledger.decide(rule="x", site=(), subject=("a",), alternatives=options, prefer="together", reason="")
        return Attempt(ledger, Trial(good=False, figure=1.0, problem="wrong"))

    found = bisect(always_bad)
    assert (found.found, found.bare.good, found.runs) == (None, False, 2)


def test_what_only_refusals_bring_up_is_refused_too() -> None:
    """A decision that the whole ledger does not have, because another was taken before it."""

    def attempt(granted: Collection[str] | None, without: str) -> Attempt:
        ledger = Ledger([without] if without else (), granted=granted)

        def ask(name: str) -> bool:
            options = (Alternative("no"), Alternative("yes"))
            return (
                ledger.decide(rule="x", site=(name,), subject=(name,), alternatives=options, prefer="yes", reason="")
                == "yes"
            )

        first = ask("first")
        second = ask("second") if first else ask("instead of it")
        third = ask("third")
        return Attempt(ledger, Trial(not (third or (second and not first)), 0.0))

    found = bisect(attempt)
    assert found.found is not None and found.found.site == ("third",)
    assert found.bare.good, "or else `instead of it` was granted"


# --------------------------------------------------------------------------------------------------------- with models


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Writes a model of x [6, 40] to y, with random weights of these shapes."""

    def write(nodes: list[onnx.NodeProto], shapes: dict[str, tuple[int, ...]]) -> Path:
        random = np.random.default_rng(0)
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 40])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [6, "columns"])],
            [
                numpy_helper.from_array(random.standard_normal(shape, np.float32) / np.float32(6), name)
                for name, shape in shapes.items()
            ],
        )
        path = tmp_path / "m.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
        return path

    return write


@pytest.fixture
def model(save: Save) -> Path:
    """Two products with biases and what is done with them; two more, joined. The third would cost more as one with the
    second."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="product1"),
        helper.make_node("Add", ["a", "b1"], ["b"], name="bias1"),
        helper.make_node("Sigmoid", ["b"], ["c"], name="sigmoid1"),
        helper.make_node("MatMul", ["c", "w2"], ["d"], name="product2"),
        helper.make_node("Add", ["d", "b2"], ["e"], name="bias2"),
        helper.make_node("MatMul", ["e", "w3"], ["f"], name="product3"),
        helper.make_node("MatMul", ["x", "w4"], ["g"], name="product4"),
        helper.make_node("Concat", ["f", "g"], ["h"], axis=1, name="join"),
        helper.make_node("Tanh", ["h"], ["i"], name="tanh"),
        helper.make_node("ReduceMean", ["i"], ["j"], axes=[1], name="mean"),
        helper.make_node("Sub", ["i", "j"], ["y"], name="center"),
    ]
    shapes = {"w1": (40, 48), "b1": (48,), "w2": (48, 24), "b2": (24,), "w3": (24, 200), "w4": (40, 20)}
    return save(nodes, shapes)


APART = Options(threads=1, disable=("rewrite.consecutive",))
"""The model has two products in a row, which are to stay two."""

FEEDS = {"x": np.random.default_rng(1).standard_normal((6, 40), np.float32)}


def compiled(model: Path, options: Options | None = None) -> Bisection:
    with Apart() as apart:
        judge = ByError(model, apart, rtol=1e-4, atol=None)
        found = bisect(CompiledAttempts(model, options or APART, judge, lambda _: FEEDS))
    assert found.runs <= math.ceil(math.log2(max(len(found.decisions), 1))) + 2
    return found


def culprit(found: Bisection) -> Decision:
    assert found.found is not None
    assert found.bare.good and found.before is not None and found.before.good
    assert found.after is not None and not found.after.good and found.after.figure > 1e-3
    return found.found


def spoilt(made: KernelBody) -> KernelBody:
    """A kernel that stores three times what it should."""

    def change(statement: Statement) -> Statement:
        if not isinstance(statement, Store):
            return statement
        return replace(statement, value=binary("mul", statement.value, const(3, statement.value.dtype)))

    return replace(made, body=map_statements(made.body, change))


def test_a_right_model_is_good(model: Path) -> None:
    found = compiled(model)
    assert found.whole.good and found.runs == 1
    assert len(found.decisions) > 10


def test_a_fault_of_a_rule(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An epilogue of the second product gets the wrong accumulators."""
    inline = epilogues.inline

    def wrong(node: Any, source: Any) -> Any:
        body = inline(node, source)
        return binary("mul", body, const(3, body.dtype)) if source.origin == ("product2",) else body

    monkeypatch.setattr(epilogues, "inline", wrong)
    found = compiled(model)
    decision = culprit(found)
    assert decision.rule == "fuse.epilogue"
    assert decision.site == ("product2", "bias2")
    assert found.without is not None and found.without.good
    np.save(model.with_suffix(".npy"), FEEDS["x"])
    with pytest.raises(typer.Exit):
        command(model=model, values=[f"x={model.with_suffix('.npy')}"], rtol=1e-4, disable=list(APART.disable))
    said = capsys.readouterr().out
    assert f"{decision.id} fuse.epilogue fused at product2, bias2\n" in said
    assert said.splitlines()[-1].startswith("good with all but this one")
    assert said.endswith(f"--disable {decision.id}\n")


def test_a_fault_of_a_schedule(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of several rows are wrong where the result has 24 columns."""
    realise = ReductionMember.realise

    def wrong(self: ReductionMember, schedule: Any, target: Any) -> KernelBody:
        made = realise(self, schedule, target)
        columns = any(axis.extent.constant == 24 for axis in self.nest.axes)
        return spoilt(made) if columns and isinstance(schedule, ReductionSchedule) and schedule.height > 1 else made

    monkeypatch.setattr(ReductionMember, "realise", wrong)
    decision = culprit(compiled(model))
    assert decision.rule == "schedule.height"
    assert "product2" in decision.site


def test_a_schedule_that_is_slow(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of several rows are computed again and again where the result has 24 columns."""
    realise = ReductionMember.realise

    def slow(self: ReductionMember, schedule: Any, target: Any) -> KernelBody:
        made = realise(self, schedule, target)
        columns = any(axis.extent.constant == 24 for axis in self.nest.axes)
        if not columns or not isinstance(schedule, ReductionSchedule) or schedule.height == 1:
            return made
        return replace(made, body=(Loop(Axis("again", as_dim(20_000)), made.body),))

    monkeypatch.setattr(ReductionMember, "realise", slow)
    monkeypatch.setattr(attempts, "_ROUNDS", 1)
    monkeypatch.setattr(attempts, "_BLOCK_S", 0.01)
    attempt = CompiledAttempts(model, APART, ByTime(4.0), lambda _: FEEDS)
    assert attempt(frozenset(), "").trial.good
    found = bisect(attempt)
    assert found.found is not None and found.found.rule == "schedule.height"
    assert "product2" in found.found.site
    assert found.after is not None and found.after.figure > 10
    assert found.without is not None and found.without.good


def test_a_fault_of_storage(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written straight into the whole begins one column too early, unless it is the first part."""
    slice_of = layout.slice_of

    def wrong(parent: Any, axis: int, start: Any) -> Any:
        return slice_of(parent, axis, start if start.constant == 0 else start - 1)

    monkeypatch.setattr(layout, "slice_of", wrong)
    decision = culprit(compiled(model))
    assert decision.rule == "place.slice"
    assert "join" in decision.site


def test_a_fault_of_a_kernel(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of an unrolled loop leaves out its first trip, where it has 48."""
    written = vectorise.For

    def wrong(variable: str, first: Any, last: Any, body: Any, **how: Any) -> Any:
        lost = how.get("unroll", 1) > 1 and last == integer(48)
        return written(variable, plus(first, integer(1)) if lost else first, last, body, **how)

    monkeypatch.setattr(vectorise, "For", wrong)
    decision = culprit(compiled(model))
    assert decision.rule == "schedule.unroll"
    assert "product2" in decision.site


def test_a_kernel_that_ends_its_process(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written straight into the whole is written far outside of all memory."""
    slice_of = layout.slice_of
    monkeypatch.setattr(layout, "slice_of", lambda parent, axis, start: slice_of(parent, axis, start + (1 << 40)))
    found = compiled(model)
    assert found.found is not None and found.found.rule == "place.slice"
    assert found.whole.problem == "RunError: the run ended its process: SIGSEGV"
    assert found.bare.good and found.without is not None


def test_a_fault_that_no_decision_makes(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    realise = ReductionMember.realise
    monkeypatch.setattr(ReductionMember, "realise", lambda *given: spoilt(realise(*given)))
    found = compiled(model)
    assert found.found is None and not found.bare.good and found.runs == 2


def test_a_compilation_that_breaks_off(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was decided until then is there to be halved."""
    inline = epilogues.inline

    def breaks(node: Any, source: Any) -> Any:
        if source.origin == ("product2",):
            raise ZeroDivisionError("in a rule")
        return inline(node, source)

    monkeypatch.setattr(epilogues, "inline", breaks)
    found = compiled(model)
    assert found.found is not None and found.found.site == ("product2", "bias2")
    assert found.whole.problem == "ZeroDivisionError: in a rule"


def test_what_the_user_disabled_or_pinned_is_no_candidate(model: Path) -> None:
    everything = compiled(model, APART).decisions
    vectors = next(d for d in everything if d.rule == "schedule.vectors")
    options = Options(threads=1, disable=("fuse.epilogue",), pins={vectors.id: vectors.taken})
    left = compiled(model, options).decisions
    assert vectors.id not in {d.id for d in left}
    assert not any(d.rule == "fuse.epilogue" for d in left)


def test_slow_is_more_than_so_many_times_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = {"first": 2.0, "this": 2.0}

    def alternate(contestants: Any, **how: Any) -> dict[str, Timing]:
        assert list(contestants) == list(times)
        return {name: Timing(seconds, seconds, seconds, 1) for name, seconds in times.items()}

    monkeypatch.setattr(attempts, "alternate", alternate)
    judge = ByTime(1.5)
    first, other = (cast("Session", object()) for _ in range(2))
    judge.prepare(first, {})
    judge.prepare(other, {})
    assert judge(first, {}).good
    assert judge(other, {}) == Trial(good=True, figure=1.0)
    times["this"] = 4.0
    assert judge(other, {}) == Trial(good=False, figure=2.0, problem="takes 2.00 times as long")


def test_a_fault_of_a_rewriting(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scaling by a constant is folded into the weights of the product before it, wrongly for the second one."""
    pytest.importorskip("onnxruntime")
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["a"], name="product1"),
        helper.make_node("Mul", ["a", "s1"], ["b"], name="scale1"),
        helper.make_node("Identity", ["b"], ["i"], name="same"),
        helper.make_node("Gemm", ["i", "w2", "b2"], ["c"], name="product2"),
        helper.make_node("Mul", ["c", "s2"], ["y"], name="scale2"),
    ]
    shapes = {"w1": (40, 48), "b1": (48,), "s1": (48,), "w2": (48, 24), "b2": (24,), "s2": (24,)}
    model = save(nodes, shapes)
    rewrite = linear.rewrite

    def wrong(found: Any, node: Any, factor: Any, shift: Any, scope: Any) -> None:
        rewrite(found, node, factor * 3 if node.name == "scale2" else factor, shift, scope)

    monkeypatch.setattr(linear, "rewrite", wrong)
    found = bisect(OptimizedAttempts(model, Options(), FEEDS, contributed=False, rtol=None, atol=None))
    decision = culprit(found)
    assert (decision.rule, decision.site[0]) == ("rewrite.scale", "scale2")
    assert found.runs <= math.ceil(math.log2(len(found.decisions))) + 2
    assert found.without is not None and found.without.good

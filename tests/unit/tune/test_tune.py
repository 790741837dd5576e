"""What is tried, what of it is kept, and what the ledger of a tuned model says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opweld
from opweld.accounts import account_of
from opweld.errors import OptionError
from opweld.ledger import MEASURED, Alternative, Decision, Ledger, Measured
from opweld.options import Options, TuneName
from opweld.tune import build as build_module
from opweld.tune import trial as trial_module
from opweld.tune import tune as tune_module
from opweld.tune.changes import Change
from opweld.tune.effort import EFFORTS, Effort
from opweld.tune.trial import Gain, Times, Trial
from opweld.tune.tune import _why

Race = Callable[..., list[Times]]
FEEDS = {"x": np.random.default_rng(0).normal(size=(96, 192)).astype(np.float32)}


def saved(folder: Path) -> Path:
    """Two products of matrices with something between, in a file."""
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name)
        for name, shape in (("a", (192, 256)), ("b", (256, 64)))
    ]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "a"], ["h"], name="first"),
            helper.make_node("Softmax", ["h"], ["s"], name="middle", axis=-1),
            helper.make_node("MatMul", ["s", "b"], ["y"], name="last"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 192])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 64])],
        weights,
    )
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine that tests."""
    for name, effort in EFFORTS.items():
        monkeypatch.setitem(EFFORTS, name, replace(effort, seconds=100 * effort.seconds))


@pytest.fixture
def model(tmp_path: Path, cache_without_models: Path) -> Path:
    return saved(tmp_path)


def tried(path: Path) -> list[Decision]:
    """The decisions of an artifact of which something was measured."""
    return [d for d in account_of(path).ledger if any(a.measured is not None for a in d.alternatives)]


def racing(faster: Callable[[Trial], float]) -> Race:
    """A race in which a trial's kernels take so many seconds, and one that all take one."""

    def race(trials: Sequence[Trial], feeds: Mapping[str, Any], blocks: Any) -> list[Times]:
        made: list[Times] = []
        for trial in trials:
            regions = {kernel.region: np.full(8, faster(trial)) for kernel in trial.entry(feeds).kernels}
            made.append(Times(np.full(8, faster(trial)), regions))
        return made

    return race


def test_a_tuned_model_answers_the_same_and_is_found_again(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, tuned = opweld.compile(str(model)), opweld.compile(str(model), tune="quick")
    assert tuned.path != plain.path
    assert tried(tuned.path), "something was measured"
    assert not tried(plain.path)
    np.testing.assert_allclose(tuned.run(FEEDS)["y"], plain.run(FEEDS)["y"], rtol=1e-4, atol=1e-6)

    def fail(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(build_module, "build_artifact", fail)
    assert opweld.compile(str(model), tune="quick").path == tuned.path


def changed(trial: Trial) -> bool:
    return any(d.reason.startswith(MEASURED) and d.taken != _predicted(d) for d in trial.account.ledger)


def _predicted(decision: Decision) -> str:
    """What is taken where nothing is measured: what was measured beside each trial comes first."""
    return min(
        (a for a in decision.alternatives if a.measured is not None),
        key=lambda a: a.measured or 0.0,
        default=decision.alternatives[0],
    ).name


@pytest.mark.parametrize("effort", ["quick", "full"])
def test_what_measures_slower_is_never_kept(model: Path, monkeypatch: pytest.MonkeyPatch, effort: TuneName) -> None:
    plain = opweld.compile(str(model))
    line = (plain.path / "schedules.txt").read_text()
    mine = {d.id: d.taken for d in account_of(plain.path).ledger}
    monkeypatch.setattr(
        tune_module, "race", racing(lambda t: 1.0 if all(d.taken == mine.get(d.id) for d in t.account.ledger) else 1.2)
    )
    monkeypatch.setitem(EFFORTS, effort, replace(EFFORTS[effort], trials=3))
    tuned = opweld.compile(str(model), tune=effort)
    assert (tuned.path / "schedules.txt").read_text() == line
    for decision in tried(tuned.path):
        seconds = {a.name: a.measured for a in decision.alternatives if a.measured is not None}
        assert seconds[decision.taken] == 1.0
        assert sorted(seconds.values())[-1] == 1.2
        assert decision.reason.startswith(MEASURED) and decision.reason.endswith("20% slower")


def test_what_measures_faster_is_kept_and_the_ledger_says_so(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = {d.id: d.taken for d in account_of(opweld.compile(str(model)).path).ledger}

    def seconds(trial: Trial) -> float:
        return 0.5 if any(d.id in mine and d.taken != mine[d.id] for d in trial.account.ledger) else 1.0

    monkeypatch.setattr(tune_module, "race", racing(seconds))
    tuned = opweld.compile(str(model), tune="quick")
    kept = [d for d in tried(tuned.path) if d.taken != mine[d.id]]
    assert kept
    for decision in kept:
        assert decision.reason == f"{MEASURED}: 100% faster than {mine[decision.id]}" and not decision.pinned
        measured = {a.name: a.measured for a in decision.alternatives}
        assert measured[decision.taken] == 0.5 and measured[mine[decision.id]] == 1.0
    np.testing.assert_allclose(tuned.run(FEEDS)["y"], opweld.compile(str(model)).run(FEEDS)["y"], rtol=1e-4, atol=1e-6)
    again = opweld.compile(str(model), schedules=tuned.path / "schedules.txt")
    assert (again.path / "schedules.txt").read_text() == (tuned.path / "schedules.txt").read_text()


def test_what_gained_alone_and_not_together_is_given_up(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last race, of all that was kept, decides."""
    plain = opweld.compile(str(model))
    trials: set[Path] = set()

    def seconds(trial: Trial) -> float:
        trials.add(trial.folder)
        together = any(a.measured is not None for d in trial.account.ledger for a in d.alternatives)
        return 1.0 if len(trials) == 1 or trial.folder == min(trials) else 1.1 if together else 0.5

    monkeypatch.setattr(tune_module, "race", racing(seconds))
    tuned = opweld.compile(str(model), tune="quick")
    assert (tuned.path / "schedules.txt").read_text() == (plain.path / "schedules.txt").read_text()
    assert tried(tuned.path)
    assert any("alone, and is not together" in decision.reason for decision in tried(tuned.path))


def test_a_trial_that_answers_differently_is_given_up(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain = opweld.compile(str(model))
    monkeypatch.setattr(trial_module, "relative_error", lambda *_: (0.5, ()))
    with caplog.at_level(logging.WARNING, "opweld"):
        tuned = opweld.compile(str(model), tune="quick")
    assert "answers differently" in caplog.text
    assert (tuned.path / "schedules.txt").read_text() == (plain.path / "schedules.txt").read_text()


def test_pins_are_not_tuned(model: Path) -> None:
    pins = {d.id: d.taken for d in account_of(opweld.compile(str(model)).path).ledger if d.part}
    tuned = opweld.compile(str(model), tune="quick", pins=pins)
    assert not tried(tuned.path)


def test_a_model_that_decides_as_it_runs_is_not_tuned(
    tmp_path: Path, cache_without_models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [1, "n"])],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    with caplog.at_level(logging.WARNING, "opweld"):
        tuned = opweld.compile(str(path), tune="quick")
    assert "not tuned" in caplog.text
    assert tuned.run({"x": np.arange(8, dtype=np.float32)})["y"].shape == (1, 7)


def test_no_trial_begins_that_would_end_too_late(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What comes of it is found again: the next call does not compile it once more."""
    monkeypatch.setitem(EFFORTS, "quick", replace(EFFORTS["quick"], seconds=0.0, least=0))
    with caplog.at_level(logging.WARNING, "opweld"):
        late = opweld.compile(str(model), tune="quick")
    assert "would not end within 0 s" in caplog.text
    assert not tried(late.path)

    def fail(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(build_module, "build_artifact", fail)
    assert opweld.compile(str(model), tune="quick").path == late.path
    assert not tried(opweld.compile(str(model)).path)


def test_a_target_that_cannot_run_here_is_refused(model: Path) -> None:
    with pytest.raises(OptionError, match="cannot run code for aarch64"):
        opweld.compile(str(model), target="aarch64", tune="quick")


def test_options_know_what_tuning_hangs_on() -> None:
    with pytest.raises(OptionError, match="tune is 'slow', expected one of off, quick, full"):
        Options(tune="slow")
    assert Options(threads=1).digest() == Options().digest()
    assert len({Options(tune="quick", threads=n).digest() for n in (0, 1, 2)}) == 3
    assert Options(tune="quick").digest() != Options(tune="full").digest() != Options().digest()


def ask(ledger: Ledger, failed: Mapping[str, str] | None = None) -> str:
    return ledger.decide(
        rule="schedule.height",
        site=("n",),
        subject=("n",),
        alternatives=[Alternative("1", seconds=3.0), Alternative("2", seconds=1.0), Alternative("3", seconds=2.0)],
        reason="predicted",
        failed=failed,
    )


def test_what_was_measured_is_stronger_than_what_is_predicted() -> None:
    first = Ledger()
    assert ask(first) == "2"
    identity = next(iter(first)).id
    ledger = Ledger(measured={identity: Measured("3", {"2": 1.5, "3": 1.0})})
    assert ask(ledger) == "3"
    (decision,) = ledger
    assert decision.reason == MEASURED and decision.preferred == "3"
    assert [a.measured for a in decision.alternatives] == [None, 1.5, 1.0]
    assert Ledger.loads(ledger.dumps()).to_json() == ledger.to_json()
    refused = Ledger(measured={identity: Measured("3", {})})
    assert ask(refused, {"3": "too high"}) == "2", "what is not legal is passed over"
    pinned = Ledger(pins={identity: "1"}, measured={identity: Measured("3", {})})
    assert ask(pinned) == "1"
    assert ask(Ledger(disable=("schedule.height",), measured={identity: Measured("3", {})})) == "1"


def test_a_ledger_goes_on_with_what_was_measured() -> None:
    first = Ledger()
    other = first.with_measured({})
    ask(other)
    assert len(first) == 0 and len(other) == 1


def test_efforts_have_bounds() -> None:
    quick, full = EFFORTS["quick"], EFFORTS["full"]
    assert isinstance(quick, Effort)
    assert quick.seconds < full.seconds and quick.trials < full.trials and not quick.structure


def gained(ratio: float, low: float = 2.0) -> Gain:
    return Gain(ratio, low, 1.0, 1.0 / ratio)


def test_what_is_kept_although_another_measured_faster_says_why() -> None:
    slow, fast = (Change(("i",), "schedule.height", "p", "1", name, 1.0) for name in ("2", "4"))
    other = Change(("k",), "schedule.vectors", "p", "1", "2", 1.0)
    said = {
        "slower": _why("1", [(slow, gained(0.8))]),
        "noise": _why("1", [(slow, gained(0.8)), (fast, gained(1.02))]),
        "unsteady": _why("1", [(fast, gained(1.2, 0.9))]),
        "together": _why("1", [(fast, gained(1.2))], None, [fast]),
        "other": _why("1", [(fast, gained(1.1))], other),
        "taken": _why("4", [(slow, gained(1.1)), (fast, gained(1.25))], fast),
    }
    assert all(reason.startswith(MEASURED) for reason in said.values())
    assert "2 is 25% slower" in said["slower"] and "4 is 2% faster" in said["noise"] and "noise" in said["noise"]
    assert "20% faster" in said["unsteady"] and "all blocks" in said["unsteady"]
    assert "together" in said["together"] and str(other) in said["other"]
    assert said["taken"].endswith("25% faster than 1")
    assert len(set(said.values())) == len(said)


def test_there_is_time_for_trials_of_a_model_that_takes_long_to_compile(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of `quick` is over when the model is compiled: so much is left that some of it is tried."""
    monkeypatch.setitem(EFFORTS, "quick", replace(EFFORTS["quick"], seconds=0.0))
    monkeypatch.setattr(tune_module, "race", racing(lambda _: 1.0))
    assert tried(opweld.compile(str(model), tune="quick").path)

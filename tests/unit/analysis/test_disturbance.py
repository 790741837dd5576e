"""When a machine is too busy to measure on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opweld.analysis import disturbance
from opweld.analysis.disturbance import Disturbance, Watch, spread_of


@pytest.mark.parametrize(
    ("found", "reasons"),
    [
        (Disturbance(0.0, 0.02, 3.0, 1.1), 0),
        (Disturbance(None, None, 3.0, 1.1), 0),
        (Disturbance(0.2, 0.0, 3.0, 1.1), 1),
        (Disturbance(0.0, 0.7, 3.0, 1.1), 1),
        (Disturbance(0.0, 0.7, 300.0, 2.5), 3),
        (Disturbance(None, None, 3.0, 2.5), 1),
    ],
)
def test_a_busy_machine_is_told_with_how_it_is_known(found: Disturbance, reasons: int) -> None:
    assert len(found.reasons) == reasons
    assert found.busy == bool(reasons) == bool(found.warning)
    assert all(reason in found.warning for reason in found.reasons)


def test_runs_that_differ_on_a_machine_that_is_known_to_be_idle_are_no_sign() -> None:
    assert not Disturbance(0.0, 0.0, 3.0, 2.5).busy


def test_ticks_of_other_programs_and_of_other_machines_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of 1,000 ticks of two processors, others take 600 and the hypervisor 100; a third processor is not this one's."""
    stat = tmp_path / "stat"
    monkeypatch.setattr(disturbance, "_STAT", stat)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("os.times", lambda: (0.0, 0.0, 0.0, 0.0, 0.0))
    lines = (
        "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 {} 0 0 {} 0 0 0 {} 0 0\ncpu1 {} 0 0 {} 0 0 0 {} 0 0\ncpu2 9 9 9 9 9 9 9 9 9 9\n"
    )
    stat.write_text(lines.format(10, 10, 10, 10, 10, 10))
    watch = Watch()
    stat.write_text(lines.format(410, 110, 10, 210, 210, 110))
    found = watch.seen(spread_of(np.array([1.0, 1.0, 1.0, 3.0])))
    assert (found.steal, found.others) == (pytest.approx(0.1), pytest.approx(0.6))
    assert found.busy


def test_a_system_that_tells_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(disturbance, "_STAT", tmp_path / "none")
    found = Watch().seen(spread_of(np.array([1.0])))
    assert (found.steal, found.others, found.known) == (None, None, False)

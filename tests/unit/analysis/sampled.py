"""Runs made up for tests: three kernels in two phases on two threads, every clock set by hand."""

from __future__ import annotations

import numpy as np

from opweld.account.account import Account
from opweld.analysis.disturbance import Disturbance
from opweld.analysis.sample import Samples
from opweld.ledger import Ledger
from opweld.record import FileNode, KernelEntry, Record, VariantEntry
from opweld.runtime.plan import PlanDescription, Step
from opweld.schedules_file import PinnedRegion, SchedulesFile

STEPS = (
    Step("k1_contraction", "product, add", 0, 2, 4000, 80_000, 900),
    Step("k2_map", "exp", 0, 1, 1000, 100, 100),
    Step("k3_rows", "norm", 1, 1, 500, 50, 400),
    Step("k4_halo", "norm", 1, 0, 0, 0, 0),
)

PLAN = PlanDescription((), "main", 0, 0, 0, 0, 2, STEPS)

#            thread 0              thread 1
TIMINGS = (
    ((100, 900, 800, 4), (120, 1000, 480, 3)),  # the contraction, on both: 800 + 480 of 1280 + 320
    ((0, 0, 0, 0), (500, 900, 320, 2)),  # the map, in between on the other
    ((1200, 1700, 500, 1), (0, 0, 0, 0)),
    ((0, 0, 0, 0), (0, 0, 0, 0)),  # an empty grid
)
"""Begin, end, busy and pieces in nanoseconds; the run takes 1,800."""

ACCOUNT = Account(
    Ledger(),
    SchedulesFile("", {}, {("main", "add 0"): PinnedRegion(1, "contraction lane=i1; loop unroll=4", {})}),
    Record(
        (
            FileNode("/net/product", "MatMul", ("x", "w"), ("p",), "net.py:7", called=("product",), reached=True),
            FileNode("add", "Add", ("p", "b"), ("a",), called=("add",), reached=True),
            FileNode("exp", "Exp", ("x",), ("e",), "net.py:9", called=("exp",), reached=True),
            FileNode("norm", "LayerNormalization", ("a",), ("n",), called=("norm",), reached=True),
        ),
        ("n", "e"),
        (
            VariantEntry("other", 0, {}, ()),
            VariantEntry(
                "main",
                0,
                {},
                (
                    KernelEntry("k1_contraction", "add 0", ("product", "add"), 0, 9e-7, 4000, 80_000),
                    KernelEntry("k2_map", "exp 0", ("exp",), 0, 1e-7, 1000, 100),
                    KernelEntry("k3_rows", "norm 0", ("norm",), 1, 4e-7, 500, 50),
                    KernelEntry("k4_halo", "norm 0", ("norm",), 1, 0.0, 0, 0),
                ),
            ),
        ),
    ),
)


QUIET = Disturbance(0.0, 0.0, 1.0, 1.01)


def samples(stretch: tuple[float, ...] = (1.0,), disturbance: Disturbance = QUIET) -> Samples:
    """One timed run for each factor by which all its clocks are stretched; the call adds 200 ns, clocks 50."""
    once = np.array(TIMINGS, np.int64).transpose(1, 0, 2)
    timings = np.stack([once * np.array([factor, factor, factor, 1]) for factor in stretch]).astype(np.int64)
    wall = np.array([1800 * factor for factor in stretch], np.int64)
    timed = np.asarray(wall * 1e-9 + 200e-9, np.float64)
    rounds = np.arange(len(stretch))
    plain = np.asarray(timed - 50e-9, np.float64)
    return Samples(PLAN, {"x": (2, 3)}, plain, timed, wall, timings, (rounds, rounds), disturbance)

"""How much is tried."""

from __future__ import annotations

from dataclasses import dataclass

from opweld.analysis.alternate import Blocks


@dataclass(frozen=True)
class Effort:
    """How much is tried.

    Attributes:
        seconds: no trial begins that would end after so many, the model's compilation included; but see `least`.
        least: trials for which there is time however long the model takes to compile, and for what is kept of them.
        trials: of kernels that are alike.
        share: kernels that together take this part of a run are tried, the longest first.
        within: alternatives that are predicted to take at most so many times what was chosen.
        passes: how often all is tried again, from what was kept. structure: whether fusion, storage and lanes are
            tried too, each by whole runs.
        blocks: runs of a comparison.
    """

    seconds: float
    least: int
    trials: int
    share: float
    within: float
    passes: int
    structure: bool
    blocks: Blocks


EFFORTS = {
    "quick": Effort(15.0, 2, 4, 0.8, 1.1, 1, False, Blocks(rounds=3, block_s=0.05)),
    "full": Effort(900.0, 4, 60, 0.97, 2.0, 2, True, Blocks(rounds=7, block_s=0.1)),
}
"""By the name of `--tune`; what is off has none."""

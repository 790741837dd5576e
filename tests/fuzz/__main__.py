"""Breaks models and watches what the front end makes of them: python -m tests.fuzz --count 1000 --seed 1."""

from __future__ import annotations

import argparse
import collections
import os
import sys
import time
from pathlib import Path

from tests.fuzz.drive import findings_of
from tests.fuzz.mutate import mutant_of


def main() -> int:
    """Prints what is bad as it comes, then a table; the status is 1 when anything is."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="how many mutants")
    parser.add_argument("--seed", type=int, help="the first seed; a random one where left out")
    parser.add_argument("--only", type=int, nargs="*", help="these seeds instead")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--keep", type=Path, help="a folder that receives the bad mutants, one file a seed")
    parser.add_argument("--refusals", action="store_true", help="list what was refused, and why")
    given = parser.parse_args()
    first = int.from_bytes(os.urandom(4), "big") if given.seed is None else given.seed
    seeds = given.only or range(first, first + given.count)
    print(f"{len(seeds)} mutants from seed {seeds[0]}", flush=True)
    started = time.monotonic()
    counts: collections.Counter[str] = collections.Counter()
    for finding in findings_of(seeds, given.workers):
        counts[finding.outcome] += 1
        if finding.bad or (given.refusals and finding.outcome == "refused"):
            print(f"seed {finding.seed} {finding.outcome}: {finding.what}", flush=True)
        if finding.bad and given.keep:
            given.keep.mkdir(parents=True, exist_ok=True)
            (given.keep / f"{finding.seed}.onnx").write_bytes(mutant_of(finding.seed)[1])
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    bad = sum(count for outcome, count in counts.items() if outcome not in ("accepted", "refused"))
    print(f"{time.monotonic() - started:.0f} s; {bad} bad mutants")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

"""Casts the net: python -m tests.random --count 1000 --seed 1; or looks at one graph: --only 4711 --reduce."""

from __future__ import annotations

import argparse
import collections
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.random.judge import LEVELS, Finding
from tests.random.net import cast_net
from tests.random.quick import quick_compiler
from tests.random.worker import HALVES, NATIVE, NNSMITH, OURS, QUANTIZED


def main() -> int:
    """Prints what is found as it comes, then a table; the status is 1 when anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.random", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many graphs")
    parser.add_argument("--seed", type=int, help="the first seed; a random one where left out")
    parser.add_argument("--only", type=int, nargs="*", help="these seeds instead")
    parser.add_argument(
        "--generator", choices=(OURS, HALVES, NNSMITH, QUANTIZED), default=OURS, help="who draws the graphs"
    )
    parser.add_argument("--levels", default=",".join(LEVELS))
    parser.add_argument("--threads", default="1,2", help="numbers of threads that every graph is run on")
    parser.add_argument("--target", default=NATIVE, help="sm_90: the CUDA backend, in Triton's interpreter")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--compiler", choices=("quick", "product"), default="quick", help="gcc -O1, or zig cc -O3")
    parser.add_argument("--reduce", action="store_true", help="reduce what is bad to a few nodes")
    parser.add_argument("--refusals", action="store_true", help="list what was refused, and why")
    given = parser.parse_args()
    first = int.from_bytes(os.urandom(4), "big") if given.seed is None else given.seed
    seeds = given.only or range(first, first + given.count)
    levels = given.levels.split(",")
    threads = [int(count) for count in given.threads.split(",")] if given.target == NATIVE else [1]
    of = f"threads {given.threads}" if given.target == NATIVE else given.target
    print(f"{len(seeds)} graphs from seed {seeds[0]}, levels {given.levels}, {of}")
    started = time.monotonic()
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    whats: collections.Counter[tuple[str, str]] = collections.Counter()
    bad: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="opweld-net-") as folder:
        variables = environment(Path(folder), given.compiler, given.target)
        found = cast_net(seeds, levels, lambda seed: threads, given.workers, variables, given.generator, given.target)
        for findings in found:
            for finding in findings:
                counts[finding.level, finding.outcome] += 1
                if finding.outcome != "right":
                    whats[finding.outcome, finding.what] += 1
                if finding.bad:
                    bad.append(finding)
                    print(f"seed {finding.seed} {finding.level} {finding.outcome}: {finding.what}", flush=True)
        if given.reduce and bad:
            from tests.random.reduce import reduce_finding

            for finding in {f.seed: f for f in bad}.values():
                kept = Path(tempfile.gettempdir()) / f"opweld-reduced-{finding.seed}"
                print(reduce_finding(finding, given.generator, variables, kept, given.target), flush=True)
    _print_table(counts, levels)
    if given.refusals:
        for (outcome, what), count in whats.most_common():
            if outcome in ("refused", "noise", "disputed"):
                print(f"{count:6} {outcome}: {what}")
    print(f"{time.monotonic() - started:.0f} s; {len({f.seed for f in bad})} bad graphs")
    return 1 if bad else 0


def environment(folder: Path, compiler: str, target: str = NATIVE) -> dict[str, str]:
    """Variables for the workers: a cache of their own, and a compiler, or Triton's interpreter for a GPU."""
    variables = {"OPWELD_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    if target != NATIVE:
        return variables | {"TRITON_INTERPRET": "1"}
    program = quick_compiler(folder) if compiler == "quick" else None
    return variables if program is None else variables | {"OPWELD_CC": str(program)}


def _print_table(counts: collections.Counter[tuple[str, str]], levels: list[str]) -> None:
    outcomes = ("right", "noise", "disputed", "refused", "wrong", "internal", "crash")
    print(f"{'level':10}" + "".join(f"{outcome:>10}" for outcome in outcomes))
    for level in levels:
        print(f"{level:10}" + "".join(f"{counts[level, outcome]:10}" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())

"""One contestant of `benchmarks.paired`: a process that runs one model, a block of runs for each line it reads.

It knows nothing of the zoo, so that `PYTHONPATH` may give it the opweld of another revision.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def main() -> int:
    """Opens the model, prints `ready`, then answers each number of seconds with that many seconds of run times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runtime", help="opweld, onnxruntime or openvino")
    parser.add_argument("model", type=Path)
    parser.add_argument("feeds", type=Path, help="an npz file")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--disable", action="append", default=[], help="of opweld: a rule that stays at its baseline")
    options = parser.parse_args()
    feeds = dict(np.load(options.feeds))
    run = _open(options.runtime, options.model, feeds, options.threads, options.disable)
    run()
    print("ready", flush=True)
    for line in sys.stdin:
        print(*_block(run, float(line)), flush=True)
    return 0


def _open(
    runtime: str, model: Path, feeds: dict[str, Any], threads: int, disable: Sequence[str]
) -> Callable[[], object]:
    if runtime == "opweld":
        import opweld

        compiled = opweld.compile(str(model), threads=threads, disable=disable)
        return lambda: compiled.run(feeds)
    from opweld.cli.peers import prepare

    return prepare(runtime, model, feeds, threads)


def _block(run: Callable[[], object], seconds: float) -> list[float]:
    """Times of runs, after one that wakes threads and fills caches."""
    run()
    end = time.perf_counter() + seconds
    times: list[float] = []
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


if __name__ == "__main__":
    sys.exit(main())

"""One program, run in its own environment: `python -m benchmarks.programs.drive NAME FOLDER OUT`.

A driver has `prepare(folder)`, which opens the program and returns what to call; that answers with texts, numbers,
arrays, and lists and dicts of these. Written to OUT are the answers of the first call, and times.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

ENOUGH_S = 3.0
MOST_CALLS = 10


def main(name: str, folder: Path, out: Path) -> None:
    """Runs the driver; `again` is the least time of some more calls."""
    import onnxruntime

    driver = import_module(f"benchmarks.programs.drivers.use_{name}")
    start = time.perf_counter()
    call: Callable[[], Any] = driver.prepare(folder)
    answers = call()
    first = time.perf_counter() - start
    again: list[float] = []
    while sum(again) < ENOUGH_S and len(again) < MOST_CALLS:
        start = time.perf_counter()
        call()
        again.append(time.perf_counter() - start)
    result = {"answers": answers, "first": first, "again": min(again), "runtime": onnxruntime.get_build_info()}
    out.write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))

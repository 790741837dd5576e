"""ONNX's own tests on a GPU: `python -m benchmarks.gpu suite`. Every sixth of them in a quick run."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import Any

from benchmarks.onnx_cases import Case, cases
from benchmarks.onnx_suite import check

WORKERS = 12
EVERY = 6
"""Of the tests of a quick run."""


def main(quick: bool) -> dict[str, Any]:
    """Prints how many passed, and what did not; returns both."""
    from tests.onnx_backend.test_suite import excluded

    known = excluded()
    names = sorted(name for name in cases() if name not in known)[:: EVERY if quick else 1]
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        results = dict(zip(names, pool.map(outcome, names, chunksize=4), strict=True))
    counts = Counter("passed" if not said else said.split(":", 1)[0] for said in results.values())
    print(f"ONNX's tests on the GPU: {dict(counts)}")
    for name, said in results.items():
        if said:
            print(f"  {name}: {said[:160]}")
    return {"counts": dict(counts), "failures": {name: said for name, said in results.items() if said}}


@cache
def _cases() -> dict[str, Case]:
    return cases()


def outcome(name: str) -> str:
    """Nothing where a test passes, else the error."""
    try:
        check(_cases()[name], target="cuda")
    except Exception as error:  # noqa: BLE001 - it is the answer
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return ""

"""Random graphs through the graph optimiser, as it likes, and with any of its requests refused.

    python -m tests.random.rewriting --count 300 --seed 7
    python -m tests.random.rewriting --count 300 --half     # the same graphs in float16

Each graph is rewritten with all requests granted, with the first few, and with some drawn at random, and written; each
file must pass ONNX's checker and give in float64 what the original gives there, and in ONNX Runtime no worse than the
original does there, as far as the roundings of the original allow: what is folded is rounded to the type of its value,
and a Softmax makes more of that than a fixed tolerance foresees. Where the original is finite in its own type, so is
what was written."""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.errors import UnsupportedError
from opweld.ledger import Ledger
from opweld.rewrite.optimize import optimize_model
from opweld.rules import REWRITES
from opweld.verification.reference import float64_outputs
from tests.random.generate import case_of
from tests.random.halves import halved
from tests.random.judge import Judge
from tests.unit.rewrite.answers import computed, written

Array = NDArray[Any]

TOLERANCE = 1e-4
"""Of the largest element. What is off by more is held against what the roundings of the graph's own values do."""


@dataclass(frozen=True)
class Rewritten:
    """What came of a graph: `wrong` says what is, in words; `rules` fired."""

    seed: int
    wrong: str
    rules: frozenset[str]


def ledgers(seed: int) -> Iterator[Callable[[], Ledger]]:
    """All requests granted, the first few, some."""
    chance = random.Random(seed)
    prefix = chance.randint(0, 12)
    yield lambda: Ledger(rules=REWRITES)
    yield lambda: Ledger(rules=REWRITES, prefix=prefix)
    yield lambda: Ledger(rules=REWRITES, grants=lambda number: random.Random(f"{seed} {number}").random() < 0.5)


def rewrite(seed: int, half: bool = False) -> Rewritten:
    """Rewrites the graph of a seed in several ways, and compares."""
    case = case_of(seed)
    if half:
        case = halved(case)
        if case is None:
            return Rewritten(seed, "", frozenset())
    rules: set[str] = set()
    right: dict[int, list[Array]] = {}
    judge = Judge(case)
    for opened in ledgers(seed):
        made = optimize_model(case.model, opened)
        rules |= {decision.rule for decision in made.ledger if decision.fired}
        proto = written(made)
        for number, feeds in enumerate(case.feeds):
            try:
                right[number] = right.get(number) or float64_outputs(case.model, feeds)
                found = float64_outputs(proto, feeds)
            except UnsupportedError:
                continue
            taken = sorted({decision.rule for decision in made.ledger if decision.fired})
            for position, (before, after) in enumerate(zip(right[number], found, strict=True)):
                words = difference(before, after, 2.0**-8 if half else TOLERANCE)
                if words and judge.beyond_noise(number, position, after):
                    wrong = f"output {position} {words} at {feeds_text(feeds)} with {taken}"
                    return Rewritten(seed, wrong, frozenset(rules))
            peer = judge.peer(number)
            if isinstance(peer, str):
                continue  # ONNX Runtime does not take the original
            for position, (before, after) in enumerate(zip(peer, computed(proto, feeds), strict=True)):
                words = worse(before, after)
                if words and judge.names[position] in judge.arbitrary(number):
                    continue
                if words and judge.beyond_noise(number, position, after):
                    wrong = f"output {position} {words} in ONNX Runtime at {feeds_text(feeds)} with {taken}"
                    return Rewritten(seed, wrong, frozenset(rules))
    return Rewritten(seed, "", frozenset(rules))


def feeds_text(feeds: Mapping[str, Array]) -> str:
    """The shapes of feeds."""
    return ", ".join(f"{name} {list(array.shape)}" for name, array in feeds.items())


def worse(a: Array, b: Array) -> str:
    """How an output of ONNX Runtime after differs from the one before, but for what is not finite before."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"is {b.dtype}{list(b.shape)}, not {a.dtype}{list(a.shape)}"
    if a.dtype.kind != "f":
        return "" if np.array_equal(a, b) else f"differs in {np.count_nonzero(a != b)} of {a.size} elements"
    finite = np.isfinite(a)
    lost = finite & ~np.isfinite(b)
    if lost.any():
        return f"is no longer finite in {np.count_nonzero(lost)} of {a.size} elements"
    tolerance = 2.0**-7 if a.dtype.itemsize == 2 else 10 * TOLERANCE
    return difference(a[finite].astype(np.float64), b[finite].astype(np.float64), tolerance)


def difference(a: Array, b: Array, tolerance: float = TOLERANCE) -> str:
    """How an output after differs from the one before by more than a part of the scale; empty where it does not."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"is {b.dtype}{list(b.shape)}, not {a.dtype}{list(a.shape)}"
    if a.dtype.kind != "f":
        return "" if np.array_equal(a, b) else f"differs in {np.count_nonzero(a != b)} of {a.size} elements"
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "differs in what is not finite"
    scale = float(np.max(np.abs(a[finite]), initial=0))
    error = float(np.max(np.abs(a[finite] - b[finite]), initial=0))
    return f"is off by {error:.2g} of {scale:.2g}" if error > tolerance * scale else ""


def main() -> int:
    """Prints what is wrong as it comes, then how often each rule fired; the status is 1 when anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.random.rewriting", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--half", action="store_true", help="in float16")
    given = parser.parse_args()
    fired: Counter[str] = Counter()
    wrong = 0
    for seed in range(given.seed, given.seed + given.count):
        try:
            made = rewrite(seed, given.half)
        except Exception as error:  # noqa: BLE001 - any exception is a defect
            made = Rewritten(seed, f"{type(error).__name__}: {str(error)[:300]}", frozenset())
        fired.update(made.rules)
        if made.wrong:
            wrong += 1
            print(f"seed {seed}: {made.wrong}", flush=True)
    for rule, count in fired.most_common():
        print(f"{rule:<30} in {count} graphs")
    print(f"{given.count} graphs, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

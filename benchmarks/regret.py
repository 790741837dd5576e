"""What chosen schedules lose: the time of what was taken over the least of what was tried, by kind of kernel.

    python -m benchmarks.regret                                  all shapes of benchmarks.kernels, one thread
    python -m benchmarks.regret gemm conv --target x86-64-v3     those whose names begin so, as another machine
    python -m benchmarks.regret --rules schedule.height,schedule.vectors    only alternatives of these rules
    python -m benchmarks.regret --compile                        compiles all that would be timed, and times nothing
    python -m benchmarks.regret --json FILE                      all figures as JSON

Of each shape, every legal alternative of every decision about its schedules is compiled on its own (what is decided
after it follows from it), and timed in turns with what was taken; those of the same code once. `regret` is how much
longer what was taken needs than the fastest; `rank` is Spearman's correlation between what is predicted and what is
measured of all that was tried.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx

import opweld
from benchmarks.cost import correlation
from benchmarks.kernels import SHAPES, feeds_of, gemm, products
from opweld.accounts import account_of
from opweld.errors import OpweldError
from opweld.options import PROCESSORS, ProcessorName

LARGE = {
    "gemm 512 x 3072 x 768": lambda: gemm(512, 3072, 768),
    "gemm 512 x 768 x 3072": lambda: gemm(512, 768, 3072),
    "gemm 512 x 768 x 768": lambda: gemm(512, 768, 768),
    "gemm 128 x 768 x 768": lambda: gemm(128, 768, 768),
    "gemm 3136 x 384 x 96": lambda: gemm(3136, 384, 96),
    "gemm 784 x 768 x 192": lambda: gemm(784, 768, 192),
    "gemm 49 x 768 x 3072": lambda: gemm(49, 768, 3072),
    "gemm 128 x 2304 x 768": lambda: gemm(128, 2304, 768),
    "gemm 100 x 250 x 250": lambda: gemm(100, 250, 250),
    "products 12 of 512 x 512 x 64": lambda: products(12, 512, 512, 64),
}
"""Products of transformers and of what ConvNeXt is made of, beside the shapes of `benchmarks.kernels`."""

FINALISTS = 4
"""How many of the fastest alternatives are timed again beside what is taken,"""
OPENINGS = 3
"""and how often they are opened anew for it."""

NOT_TRIED = ("schedule.phase", "schedule.algorithm")
"""Of one kernel there is nothing to run beside; another algorithm is another kernel."""


@dataclass(frozen=True)
class Tried:
    """One way to compute a shape: the decision that differs from what was taken (none of that itself), and seconds on
    one thread, predicted and measured."""

    shape: str
    change: str
    predicted: float
    measured: float = 0.0


@dataclass(frozen=True)
class Found:
    """A shape: what was taken first, then what was tried."""

    shape: str
    tried: tuple[Tried, ...]

    @property
    def best(self) -> Tried:
        """The fastest."""
        return min(self.tried, key=lambda tried: tried.measured)

    @property
    def regret(self) -> float:
        """How much longer what was taken takes than the fastest, as a part of the latter."""
        return self.tried[0].measured / self.best.measured - 1

    @property
    def rank(self) -> float:
        """Spearman's correlation of prediction and measurement."""
        return correlation([t.predicted for t in self.tried], [t.measured for t in self.tried])


def alternatives(account: Any, rules: Sequence[str]) -> list[tuple[str, Mapping[str, str]]]:
    """(words, pins) of each legal alternative of each decision about schedules."""
    found: list[tuple[str, Mapping[str, str]]] = []
    for decision in account.ledger:
        wanted = decision.rule in rules if rules else decision.rule.startswith("schedule.")
        if not wanted or decision.rule in NOT_TRIED:
            continue
        for name in decision.legal:
            if name != decision.taken:
                found.append((f"{decision.rule} {decision.taken} -> {name}", {decision.id: name}))
    return found


def code_of(artifact: Path) -> bytes:
    """A digest of the code of an artifact's kernels, and of its weights as they lie there."""
    digest = hashlib.sha256()
    for file in (*sorted(artifact.glob("source/kernels_*.c")), *artifact.glob("weights.bin")):
        digest.update(file.read_bytes())
    return digest.digest()


def candidates(shape: str, folder: Path, target: ProcessorName, rules: Sequence[str]) -> list[tuple[str, float, Any]]:
    """(change, predicted seconds, compiled model) of what is taken, and of what can be, each code once: the faster of
    two that are the same is so by luck."""
    model = folder / "kernel.onnx"
    onnx.save((SHAPES | LARGE)[shape](), model)
    taken = opweld.compile(str(model), target=target, threads=1)
    account = account_of(taken.path)
    made = [("taken", sum(kernel.seconds for kernel in account.kernels), taken)]
    codes = {code_of(taken.path)}
    for change, pins in alternatives(account, rules):
        try:
            other = opweld.compile(str(model), target=target, threads=1, pins=pins)
        except OpweldError as error:
            print(f"{shape}: {change}: {error}")
            continue
        if (code := code_of(other.path)) in codes:
            continue
        codes.add(code)
        made.append((change, sum(kernel.seconds for kernel in account_of(other.path).kernels), other))
    return made


def timed(shape: str, made: Sequence[tuple[str, float, Any]], seconds: float) -> Found:
    """What is taken and tried, with the seconds that each takes.

    The least of fifty times is below the truth by luck, and one model lies better in memory than its equal. So all run
    once, and then what is taken and the fastest others again, opened anew several times: of those, the median."""
    least = _least([model for _, _, model in made], seconds)
    fastest = sorted(range(1, len(made)), key=least.__getitem__)[:FINALISTS]
    final = [0, *fastest]
    openings: list[list[float]] = []
    for _ in range(OPENINGS):
        random.shuffle(final)  # no one is always the first of a round
        again = _least([opweld.load(made[number][2].path, threads=1) for number in final], seconds / OPENINGS)
        openings.append([again[final.index(number)] for number in (0, *fastest)])
    measured = dict(zip((0, *fastest), map(statistics.median, zip(*openings, strict=True)), strict=True))
    slowest = max(measured.values())
    return Found(
        shape,
        tuple(
            # What was no finalist was slower than they: it stays so.
            Tried(shape, change, predicted, measured.get(number, max(least[number], slowest)))
            for number, (change, predicted, _) in enumerate(made)
        ),
    )


def _least(models: Sequence[Any], seconds: float) -> list[float]:
    """The least time of the kernels of each, all run in turns for so long."""
    feeds = feeds_of(models[0])
    least = [float("inf")] * len(models)
    for model in models:
        model.session.run(feeds)
    end = time.monotonic() + seconds
    rounds = 0
    while rounds < 5 or time.monotonic() < end:
        for number, model in enumerate(models):
            for _ in range(2):
                least[number] = min(least[number], float(sum(model.session.profile(feeds).nanoseconds)) * 1e-9)
        rounds += 1
    return least


def line(found: Found) -> str:
    """A row of the table."""
    taken, best = found.tried[0], found.best
    return (
        f"{found.shape:<32} {len(found.tried):5} {taken.measured * 1e6:10.1f} {taken.predicted * 1e6:10.1f} "
        f"{found.regret:7.1%} {found.rank:6.2f}  {best.change}"
    )


def by_kind(all_found: Sequence[Found]) -> str:
    """Median and largest regret of each kind."""
    lines: list[str] = []
    kinds = dict.fromkeys(found.shape.split()[0] for found in all_found)
    for kind in (*kinds, "all"):
        own = sorted(found.regret for found in all_found if kind in ("all", found.shape.split()[0]))
        at = own[min(len(own) - 1, round(0.95 * (len(own) - 1)))]
        lines.append(f"{kind:<16} {len(own):3} median {statistics.median(own):6.1%}  95th percentile {at:6.1%}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a row for each shape as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="what the shapes begin with; left out: all")
    parser.add_argument("--target", choices=PROCESSORS, default="native")
    parser.add_argument("--rules", default="", help="separated by commas; left out: all about schedules")
    parser.add_argument("--seconds", type=float, default=2.0, help="for how long the ways of a shape are run")
    parser.add_argument("--compile", action="store_true", help="time nothing: afterwards all is in the cache")
    parser.add_argument("--all", action="store_true", help="print all that was tried")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    names = [name for name in SHAPES | LARGE if not options.names or name.startswith(tuple(options.names))]
    rules = [rule for rule in options.rules.split(",") if rule]
    results: list[Found] = []
    print(f"{'shape':<32} {'tried':>5} {'us':>10} {'predicted':>10} {'regret':>7} {'rank':>6}  fastest")
    for name in names:
        with tempfile.TemporaryDirectory(prefix="opweld-regret-") as folder:
            made = candidates(name, Path(folder), options.target, rules)
            if options.compile:
                continue
            results.append(timed(name, made, options.seconds))
        print(line(results[-1]), flush=True)
        if options.all:
            for tried in sorted(results[-1].tried, key=lambda tried: tried.measured):
                print(f"    {tried.measured * 1e6:10.1f} {tried.predicted * 1e6:10.1f}  {tried.change}")
    if results:
        print(by_kind(results))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(found) for found in results], indent=1) + "\n")


if __name__ == "__main__":
    main()

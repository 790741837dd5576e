"""torch.compile(backend="opweld") beside Inductor and eager mode: the first answer of a process, and every later one.

    python -m benchmarks.pytorch                              all modules, two threads
    python -m benchmarks.pytorch minilm gpt2-decode --threads 1
    python -m benchmarks.pytorch --warm                       the first answers of a second process too, and of a
                                                              third one that loads what `aot_compile` saved

Each contestant has a process and a folder of caches of its own, empty at first. `first` are seconds from the module to
its first answer, PyTorch's tracing included, PyTorch's import not. Ratios are of medians, by blocks that alternate, as
`benchmarks.paired` has them. The largest difference from eager mode is of the largest element.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks import modules
from benchmarks.paired import REPOSITORY, Contestant, contest

THIS = "opweld"


@dataclass(frozen=True)
class Row:
    """A module: by runtime, milliseconds of a run (median, least), and seconds to the first answer, in a process with
    empty caches and in a second one; and to that of what `aot_compile` saved, in a process that has PyTorch's compiler
    imported."""

    module: str
    threads: int
    milliseconds: dict[str, float]
    least: dict[str, float]
    first: dict[str, float]
    second_process: dict[str, float]
    loaded: dict[str, float]

    @property
    def ratio(self) -> float:
        """The better of Inductor's ways by opweld: above 1, opweld is faster."""
        return min(t for name, t in self.milliseconds.items() if name in modules.INDUCTOR) / self.milliseconds[THIS]

    @property
    def first_ratio(self) -> float:
        """opweld's first answer by the soonest of Inductor."""
        return self.first[THIS] / min(t for name, t in self.first.items() if name in modules.INDUCTOR)


def compare(module: str, runtimes: Sequence[str], threads: int, rounds: int, warm: bool) -> Row:
    """Times a module."""
    with tempfile.TemporaryDirectory(prefix="opweld-pytorch-") as folder:
        feeds = Path(folder) / "feeds.npz"
        np.savez(feeds, allow_pickle=False, **{name: value.numpy() for name, value in modules.inputs(module).items()})

        def started(runtime: str) -> Contestant:
            caches = {
                "OPWELD_CACHE": str(Path(folder) / runtime / "opweld"),
                "TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / runtime / "inductor"),
                modules.SAVED_FILE: str(Path(folder) / f"{runtime}.function"),
            }
            return Contestant(runtime, REPOSITORY, f"torch:{runtime}", Path(module), feeds, threads, variables=caches)

        second: dict[str, float] = {}
        loaded: dict[str, float] = {}
        with contextlib.ExitStack() as stack:
            found = contest(map(started, runtimes), rounds, stack, f"{module}: left out: ")
        if warm:
            for contestant in found:
                with contextlib.closing(started(contestant.name)) as again:
                    again.wait()
                    second[contestant.name] = _first(again)
            for runtime in modules.SAVED:
                for _ in ("saved", "loaded"):  # the second process finds the file of the first
                    with contextlib.closing(started(runtime)) as again:
                        again.wait()
                        loaded[runtime.removesuffix("-saved")] = _first(again)
    return Row(
        module,
        threads,
        {c.name: c.median * 1e3 for c in found},
        {c.name: c.least * 1e3 for c in found},
        {c.name: _first(c) for c in found},
        second,
        loaded,
    )


def _first(contestant: Contestant) -> float:
    return contestant.opened["open"] + contestant.opened["first"]


def _line(row: Row) -> str:
    mine = row.milliseconds[THIS]
    others = "   ".join(
        f"{name} {row.milliseconds[name] / mine:.2f} (least {row.least[name] / row.least[THIS]:.2f})"
        for name in row.milliseconds if name != THIS
    )  # fmt: skip
    firsts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in row.first.items())
    again = ", ".join(f"{name} {seconds:.2f}" for name, seconds in row.second_process.items())
    loaded = ", ".join(f"{name} {seconds:.2f}" for name, seconds in row.loaded.items())
    text = f"{row.module:22} {mine:9.3f} ms   {others}   first: {firsts}"
    return f"{text}   second process: {again}   saved and loaded: {loaded}" if again else text


def main() -> int:
    """Prints a line for each module as soon as it is known, and the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help=f"of {', '.join(modules.CATALOGUE)}; left out: all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9, help="blocks of a contestant")
    parser.add_argument(
        "--vs", default="inductor,inductor-cpp,eager", metavar="NAMES", help=", ".join(modules.RUNTIMES[1:])
    )
    parser.add_argument(
        "--warm", action="store_true", help="the first answer of a second process too, and of what was saved"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    unknown = set(options.modules) - set(modules.CATALOGUE)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    rows: list[Row] = []
    chosen = options.modules or list(modules.CATALOGUE)
    runtimes = [THIS, *(name for name in options.vs.split(",") if name)]
    for module in chosen:
        try:
            rows.append(compare(module, runtimes, options.threads, options.rounds, options.warm))
        except (RuntimeError, ImportError) as error:
            print(f"{module:22} {error}", flush=True)
            continue
        print(_line(rows[-1]), flush=True)
    beside = [row for row in rows if modules.INDUCTOR.keys() & row.milliseconds.keys()]
    if beside:
        ratio = math.exp(statistics.fmean(math.log(row.ratio) for row in beside))
        least = min(beside, key=lambda row: row.ratio)
        first = max(row.first_ratio for row in beside)
        print(
            f"{options.threads} threads, Inductor by opweld: {ratio:.2f} in the geometric mean of {len(beside)}, least"
            f" {least.ratio:.2f} ({least.module}); first answer at most {first:.0%} of Inductor's time"
        )
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0 if len(rows) == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())

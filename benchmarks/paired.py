"""Two revisions of opweld, and other runtimes, on models of the zoo: alternating blocks of runs, a process for each.

    python -m benchmarks.paired HEAD~1                         the last commit (and what is not committed) and this tree
    python -m benchmarks.paired 3880eff minilm --threads 1     one model, one thread
    python -m benchmarks.paired --vs onnxruntime,openvino      this tree and its peers, no other revision
    python -m benchmarks.paired --vs onnxruntime --isa avx2    all of them as if the processor had no AVX-512
    python -m benchmarks.paired HEAD~1 --threads 1 --clock cpu where the machine does other work beside

Every contestant keeps its process from the first block to the last; between blocks all rest, so that no one's threads
spin while another runs. `ms` are medians over all blocks. A ratio is the other's median by that of this tree: above 1,
this tree is faster; its spread, the quartiles of the ratios of neighbouring blocks, tells what noise there was. Where
the machine has other work, the ratio of least times says more, and, of one thread, that of the time it had a core.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.as_avx2 import avx2_peers
from benchmarks.contestant import CLOCKS
from benchmarks.zoo import fetch, inputs
from benchmarks.zoo.catalogue import MODELS

REPOSITORY = Path(__file__).parents[1]
BLOCK_S, REST_S = 0.25, 0.1
ISAS = {"native": "", "avx2": "x86-64-v3"}
"""What limits the instructions of opweld. Peers are limited by `benchmarks.as_avx2`."""


@dataclass(frozen=True)
class Ratio:
    """Another contestant's time by this tree's, with the quartiles of blocks that follow one another, and the ratio of
    the least times of a run."""

    contestant: str
    milliseconds: float
    least: float
    ratio: float
    low: float
    high: float
    of_least: float


@dataclass(frozen=True)
class Row:
    """One model: this tree's median and least time, and the others'."""

    model: str
    threads: int
    milliseconds: float
    least: float
    others: tuple[Ratio, ...]


class Contestant:
    """A process that runs one model in one runtime, see `benchmarks.contestant`."""

    def __init__(
        self,
        name: str,
        source: Path,
        runtime: str,
        model: Path,
        feeds: Path,
        threads: int,
        disable: Sequence[str] = (),
        clients: int = 1,
        limit: str = "",
        variables: Mapping[str, str] | None = None,
        clock: str = "wall",
    ) -> None:
        self.name = name
        self.runtime = runtime
        self.blocks: list[list[float]] = []
        self.opened: dict[str, float] = {}
        """Seconds to `open` and of the `first` run, `peak` bytes of memory; when it is open."""
        own = dict(variables or {})
        paths = (
            str(source / "src"),
            str(REPOSITORY),
            *filter(None, (own.get("PYTHONPATH"), os.environ.get("PYTHONPATH"))),
        )
        environment = os.environ | own | {"PYTHONPATH": os.pathsep.join(paths)}
        # By its path: as a module it would put this tree before the other revision's.
        program = [sys.executable, str(REPOSITORY / "benchmarks" / "contestant.py"), runtime, str(model), str(feeds)]
        program += [f"--threads={threads}", f"--clients={clients}", f"--limit={limit}", f"--clock={clock}"]
        self._process = subprocess.Popen(
            [*program, *(f"--disable={rule}" for rule in disable)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> None:
        """Returns when the model is open. Raises RuntimeError where it cannot be."""
        self.opened = json.loads(self._read("cannot open the model"))

    def block(self, seconds: float) -> None:
        """Runs for so long and keeps the times."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        self.blocks.append([float(word) for word in self._read("stopped while it ran").split()])

    def _read(self, problem: str) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} {problem}; what it said is above")
        return line

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()

    def ratio_to(self, other: Contestant) -> tuple[float, float, float]:
        """(low, ratio, high): this one's median by the other's, between the quartiles of blocks that follow one
        another."""
        pairs = [statistics.median(a) / statistics.median(b) for a, b in zip(self.blocks, other.blocks, strict=True)]
        low, _, high = statistics.quantiles(pairs, n=4) if len(pairs) > 1 else (pairs[0],) * 3
        return low, self.median / other.median, high

    @property
    def median(self) -> float:
        """Seconds of a run, over all blocks."""
        return statistics.median(time for block in self.blocks for time in block)

    @property
    def least(self) -> float:
        """Seconds of the fastest run."""
        return min(time for block in self.blocks for time in block)


def contest(
    contestants: Iterable[Contestant], rounds: int, stack: contextlib.ExitStack, heading: str
) -> list[Contestant]:
    """Opens contestants one after the other, and lets those that could be opened run blocks in turn.

    Their processes end with the stack. Who cannot open the model is left out, which is printed after the heading; only
    for opweld it is an error: RuntimeError."""
    opened: list[Contestant] = []
    for contestant in contestants:
        stack.callback(contestant.close)
        try:
            contestant.wait()
        except RuntimeError as error:
            if contestant.runtime == "opweld":
                raise
            print(f"{heading}{error}", flush=True)
            continue
        opened.append(contestant)
    for _ in range(rounds):
        for contestant in opened:
            time.sleep(REST_S)
            contestant.block(BLOCK_S)
    return opened


@contextlib.contextmanager
def revision(name: str) -> Generator[Path]:
    """A folder with the sources of a revision, while it is needed."""
    with tempfile.TemporaryDirectory(prefix="opweld-paired-") as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(REPOSITORY), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), name], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def compare(
    model: str,
    sources: dict[str, Path],
    peers: Sequence[str],
    threads: int,
    rounds: int,
    limit: str = "",
    variables: Mapping[str, str] | None = None,
    clock: str = "wall",
) -> Row:
    """Times one model of the zoo. `sources`: names and folders of opweld, this tree last; `limit`: a target
    whose instructions are all that it may use; `variables`: of the environment of the peers; `clock`: of
    `benchmarks.contestant.CLOCKS`."""
    path, feeds = fetch.path(model), inputs.example(model)
    with tempfile.TemporaryDirectory(prefix="opweld-paired-") as folder, contextlib.ExitStack() as stack:
        file = Path(folder) / "feeds.npz"
        np.savez(file, allow_pickle=False, **feeds)
        started = [
            Contestant(name, source, "opweld", path, file, threads, limit=limit, clock=clock)
            for name, source in sources.items()
        ]
        started += [
            Contestant(peer, REPOSITORY, peer, path, file, threads, variables=variables, clock=clock) for peer in peers
        ]
        contestants = contest(started, rounds, stack, f"{model}: left out: ")
    mine = next(c for c in contestants if c.name == "this")
    others = tuple(_ratio(c, mine) for c in contestants if c is not mine)
    return Row(model, threads, mine.median * 1e3, mine.least * 1e3, others)


def _ratio(other: Contestant, mine: Contestant) -> Ratio:
    low, ratio, high = other.ratio_to(mine)
    of_least = other.least / mine.least
    return Ratio(other.name, other.median * 1e3, other.least * 1e3, ratio, low, high, of_least)


def main() -> int:
    """Prints a line for each model as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?", help="any name git knows; left out: no other revision")
    parser.add_argument("models", nargs="*", help="of the zoo; left out: all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9, help="blocks of a contestant")
    parser.add_argument("--vs", default="", metavar="NAMES", help="onnxruntime, openvino")
    parser.add_argument("--isa", choices=ISAS, default="native", help="the instructions that all may use")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu, of one thread: time that it had a core")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.clock == "cpu" and options.threads != 1:
        parser.error("--clock cpu counts what threads wait for each other too: --threads 1")
    models = list(options.models)
    old = options.revision
    if old in MODELS:
        old, models = None, [old, *models]
    peers = [name for name in options.vs.split(",") if name]
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        sources = {} if old is None else {old: stack.enter_context(revision(old))}
        variables = stack.enter_context(avx2_peers(peers)) if options.isa == "avx2" and peers else None
        for model in models or MODELS:
            try:
                trees = {**sources, "this": REPOSITORY}
                limit, clock = ISAS[options.isa], options.clock
                row = compare(model, trees, peers, options.threads, options.rounds, limit, variables, clock)
            except RuntimeError as error:
                print(f"{model:<22} {error}", flush=True)
                continue
            rows.append(row)
            others = "   ".join(
                f"{o.contestant} {o.milliseconds:.3f} ms {o.ratio:.2f} ({o.low:.2f} to {o.high:.2f};"
                f" least {o.of_least:.2f})"
                for o in row.others
            )
            print(f"{model:<22} {row.milliseconds:9.3f} ms   {others}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0 if len(rows) == len(models or MODELS) else 1


if __name__ == "__main__":
    sys.exit(main())

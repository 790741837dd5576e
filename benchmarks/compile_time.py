"""How long each stage before the C compiler takes as models grow, and how much memory: the curve should be flat.

    python -m benchmarks.compile_time                                  500 to 20,000 nodes, all shapes
    python -m benchmarks.compile_time --shapes mlp --sizes 500,1000    some of them
    python -m benchmarks.compile_time --until simplify                 the first stages only
    python -m benchmarks.compile_time --hard                           small models that ask for much instead
    python -m benchmarks.compile_time --json FILE                      the figures as JSON too
    python -m benchmarks.compile_time --profile FILE                   cProfile's account of one shape and size

Every model is compiled in a process of its own. Times are processor time, in ms a node; memory is the peak of the
process, less what it took before the first stage, in KB a node. A stage that runs into the limit is shown as such.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.hard_models import HARD
from benchmarks.sized_models import SHAPES

if TYPE_CHECKING:
    from opweld.stages import Stage

SIZES = (500, 1000, 2000, 5000, 10_000, 20_000)
SECONDS = 600.0
"""A process that takes longer is ended; what it measured until then is shown."""

MS_A_NODE = 4.0
"""The most that the sum of all stages may take."""


@dataclass
class Measured:
    """The stages of one model: processor seconds, those of all variants together, and peak memory in KB at the end of
    each, in order."""

    shape: str
    nodes: int
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    kilobytes: dict[str, int] = field(default_factory=dict[str, int])
    started_with: int = 0
    failed: str = ""

    @property
    def ms_a_node(self) -> float:
        """The time of all stages."""
        return sum(self.seconds.values()) * 1000 / self.nodes

    @property
    def kilobytes_a_node(self) -> float:
        """What the process grew by."""
        return (max(self.kilobytes.values(), default=self.started_with) - self.started_with) / self.nodes


class EnoughError(Exception):
    """The last stage that was asked for has run."""


def compiled(model: Any, level: str, stage: Stage) -> Mapping[str, str]:
    """The C text of a model, every stage of `opweld.pipeline` and of the C backend up to it run by `stage`."""
    from opweld.backends.c import module_of
    from opweld.build.weights import WeightsFile
    from opweld.codegen.c.module import render_module
    from opweld.ledger import Ledger
    from opweld.options import Options
    from opweld.pipeline import generate, read
    from opweld.target import Target

    options, target = Options(level=level), Target.native()
    with WeightsFile(Path(os.devnull)) as weights:
        made = generate(read(model, options, Ledger(level=level), stage), options, target, weights, stage)
    return stage("render", render_module, module_of(made.model, target), target)


def measure(shape: str, nodes: int, level: str, until: str, tell: Callable[[dict[str, Any]], None]) -> None:
    """Compiles one model in this process: tells a record before the first stage, and one after each."""
    model = HARD[shape][0](nodes) if shape in HARD else SHAPES[shape](nodes)
    __import__("opweld.pipeline")

    held = 0

    def peak() -> int:
        nonlocal held
        held = max(held, _peak())  # the system counts in batches: a later reading may be some pages less
        return held

    def timed(name: str, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        made = run(*args, **kwargs)
        tell({"stage": name, "seconds": time.process_time() - start, "kilobytes": peak()})
        if name == until:
            raise EnoughError
        return made

    tell({"nodes": len(model.graph.node), "kilobytes": peak()})
    with contextlib.suppress(EnoughError):
        compiled(model, level, timed)


def _peak() -> int:
    """KiB that this program has held at most. What `getrusage` says begins with what its parent held."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0])


def measured(shape: str, nodes: int, level: str, until: str, limit: float) -> Measured:
    """Compiles one model in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.compile_time", "--one", shape, str(nodes)]
    command += ["--level", level, "--until", until]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        output, failed = done.stdout, (done.stderr.strip().splitlines() or ["failed"])[-1] if done.returncode else ""
    except subprocess.TimeoutExpired as error:
        output, failed = (error.stdout or b"").decode(), f"more than {limit:.0f} s"
    result = Measured(shape, nodes, failed=failed)
    for line in output.splitlines():
        record = json.loads(line)
        if "nodes" in record:
            result.nodes, result.started_with = record["nodes"], record["kilobytes"]
        else:
            before = result.seconds.get(record["stage"], 0.0)
            result.seconds[record["stage"]] = before + record["seconds"]
            result.kilobytes[record["stage"]] = record["kilobytes"]
    return result


def table(results: Sequence[Measured]) -> str:
    """ms a node: one line a model, one column a stage."""
    names = list(dict.fromkeys(name for result in results for name in result.seconds))
    header = (
        f"{'model':12} {'nodes':>6} " + " ".join(f"{name:>8}" for name in names) + f" {'ms/node':>8} {'KB/node':>8}"
    )
    lines = [header]
    for result in results:
        cells = [
            f"{result.seconds[name] * 1000 / result.nodes:8.3f}" if name in result.seconds else " " * 8
            for name in names
        ]
        end = f" {result.ms_a_node:8.3f} {result.kilobytes_a_node:8.1f}"
        mark = f"  {result.failed}" if result.failed else "  too slow" if result.ms_a_node > MS_A_NODE else ""
        lines.append(f"{result.shape:12} {result.nodes:6} " + " ".join(cells) + end + mark)
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="nodes, separated by commas")
    parser.add_argument("--shapes", default=",".join(SHAPES), help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--hard", action="store_true", help="the models of benchmarks.hard_models: seconds and MB")
    parser.add_argument("--level", default="all", help="none, basic, extended or all")
    parser.add_argument("--until", default="render", help="the last stage to run")
    parser.add_argument("--limit", type=float, default=SECONDS, help="seconds a model may take")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="profiles the first shape and size; see pstats")
    parser.add_argument("--one", nargs=2, metavar=("SHAPE", "NODES"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        shape, nodes = options.one
        measure(shape, int(nodes), options.level, options.until, lambda record: print(json.dumps(record), flush=True))
        return
    if options.hard:
        for name, (_, count) in HARD.items():
            found = measured(name, count, options.level, options.until, options.limit)
            peak = max((found.started_with, *found.kilobytes.values())) / 1024
            print(f"{name:16} {sum(found.seconds.values()):6.2f} s {peak:6.0f} MB  {found.failed or 'compiles'}")
        return
    shapes, sizes = options.shapes.split(","), [int(size) for size in options.sizes.split(",")]
    if options.profile:
        with cProfile.Profile() as profile:
            measure(shapes[0], sizes[0], options.level, options.until, lambda record: None)
        profile.dump_stats(options.profile)
        return
    results: list[Measured] = []
    for shape in shapes:
        for size in sizes:
            results.append(measured(shape, size, options.level, options.until, options.limit))
            print(f"{shape} {size}: {results[-1].ms_a_node:.3f} ms/node {results[-1].failed}", file=sys.stderr)
    print(table(results))
    if options.json:
        options.json.write_text(json.dumps([_record(result) for result in results], indent=1) + "\n")


def _record(result: Measured) -> Mapping[str, Any]:
    return {**asdict(result), "ms_a_node": result.ms_a_node, "kilobytes_a_node": result.kilobytes_a_node}


if __name__ == "__main__":
    main()

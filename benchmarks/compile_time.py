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
import cProfile
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.hard_models import HARD
from benchmarks.sized_models import SHAPES

SIZES = (500, 1000, 2000, 5000, 10_000, 20_000)
SECONDS = 600.0
"""A process that takes longer is ended; what it measured until then is shown."""

MS_A_NODE = 4.0
"""The most that the sum of all stages may take."""


@dataclass
class Measured:
    """The stages of one model: processor seconds and peak memory in KB at the end of each, in order."""

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


def stages(model: Any, level: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """The stages of `opweld.pipeline` up to the C text, each a name and a call; to be called in order.

    This is the only place here that knows them."""
    from opweld.codegen.c.module import render_module
    from opweld.frontend import explore, onnx
    from opweld.fuse.blocks import join_blocks
    from opweld.fuse.outputs import own_outputs
    from opweld.fuse.partition import partition
    from opweld.ledger import Ledger
    from opweld.lower import to_tensors
    from opweld.place.layout import place
    from opweld.place.pack import pack
    from opweld.place.reuse import reuse
    from opweld.schedule.expected import expected_sizes
    from opweld.target import Target
    from opweld.tensor.label import labels
    from opweld.tensor.simplify import simplify_program
    from opweld.tile.assemble import assemble
    from opweld.tile.kernels import realise, schedule
    from opweld.tile.module import Module

    target, ledger = Target.native(), Ledger(level=level)
    made: dict[str, Any] = {}
    weights = 0

    def keep(key: str, call: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            made[key] = call()
            return made[key]

        return run

    def write(name: str, image: Callable[[], Any]) -> int:
        nonlocal weights
        weights += image().nbytes
        return weights

    def module() -> Module:
        names = tuple(value.name for value in made["program"].inputs)
        return Module.straight(names, made["variant"].names, (made["variant"],), weights, target.features)

    yield "load", keep("graph", lambda: onnx.load(model))
    yield "explore", keep("found", lambda: explore.segments(made["graph"])[0][0])
    yield "lower", keep("program", lambda: to_tensors(made["found"]))
    yield "simplify", keep("program", lambda: simplify_program(made["program"]))
    yield "outputs", keep("program", lambda: own_outputs(made["program"]))
    yield "names", lambda: ledger.variant("main", labels(made["program"]))
    yield "expect", keep("expected", lambda: expected_sizes(made["program"]))
    yield "fuse", keep("regions", lambda: partition(made["program"], ledger))
    yield "blocks", keep("regions", lambda: join_blocks(made["regions"], made["expected"], target, ledger))
    yield "place", keep("placed", lambda: place(made["regions"], made["expected"], target, ledger))
    yield "pack", keep("placed", lambda: pack(made["placed"], target, ledger))
    yield "reuse", keep("placed", lambda: reuse(made["placed"], ledger))
    yield "schedule", keep("plans", lambda: schedule(made["placed"], made["expected"], target, ledger))
    yield (
        "realise",
        keep("scheduled", lambda: realise(made["placed"], made["plans"], made["expected"], target, ledger)[1]),
    )
    yield (
        "assemble",
        keep(
            "variant",
            lambda: assemble(
                "main",
                made["program"],
                made["placed"],
                made["scheduled"],
                write,
                made["expected"],
                ledger,
                [value.name for value in made["program"].inputs],
            ),
        ),
    )
    yield "render", keep("sources", lambda: render_module(module(), target))


def measure(shape: str, nodes: int, level: str, until: str) -> Iterator[dict[str, Any]]:
    """Compiles one model in this process: a record before the first stage, and one after each."""
    model = HARD[shape][0](nodes) if shape in HARD else SHAPES[shape](nodes)
    for module in ("opweld.pipeline", "opweld.codegen.c.module"):
        __import__(module)
    yield {"nodes": len(model.graph.node), "kilobytes": _peak()}
    for name, run in stages(model, level):
        start = time.process_time()
        run()
        yield {"stage": name, "seconds": time.process_time() - start, "kilobytes": _peak()}
        if name == until:
            break


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


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
            result.seconds[record["stage"]] = record["seconds"]
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
        for record in measure(options.one[0], int(options.one[1]), options.level, options.until):
            print(json.dumps(record), flush=True)
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
            list(measure(shapes[0], sizes[0], options.level, options.until))
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

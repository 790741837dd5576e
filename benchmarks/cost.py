"""Predicted against measured seconds of every kernel of the zoo: how far the cost model can be trusted, and where not.

    python -m benchmarks.cost                              all models that are quick to compile
    python -m benchmarks.cost resnet50 minilm              some
    python -m benchmarks.cost --threads 2 --runs 50        kernels on two threads
    python -m benchmarks.cost --worst 30 --json FILE       more of the worst; all figures as JSON
    python -m benchmarks.cost --replay FILE                predicts anew what FILE measured: after a change of the model

A kernel's time is the least of its wall times in `Session.profile`, by default on one thread, so that the clock is its
own: other programs only ever add to it. What a launch costs is in neither. `rank` is Spearman's correlation with the
prediction, `work` that with what the runtime was told. `ratio` is the total of the predictions over that of the
measurements, `error` the median factor by which a prediction is off after the ratio (the machine's clock) is taken out.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.zoo import fetch, inputs
from benchmarks.zoo.catalogue import MODELS

DEFAULT = (
    "magika", "silero-vad", "silero-vad-sequence", "minilm", "mobilenetv2", "resnet50", "convnext-tiny", "bert-base",
    "ppocrv4-det", "ppocrv4-rec", "ppocrv4-cls", "ddddocr", "layout-cdla",
)  # fmt: skip
"""Models of every kind; the others are variations of them, or take long."""


@dataclass(frozen=True)
class Kernel:
    """One kernel of one model, times in seconds. `measured`: the least. `work`: what the runtime was told."""

    model: str
    name: str
    origin: str
    schedule: str
    flops: int
    bytes: int
    measured: float
    work: float
    predicted: float = 0.0
    causes: Mapping[str, float] | None = None

    @property
    def error(self) -> float:
        """The logarithm of predicted / measured."""
        return math.log(self.predicted / self.measured)

    @property
    def dominant(self) -> str:
        """The cause that most of the prediction is made of."""
        causes = self.causes or {}
        return max(causes, key=lambda cause: causes[cause], default="")


def measure(model: str, threads: int, runs: int) -> list[tuple[str, str, int, int, float, float]]:
    """(kernel, origin, flops, bytes, measured, work) of each step, in order; times in seconds."""
    from opweld.cached import compile_model
    from opweld.options import Options
    from opweld.runtime.session import Session

    session = Session(compile_model(fetch.path(model), Options.of()), threads=threads)
    feeds: Any = inputs.example(model)
    for _ in range(3):
        session.run(feeds)
    profiles = [session.profile(feeds) for _ in range(runs)]
    walls = np.array([profile.nanoseconds for profile in profiles]).min(axis=0)
    steps = profiles[0].plan.steps
    return [
        (step.name, step.origin, step.flops, step.bytes, float(wall) * 1e-9, step.work * 1e-9)
        for step, wall in zip(steps, walls, strict=True)
    ]


def predictions(model: str) -> list[tuple[str, str, Mapping[str, float], float]]:
    """(kernel, schedule, seconds by cause, seconds) of each kernel, at the sizes of the model's first example."""
    from opweld.backends.c import realise_program
    from opweld.frontend import explore, onnx
    from opweld.frontend.graph import graph_of
    from opweld.ledger import Ledger
    from opweld.lower import to_tensors
    from opweld.schedule.expected import Expected, expected_sizes
    from opweld.stages import plain
    from opweld.target import Target
    from opweld.tensor.interpret import bind_symbols
    from opweld.tensor.label import labels
    from opweld.tensor.simplify import simplify_program
    from opweld.tile.predict import predict
    from opweld.tile.traffic import weights_of

    target, feeds = Target.native(), inputs.example(model)
    variant = explore.variants(graph_of(onnx.load(fetch.path(model))))[0]
    program, ledger = simplify_program(to_tensors(variant)), Ledger()
    ledger.variant(program.name, labels(program))
    made = realise_program(program, target, expected_sizes(program), ledger, plain)
    sizes: Any = bind_symbols(made.program, feeds)
    weights = weights_of(made.placed)
    schedules = [str(plan.schedule) for plan in made.plans for _ in plan.kernels]
    found: list[tuple[str, str, Mapping[str, float], float]] = []
    for item, schedule in zip(made.kernels, schedules, strict=True):
        cost = predict(item.kernel, target, Expected(sizes), weights).cost
        found.append((item.kernel.name, schedule, asdict(cost), cost.running))
    return found


def joined(model: str, measured: Sequence[Sequence[Any]]) -> list[Kernel]:
    """The kernels of a model, measured and predicted; steps without any work are left out."""
    by_name = {found[0]: found for found in predictions(model)}
    names = [step[0] for step in measured]
    if sorted(names) != sorted(by_name):
        raise SystemExit(f"{model}: the kernels measured are not those of the compiler as it is; measure again")
    # Phases run launches in another order than kernels are made.
    predicted = [by_name[name] for name in names]
    return [
        Kernel(model, name, origin, schedule, flops, size, wall, work, seconds, causes)
        for (name, origin, flops, size, wall, work), (_, schedule, causes, seconds) in zip(
            measured, predicted, strict=True
        )
        if wall > 0 and seconds > 0
    ]


def ranks(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The rank of each value; of equals the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[inverse]


def correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's rank correlation; NaN for fewer than three pairs, and where all of one side are equal."""
    if len(x) < 3 or min(len(set(x)), len(set(y))) == 1:
        return math.nan
    return float(np.corrcoef(ranks(np.array(x)), ranks(np.array(y)))[0, 1])


def summary(name: str, kernels: Sequence[Kernel]) -> str:
    """One line of the table."""
    measured = [k.measured for k in kernels]
    ratio = sum(k.predicted for k in kernels) / sum(measured)
    error = math.exp(float(np.median([abs(k.error - math.log(ratio)) for k in kernels])))
    rank = correlation([k.predicted for k in kernels], measured)
    told = correlation([k.work for k in kernels], measured)
    milliseconds = sum(measured) * 1e3
    return f"{name:22} {len(kernels):7} {milliseconds:10.3f} {rank:6.3f} {told:6.3f} {ratio:7.2f} {error:7.2f}"


def worst(kernels: Sequence[Kernel], count: int) -> str:
    """Where most of a run is mispredicted: the kernels, and what their prediction is made of."""
    totals: dict[str, tuple[float, float]] = {}
    for k in kernels:
        predicted, measured = totals.get(k.model, (0.0, 0.0))
        totals[k.model] = predicted + k.predicted, measured + k.measured

    def factor(kernel: Kernel) -> float:
        predicted, measured = totals[kernel.model]
        return kernel.predicted / kernel.measured / (predicted / measured)

    def misled(kernel: Kernel) -> float:
        return abs(factor(kernel) - 1) * kernel.measured / totals[kernel.model][1]

    lines: list[str] = []
    for k in sorted(kernels, key=misled, reverse=True)[:count]:
        causes = ", ".join(f"{cause} {seconds * 1e6:.1f}" for cause, seconds in (k.causes or {}).items() if seconds)
        lines.append(
            f"{k.model} {k.name}: {k.measured * 1e6:.1f} us measured, {k.predicted * 1e6:.1f} predicted "
            f"(x{factor(k):.2f}), mostly {k.dominant}: {causes}; {100 * misled(k):.1f}% of the run"
        )
        lines.append(f"    {k.origin[:100]}")
        lines.append(f"    {k.schedule[:160]}")
    return "\n".join(lines)


def by_kind(kernels: Sequence[Kernel]) -> str:
    """The table again, by kind of kernel."""
    kinds = sorted({k.name.partition("_")[2] for k in kernels})
    return "\n".join(summary(kind, [k for k in kernels if k.name.partition("_")[2] == kind]) for kind in kinds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--worst", type=int, default=15)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--replay", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    old: dict[str, Any] = json.loads(options.replay.read_text()) if options.replay else {}
    kernels: list[Kernel] = []
    taken: dict[str, Any] = {}
    print(f"{'model':22} {'kernels':>7} {'ms':>10} {'rank':>6} {'work':>6} {'ratio':>7} {'error':>7}")
    for model in options.models or old.get("measured") or DEFAULT:
        taken[model] = old["measured"][model] if old else measure(model, options.threads, options.runs)
        own = joined(model, taken[model])
        kernels += own
        print(summary(model, own), flush=True)
    print(summary("all", kernels))
    print(by_kind(kernels))
    print(worst(kernels, options.worst))
    if options.json:
        found = {"measured": taken, "kernels": [asdict(kernel) for kernel in kernels]}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""One model, several contestants: opweld at one or more levels, and other runtimes, on the same inputs and threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from numpy.typing import NDArray

from opweld.analysis.disturbance import Disturbance, Watch
from opweld.errors import OptionError
from opweld.experiments.measure import Timing, alternate
from opweld.experiments.opened import Opened, open_model
from opweld.experiments.peers import PEERS, Run, check_installed, prepare
from opweld.option import documented
from opweld.options import CompileOptions, Options, available_cores
from opweld.verification.asked import check_asked
from opweld.verification.compare import compare
from opweld.verification.inputs import Given

Array = NDArray[Any]


if TYPE_CHECKING:
    from opweld.compile import Progress


@dataclass(frozen=True)
class Row:
    """What a contest says of one model at one level.

    Attributes:
        model, level: whose.
        inputs: shapes by name. given: those whose values were given; the others are made up.
        threads: of every contestant.
        nodes: of the ONNX file, its subgraphs included, but no Constants. kernels: of a run, those of a loop once.
        error: the largest difference to the first peer's outputs, as a part of each output's scale; None without peers.
        timings: by contestant; `opweld` is this row's. disturbance: what else the machine did meanwhile; its spread is
            that of the steadiest contestant.
        arena_bytes: memory of intermediate values. tensor_bytes: what they would take without sharing.
        moved_bytes: what the kernels read and write, each value once a kernel.
    """

    model: str
    level: str
    inputs: dict[str, list[int]]
    given: list[str]
    threads: int
    nodes: int
    kernels: int
    error: float | None
    timings: dict[str, Timing]
    disturbance: Disturbance
    arena_bytes: int
    tensor_bytes: int
    moved_bytes: int

    @property
    def ratio(self) -> float | None:
        """The first peer's time by opweld's: above 1, opweld is faster."""
        peers = [timing for name, timing in self.timings.items() if name != "opweld"]
        return peers[0].median_s / self.timings["opweld"].median_s if peers else None

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types."""
        timings = {name: timing.to_json() for name, timing in self.timings.items()}
        return asdict(self) | {"timings": timings, "disturbance": self.disturbance.to_json(), "ratio": self.ratio}


@documented(Options)
def bench(
    model: str | os.PathLike[str],
    feeds: Mapping[str, Given] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    vs: Sequence[str] = ("onnxruntime",),
    levels: Sequence[str] | None = None,
    rounds: int = 7,
    progress: Progress | None = None,
    **options: Unpack[CompileOptions],
) -> list[Row]:
    """Times a model beside other runtimes on the same inputs and threads, in alternating blocks: what `opweld bench`
    prints.

    Args:
        model: the path of an ONNX file.
        feeds: by input, an array, or a text as `opweld run --input` takes it; what is not given is made up.
        sizes: of symbolic dims of inputs that are made up.
        seed: of inputs that are made up.
        vs: runtimes to compare with, of onnxruntime, onnxruntime-exact (in which no product of bytes saturates),
            openvino and openvino-bf16.
        levels: to compare, a row each; that of the options where None.
        rounds: blocks of runs that each contestant gets.
        progress: called with (what is being done, steps done, steps in all).
        options: see docs/options.md.

    Returns a row a level: medians in seconds, errors as parts of the scale, bytes. Raises what `compile` raises, and
    OptionError for a runtime that is not installed, an input or size that the model does not have: before anything is
    compiled."""
    path, given, dims = Path(model), feeds or {}, sizes or {}
    chosen = Options.of(**options)
    for peer in vs:
        if peer not in PEERS:
            raise OptionError(f"vs {peer!r}: expected some of {', '.join(PEERS)}")
    if rounds < 1:
        raise OptionError(f"rounds is {rounds}, expected a whole number of at least 1")
    check_installed(vs)
    variants = {level: replace(chosen, level=level) for level in levels or (chosen.level,)}
    check_asked(path, given, dims, seed)

    def make(opened: Opened) -> Mapping[str, Array]:
        return opened.feeds(given, dims, seed)

    return contest(path, path.stem, variants, vs, make, rounds, dims, given, progress)


def contest(
    model: Path,
    name: str,
    variants: Mapping[str, Options],
    peers: Sequence[str],
    make_feeds: Callable[[Opened], Mapping[str, Array]],
    rounds: int,
    dims: Mapping[str, int] | None = None,
    given: Collection[str] = (),
    progress: Progress | None = None,
) -> list[Row]:
    """Compiles `model` once per variant (options by level), times variants and peers in turn; answers their rows.

    `dims` are sizes of its symbolic dims where it compiles for no others; `given` are the inputs whose values
    `make_feeds` does not make up. Raises OptionError, before anything is compiled, for a peer that is not installed."""
    check_installed(peers)
    if model.is_dir():
        raise OptionError(f"{model} is a folder: bench takes ONNX files, which the other runtimes can read too")
    opened = {level: open_model(model, options, dims, progress=progress) for level, options in variants.items()}
    first = next(iter(opened.values()))
    threads = next(iter(variants.values())).threads or available_cores()
    feeds = make_feeds(first)
    runs: dict[str, Run] = {f"opweld {level}": _run(one.session.run, feeds) for level, one in opened.items()}
    answers = {contestant: run() for contestant, run in runs.items()}
    for peer in peers:
        runs[peer] = prepare(peer, model, feeds, threads)
        answers[peer] = runs[peer]()
    watch = Watch()
    timings = alternate(
        runs, rounds=rounds, progress=progress and (lambda done, total: progress(f"timing {name}", done, total))
    )
    disturbance = watch.seen(min(timing.spread for timing in timings.values()))
    rows: list[Row] = []
    for level, one in opened.items():
        plan = one.session.plan(feeds)
        mine = answers[f"opweld {level}"]
        row = Row(
            model=name,
            level=level,
            inputs={key: list(value.shape) for key, value in feeds.items()},
            given=[key for key in feeds if key in given],
            threads=threads,
            nodes=count_nodes(model),
            kernels=plan.kernels,
            error=_error(first.session.output_names, mine, answers[peers[0]]) if peers else None,
            timings={"opweld": timings[f"opweld {level}"]} | {peer: timings[peer] for peer in peers},
            disturbance=disturbance,
            arena_bytes=plan.arena,
            tensor_bytes=plan.total,
            moved_bytes=sum(step.bytes for step in plan.steps),
        )
        rows.append(row)
    return rows


def _run(session_run: Callable[[Mapping[str, Array]], list[Array]], feeds: Mapping[str, Array]) -> Run:
    return lambda: session_run(feeds)


def _error(names: Sequence[str], mine: Sequence[Array], theirs: Sequence[Array]) -> float:
    return max((compare(n, a, b).error for n, a, b in zip(names, mine, theirs, strict=True)), default=0.0)


def count_nodes(model: Path) -> int:
    """How many nodes an ONNX file has, its subgraphs included; Constants are values, so they do not count."""
    import onnx

    graphs = [onnx.load(model, load_external_data=False).graph]
    count = 0
    while graphs:
        for node in graphs.pop().node:
            count += node.op_type != "Constant"
            graphs += [a.g for a in node.attribute if a.HasField("g")]
    return count

"""The tables of docs/performance.md: every model of the zoo beside its peers, by one command.

    python -m benchmarks.performance                                 everything; about an hour, nothing else may run
    python -m benchmarks.performance minilm --threads 1 --batches 1  a part: other rows of FILE are kept
    python -m benchmarks.performance --profile --threads 2 --batches 1   floors anew, and which kernels are beyond them
    python -m benchmarks.performance --render                        the page again, from what FILE holds

Rows are kept in FILE (--json) as they come, so that what was stopped goes on: a row measured with the same sources of
opweld is not measured again (--again does). Contestants run in processes of their own, in alternating blocks, as in
`benchmarks.paired`; opweld runs an artifact, compiled before in an empty cache. `open` is from the call that opens a
model until it could run, `first` the first run after it; `peak` is the resident memory of the process after a few runs.
The floor of a model is the sum of its kernels': arithmetic at the peak or bytes at the bandwidth of the level that
holds them, whichever is longer, with the ceilings that `opweld machine` measured.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.paired import REPOSITORY, Contestant, contest
from benchmarks.zoo import fetch, inputs
from benchmarks.zoo.catalogue import MODELS, Export
from opweld.cached import sources_digest
from opweld.target import processor_name
from opweld.typed import typed

PAGE = REPOSITORY / "docs" / "performance.md"
DATA = REPOSITORY / "docs" / "performance.json"
PEERS = ("onnxruntime", "openvino", "inductor")
RUNTIMES = PEERS[:2]
"""Those that take an ONNX file."""
ARCHITECTURES = ("resnet50", "mobilenetv2", "convnext-tiny", "vit-base", "bert-base", "llama-160m")


@dataclass(frozen=True)
class Side:
    """One runtime on one model: the median run in milliseconds; its ratio to opweld's, with the quartiles of
    neighbouring blocks; milliseconds to open and of the first run; peak resident MiB."""

    milliseconds: float
    ratio: float
    low: float
    high: float
    open: float
    first: float
    peak: float


@dataclass(frozen=True)
class Group:
    """Kernels of a model that do alike: nodes of the first one, how many there are, milliseconds of a run that all of
    them take, and the part of these that the machine needs at least. `why`: what `opweld profile` found them bound by,
    as of the first."""

    kernel: str
    nodes: str
    count: int
    milliseconds: float
    floor: float
    why: str = ""

    @property
    def lost(self) -> float:
        """Milliseconds beyond the floor."""
        return self.milliseconds * (1 - self.floor)


@dataclass(frozen=True)
class Row:
    """One model, number of threads and batch. `floor`: the fraction of its time that the machine needs at least, where
    it was measured. `compile`, `quick`: seconds in an empty cache, without and with `--tune quick`. `sources`: digest
    of opweld's. `groups`: the kernels that are furthest beyond their floors."""

    model: str
    threads: int
    batch: int
    sources: str
    opweld: Side
    peers: Mapping[str, Side] = field(default_factory=dict[str, Side])
    floor: float | None = None
    compile: float | None = None
    quick: float | None = None
    groups: tuple[Group, ...] = ()

    @property
    def best(self) -> float | None:
        """The best peer's time by opweld's."""
        return min((side.ratio for side in self.peers.values()), default=None)

    def beside(self, peers: Sequence[str]) -> float:
        """The same for some of the peers, of which there is one."""
        return min(side.ratio for peer, side in self.peers.items() if peer in peers)

    @property
    def limit(self) -> float | None:
        """What `best` would be where opweld took no longer than the floor: no program that computes the same products
        can be further ahead of that peer."""
        return None if self.best is None or self.floor is None else self.best / self.floor

    @property
    def key(self) -> tuple[str, int, int]:
        """What the row is of."""
        return self.model, self.threads, self.batch


CLOSE = 1.05
"""A model that is no further ahead of its best peer is looked at kernel by kernel."""
MOST_GROUPS = 5
"""Groups of kernels that are told of a model."""

# ------------------------------------------------------------------------------------------------------------ measuring


def model_of(name: str, batch: int, folder: Path) -> Path:
    """The ONNX file of a model for a batch: that of the zoo, or an export of its own where the zoo's is of batch 1."""
    source = MODELS[name].source
    if batch == 1 or not isinstance(source, Export):
        return fetch.path(name)
    path = folder / f"batch-{batch}.onnx"
    if not path.exists():
        _exported(source.architecture, path, batch, *(("--raw",) if source.raw else ()))
    return path


def _exported(architecture: str, path: Path, batch: int, *options: str) -> None:
    command = [sys.executable, "-m", "benchmarks.zoo.export", architecture, str(path), "--batch", str(batch), *options]
    subprocess.run(command, check=True, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def batched(model: Path, feeds: Mapping[str, np.ndarray[Any, Any]], batch: int) -> dict[str, Any] | None:
    """Feeds of a batch: repeated along the first axis that has one element where the model wants more, or any number;
    None where an input of some rank has none."""
    if batch == 1:
        return dict(feeds)
    made: dict[str, Any] = {}
    for value in onnx.load(model, load_external_data=False).graph.input:
        array = feeds.get(value.name)
        if array is None:
            continue
        dims = value.type.tensor_type.shape.dim
        axes = [n for n, dim in enumerate(dims) if dim.dim_value in (0, batch) and array.shape[n] == 1]
        if array.ndim and not axes:
            return None
        made[value.name] = np.repeat(array, batch, axes[0]) if axes else array
    return made


def compiled(model: Path, out: Path, threads: int, *options: str) -> float:
    """Compiles into `out` with an empty cache. Seconds."""
    with tempfile.TemporaryDirectory(prefix="opweld-cold-") as cache:
        start = time.perf_counter()
        command = [sys.executable, "-m", "opweld", "compile", str(model), "-o", str(out), "--threads", str(threads)]
        command += options
        subprocess.run(command, env=os.environ | {"OPWELD_CACHE": cache}, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start


def profile_of(artifact: Path, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """What `opweld profile` says of an artifact, as its --json does."""
    with tempfile.TemporaryDirectory(prefix="opweld-performance-") as place:
        given: list[str] = []
        for number, (name, values) in enumerate(feeds.items()):
            np.save(Path(place) / f"{number}.npy", values)
            given += ["--input", f"{name}={Path(place) / f'{number}.npy'}"]
        out = Path(place) / "profile.json"
        command = [sys.executable, "-m", "opweld", "profile", str(artifact), "--json", str(out), *given]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return json.loads(out.read_text())


def profiled(artifact: Path, feeds: Mapping[str, Any]) -> tuple[float, tuple[Group, ...]]:
    """The part of the latency that the machine needs at least, which is the kernels' floors, and the groups of kernels
    that lose the most."""
    data = profile_of(artifact, feeds)
    alike: dict[tuple[str, int, int], list[tuple[dict[str, Any], float]]] = {}
    for kernel in data["kernels"]:
        floor = kernel["bound"]["floor_seconds"] if kernel["bound"] else 0.0
        key = kernel["name"].partition("_")[2], kernel["flops"], kernel["bytes"]
        alike.setdefault(key, []).append((kernel, floor))
    groups: list[Group] = []
    for (kind, _, _), found in alike.items():
        seconds = sum(kernel["seconds"]["median"] for kernel, _ in found)
        part = sum(floor for _, floor in found) / seconds if seconds else 1.0
        bound = found[0][0]["bound"] or {}
        named = " ".join(bound[key] for key in ("kind", "level", "cause") if bound.get(key))
        why = f"{named}: {bound['reason']}" if named else ""
        groups.append(Group(kind, " ".join(found[0][0]["nodes"]), len(found), seconds * 1e3, part, why))
    groups.sort(key=lambda group: -group.lost)
    total = sum(floor for found in alike.values() for _, floor in found)
    return total / data["latency"]["median"], tuple(groups[:MOST_GROUPS])


def measure(
    name: str, model: Path, artifact: Path, threads: int, batch: int, peers: Sequence[str], rounds: int
) -> Row | None:
    """One row; None where the model takes no such batch."""
    feeds = batched(model, inputs.example(name), batch)
    if feeds is None:
        return None
    with tempfile.TemporaryDirectory(prefix="opweld-performance-") as place, contextlib.ExitStack() as stack:
        folder = Path(place)
        np.savez(folder / "feeds.npz", allow_pickle=False, **feeds)
        entries = _entries(name, artifact, model, batch, peers, folder)
        started = (
            Contestant(runtime, REPOSITORY, runtime, file, folder / "feeds.npz", threads) for runtime, file in entries
        )
        contestants = contest(started, rounds, stack, f"{name}: left out: ")
        mine = contestants[0]
        sides = {c.name: _side(c, mine) for c in contestants}
    floor, groups = profiled(artifact, feeds)
    return Row(name, threads, batch, sources_digest(), sides.pop("opweld"), sides, floor, groups=groups)


def _entries(
    name: str, artifact: Path, model: Path, batch: int, peers: Sequence[str], folder: Path
) -> Iterator[tuple[str, Path]]:
    """(runtime, file) of the contestants that there are for a model."""
    yield "opweld", artifact
    for peer in peers:
        if peer != "inductor":
            yield peer, model
            continue
        source = MODELS[name].source
        if isinstance(source, Export) and not source.raw:
            program = folder / "program.pt2"
            _exported(source.architecture, program, batch, "--program")
            yield peer, program


def _side(contestant: Contestant, mine: Contestant) -> Side:
    low, ratio, high = contestant.ratio_to(mine)
    opened = contestant.opened
    return Side(
        contestant.median * 1e3, ratio, low, high, opened["open"] * 1e3, opened["first"] * 1e3, opened["peak"] / 2**20
    )


# --------------------------------------------------------------------------------------------------------- the page


def machine() -> dict[str, str]:
    """What the figures belong to."""
    found = {"processor": f"{processor_name()}, {os.cpu_count()} cores"}
    for package in ("onnxruntime", "openvino", "torch", "ziglang", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found | {"Python": platform.python_version()}


def geometric(ratios: Iterable[float]) -> float:
    """The geometric mean; NaN of nothing."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def page(rows: Sequence[Row], about: Mapping[str, str]) -> str:
    """docs/performance.md."""
    lines = [
        "# Performance beside the peers",
        "",
        "Made by `python -m benchmarks.performance`, whose docstring says how each figure is measured. Milliseconds",
        "are medians of alternating blocks of one run, all in float32 (OpenVINO's precision is set to it). `ratio` is",
        "the best peer's time by opweld's: above 1, opweld is faster. `floor` is the part of opweld's time that the",
        "machine needs at least, `limit` what the ratio would be at the floor: between the two there is left to gain,",
        "what is beyond it nobody can. Winograd's convolutions have a floor of fewer products than their peers', small",
        "models one of nanoseconds. Inductor is measured where the model comes from torch; `beside runtimes` are",
        "the six architectures without it.",
        "",
        "; ".join(f"{name} {value}" for name, value in about.items()) + ".",
        "",
    ]
    kinds = sorted({(row.batch, -row.threads) for row in rows})
    lines += [
        "| batch | threads | models | geometric mean | six architectures | their limit | beside runtimes | least |",
        "|" + "---|" * 8,
    ]
    for batch, threads in kinds:
        found = _of(rows, -threads, batch)
        ratios = {row.model: row.best for row in found if row.best is not None}
        if ratios:
            least = min(ratios, key=lambda name: ratios[name])
            six = geometric(ratios[name] for name in ARCHITECTURES if name in ratios)
            limit = geometric(row.limit for row in found if row.model in ARCHITECTURES and row.limit is not None)
            runtimes = geometric(row.beside(RUNTIMES) for row in found if row.model in ARCHITECTURES)
            lines.append(
                f"| {batch} | {-threads} | {len(ratios)} | {geometric(ratios.values()):.2f} | {_mean(six)} "
                f"| {_mean(limit)} | {_mean(runtimes)} | {ratios[least]:.2f} ({least}) |"
            )
    for batch, threads in kinds:
        cores = "one thread" if threads == -1 else f"{-threads} threads"
        lines += ["", f"## Batch {batch}, {cores}", ""]
        lines += [f"| model | opweld | {' | '.join(PEERS)} | ratio | floor | limit |"]
        lines += ["|---|" + "---|" * (len(PEERS) + 4)]
        for row in _of(rows, -threads, batch):
            peers = " | ".join(_ms(row.peers.get(peer)) for peer in PEERS)
            ratio = "-" if row.best is None else f"{row.best:.2f}"
            floor = "-" if row.floor is None else f"{row.floor:.0%}"
            limit = "-" if row.limit is None else f"{row.limit:.2f}"
            lines.append(f"| {row.model} | {_ms(row.opweld)} | {peers} | {ratio} | {floor} | {limit} |")
    lines += _where_the_rest_is(rows)
    lines += ["", "## Opening, first run, memory", ""]
    lines += ["Batch 1, most threads: milliseconds to open and of the first run, MiB at most; seconds to compile"]
    lines += ["with an empty cache, and so with `--tune quick`.", ""]
    lines += [f"| model | opweld | {' | '.join(PEERS)} | compile | quick |", "|---|" + "---|" * (len(PEERS) + 3)]
    for row in _of(rows, max((row.threads for row in rows), default=1), 1):
        sides = " | ".join(_opened(side) for side in (row.opweld, *(row.peers.get(peer) for peer in PEERS)))
        took = " | ".join("-" if seconds is None else f"{seconds:.1f}" for seconds in (row.compile, row.quick))
        lines.append(f"| {row.model} | {sides} | {took} |")
    return "\n".join(lines) + "\n"


def _where_the_rest_is(rows: Sequence[Row]) -> list[str]:
    """The kernels that are furthest beyond their floors, at the most threads: of the architectures, and of models that
    are hardly faster than a peer."""
    lines = ["", "## Where the rest is", ""]
    lines += [
        "Batch 1, most threads: kernels that do alike, by the time that they take beyond their floors. `of a run`"
    ]
    lines += [
        "is that time: what is gained at most where they are made as fast as the machine; `why` is what a profile"
    ]
    lines += ["finds the first of them bound by.", ""]
    lines += ["| model | kernels | nodes of the first | ms | floor | of a run | why |", "|---|" + "---|" * 6]
    for row in _of(rows, max((row.threads for row in rows), default=1), 1):
        close = row.best is not None and row.best < CLOSE
        for group in row.groups if row.model in ARCHITECTURES or close else ():
            lost = group.lost / row.opweld.milliseconds
            lines.append(
                f"| {row.model} | {group.count} {group.kernel} | {group.nodes} | {group.milliseconds:.3g} "
                f"| {group.floor:.0%} | {lost:.1%} | {group.why} |"
            )
    return lines


def _of(rows: Sequence[Row], threads: int, batch: int) -> list[Row]:
    order = {name: number for number, name in enumerate(MODELS)}
    found = [row for row in rows if (row.threads, row.batch) == (threads, batch)]
    return sorted(found, key=lambda row: order.get(row.model, len(order)))


def _mean(ratio: float) -> str:
    return "-" if math.isnan(ratio) else f"{ratio:.2f}"


def _ms(side: Side | None) -> str:
    return (
        "-" if side is None else f"{side.milliseconds:.3g}" if side.milliseconds < 100 else f"{side.milliseconds:.0f}"
    )


def _opened(side: Side | None) -> str:
    return "-" if side is None else f"{side.open:.0f} + {side.first:.1f} ms, {side.peak:.0f} MiB"


# ----------------------------------------------------------------------------------------------------- the command line


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> int:
    """Measures what is missing, then writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="of the zoo; left out: all")
    parser.add_argument("--threads", type=_numbers, default=[2, 1], metavar="N,N")
    parser.add_argument("--batches", type=_numbers, default=[1, 8], metavar="N,N")
    parser.add_argument("--peers", default=",".join(PEERS), metavar="NAMES")
    parser.add_argument("--rounds", type=int, default=7, help="blocks of a contestant")
    parser.add_argument("--again", action="store_true", help="measure rows that FILE has already")
    parser.add_argument("--profile", action="store_true", help="profile rows that FILE has, and time no peer")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--json", type=Path, default=DATA, metavar="FILE")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE")
    options = parser.parse_args()
    data: dict[str, Any] = (
        json.loads(options.json.read_text()) if options.json.exists() else {"machine": {}, "rows": []}
    )
    rows = {row.key: row for row in (typed(Row, row, options.json.name) for row in data["rows"])}
    about = data["machine"] if options.render else machine()
    peers = [peer for peer in options.peers.split(",") if peer]
    for name in () if options.render else options.models or MODELS:
        with tempfile.TemporaryDirectory(prefix="opweld-performance-") as place:
            folder = Path(place)
            for threads, batch in ((t, b) for t in options.threads for b in options.batches):
                known = rows.get((name, threads, batch))
                if (known is None) if options.profile else not options.again and not _stale(known):
                    continue
                model, artifact = model_of(name, batch, folder), folder / "model.opweld"
                seconds = compiled(model, artifact, threads)
                row = (
                    _profiled_again(known, model, artifact)
                    if options.profile and known is not None
                    else measure(name, model, artifact, threads, batch, peers, options.rounds)
                )
                if row is None:
                    continue
                quick = known.quick if known is not None else None
                if (threads, batch) == (max(options.threads), 1) and not options.profile:
                    quick = compiled(model, folder / "tuned.opweld", threads, "--tune", "quick")
                row = replace(row, compile=seconds, quick=quick)
                rows[row.key] = row
                ratio = "" if row.best is None else f"{row.best:.2f}"
                print(f"{name:<22} {threads} threads, batch {batch}: {_ms(row.opweld)} ms {ratio}", flush=True)
                kept = {"machine": about, "rows": [asdict(one) for one in rows.values()]}
                options.json.write_text(json.dumps(kept, indent=1) + "\n")
    options.page.write_text(page(list(rows.values()), about))
    return 0


def _profiled_again(row: Row, model: Path, artifact: Path) -> Row:
    feeds = batched(model, inputs.example(row.model), row.batch)
    assert feeds is not None, f"{row.model} was measured at batch {row.batch}"
    floor, groups = profiled(artifact, feeds)
    return replace(row, floor=floor, groups=groups)


def _stale(row: Row | None) -> bool:
    return row is None or row.sources != sources_digest()


if __name__ == "__main__":
    sys.exit(main())

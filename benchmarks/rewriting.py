"""opweld's graph optimiser beside the others: nodes, bytes, and ONNX Runtime's time of each result.

    python -m benchmarks.rewriting                                  the zoo
    python -m benchmarks.rewriting minilm vit-base --threads 1
    python -m benchmarks.rewriting --architectures 'bert|swin'      exported from torch, by both exporters
    python -m benchmarks.rewriting --no-times --json table.json
    python -m benchmarks.rewriting --tables zoo.json exports.json --file docs/beside-other-optimizers.md

Others are onnxslim and onnxsim, where they are installed (constraints.txt has the versions), and ONNX Runtime's own
offline optimisation. Two vocabularies are compared, each with its likes: operators of ONNX (`onnxslim`, `onnxsim`,
`ort-basic`, `opweld`), and those of com.microsoft too (`ort-extended`, `opweld-ort`). Times are of blocks of runs that
alternate, each result in a process of its own; a ratio is the original's median by that of the result: above 1, the
result is faster. Constants do not count as nodes: some write them as such.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.paired import REPOSITORY, Contestant, contest
from benchmarks.zoo import fetch, inputs
from benchmarks.zoo.catalogue import MODELS
from opweld.build.workspace import temporary_folder

TOOLS = {
    "onnxslim": "import onnxslim; onnxslim.slim({source!r}, {made!r})",
    "onnxsim": "import onnx, onnxsim; m, ok = onnxsim.simplify({source!r}); onnx.save(m, {made!r})",
    "ort-basic": "from benchmarks.rewriting import offline; offline({source!r}, {made!r}, 'ORT_ENABLE_BASIC')",
    "opweld": "from benchmarks.rewriting import own; own({source!r}, {made!r}, False)",
    "ort-extended": "from benchmarks.rewriting import offline; offline({source!r}, {made!r}, 'ORT_ENABLE_EXTENDED')",
    "opweld-ort": "from benchmarks.rewriting import own; own({source!r}, {made!r}, True)",
}
"""Programs that write an optimised model, by name; each runs in a process of its own."""

PLAIN = ("onnxslim", "onnxsim", "ort-basic", "opweld")
"""Those that write operators of ONNX only."""

SECONDS = 300
"""That a tool may take for a model."""


@dataclass(frozen=True)
class Result:
    """What a tool made of a model: nodes that compute, bytes of the file, seconds that it took; the original's time in
    ONNX Runtime by its own, with the quartiles of neighbouring blocks."""

    tool: str
    nodes: int
    bytes: int
    seconds: float
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


def offline(source: str, made: str, level: str) -> None:
    """Writes what ONNX Runtime makes of a model at a level of its own."""
    import onnxruntime

    runtime: Any = onnxruntime
    options = runtime.SessionOptions()
    options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = made
    options.log_severity_level = 4
    runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def own(source: str, made: str, contributed: bool) -> None:
    """Writes what opweld makes of a model, for any runtime or for ONNX Runtime."""
    from opweld.rewrite.optimize import optimize_model
    from opweld.rewrite.write import save

    save(optimize_model(source, contributed=contributed), Path(made))


def count(path: Path) -> int:
    """The nodes of a model that compute, those of bodies and functions included."""
    model = onnx.load(path, load_external_data=False)

    def nodes(owner: Iterable[onnx.NodeProto]) -> int:
        total = 0
        for node in owner:
            total += node.op_type != "Constant"
            for attribute in node.attribute:
                total += sum(nodes(graph.node) for graph in (attribute.g, *attribute.graphs))
        return total

    return nodes(model.graph.node) + sum(nodes(function.node) for function in model.functions)


def size(path: Path) -> int:
    """Bytes of a model's file and of those that lie beside it."""
    model = onnx.load(path, load_external_data=False)
    beside = {e.value for t in model.graph.initializer for e in t.external_data if e.key == "location"}
    return sum((path.parent / name).stat().st_size for name in (path.name, *beside))


def make(tool: str, source: Path, folder: Path) -> tuple[Path, float] | str:
    """The model that a tool makes, and how long it takes; why there is none where it fails."""
    made = folder / f"{tool}.onnx"
    program = TOOLS[tool].format(source=str(source), made=str(made))
    start = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {SECONDS} s"
    if done.returncode or not made.exists():
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:120]
    return made, time.perf_counter() - start


def compare(
    source: Path, feeds: Mapping[str, Any] | None, tools: Sequence[str], threads: int, rounds: int
) -> list[Result]:
    """What each tool makes of a model, the original first; without feeds nothing is timed."""
    with temporary_folder() as folder, contextlib.ExitStack() as stack:
        models, results = {"original": source}, [Result("original", count(source), size(source), 0.0)]
        for tool in tools:
            made = make(tool, source, folder)
            if isinstance(made, str):
                print(f"    {tool}: {made}", flush=True)
                continue
            models[tool] = made[0]
            results.append(Result(tool, count(made[0]), size(made[0]), made[1]))
        if feeds is None:
            return results
        file = folder / "feeds.npz"
        np.savez(file, allow_pickle=False, **feeds)
        started = (Contestant(name, REPOSITORY, "onnxruntime", model, file, threads) for name, model in models.items())
        contestants = {contestant.name: contestant for contestant in contest(started, rounds, stack, "    ")}
        return [_timed(result, contestants) for result in results]


def _timed(result: Result, contestants: Mapping[str, Contestant]) -> Result:
    mine, first = contestants.get(result.tool), contestants.get("original")
    if mine is None or first is None:
        return result
    low, ratio, high = first.ratio_to(mine)
    return Result(result.tool, result.nodes, result.bytes, result.seconds, ratio, low, high)


def main() -> int:
    """Prints a line for each model and tool as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="of the zoo; left out: all")
    parser.add_argument("--architectures", metavar="RE", default="", help="those of tests.architectures instead")
    parser.add_argument("--tools", default=",".join(TOOLS), help="of them: " + ", ".join(TOOLS))
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9, help="blocks of a contestant")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument(
        "--tables", type=Path, nargs="+", metavar="JSON", help="of runs before, to be written as a page"
    )
    parser.add_argument("--file", type=Path, help="the page")
    options = parser.parse_args()
    if options.tables:
        page = markdown([_read(path) for path in options.tables])
        print(page, end="") if options.file is None else options.file.write_text(page, encoding="utf-8")
        return 0
    tools = options.tools.split(",")
    rows: dict[str, list[Result]] = {}
    for name, source, feeds in _cases(options.models, options.architectures):
        rows[name] = compare(source, None if options.no_times else feeds, tools, options.threads, options.rounds)
        _print(name, rows[name])
    fewest = sum(_is_fewest(results) for results in rows.values())
    print(f"{fewest} of {len(rows)}: opweld's result has no more nodes than any other of ONNX's operators")
    if options.json is not None:
        data = {name: [asdict(result) for result in results] for name, results in rows.items()}
        options.json.write_text(json.dumps(data, indent=1) + "\n")
    return 0


def _read(path: Path) -> dict[str, list[Result]]:
    return {name: [Result(**entry) for entry in found] for name, found in json.loads(path.read_text()).items()}


PAGE = """# Beside other optimisers

Made by `python -m benchmarks.rewriting`, with onnxslim 0.1.98, onnxsim 0.8.1 and ONNX Runtime {version}'s own offline
optimisation (`basic` writes operators of ONNX, `extended` those of com.microsoft too). *Nodes* are those that compute,
bodies included. *Speed* is ONNX Runtime's, at its default level: the original's time by that of the result, above 1
is faster; medians of {rounds} alternating blocks of runs at 2 threads, each result in a process of its own. Best is the
best of the others: fewest nodes, highest speed.

"""

HEAD = (
    "| model | nodes | best other | opweld | speed: best other | opweld | extended: nodes | opweld | speed | opweld |\n"
    "|---|---|---|---|---|---|---|---|---|---|\n"
)


def markdown(tables: Sequence[Mapping[str, list[Result]]]) -> str:
    """A page of what was measured."""
    import onnxruntime

    lines = [PAGE.format(version=onnxruntime.__version__, rounds=9)]
    for rows in tables:
        found = [({result.tool: result for result in results}, name) for name, results in rows.items()]
        lines.append(HEAD + "".join(_line(name, by_tool) for by_tool, name in found) + "\n" + _counts(found) + "\n")
    return "\n".join(lines).rstrip() + "\n"


def _others(by_tool: Mapping[str, Result]) -> list[Result]:
    return [by_tool[tool] for tool in PLAIN if tool != "opweld" and tool in by_tool]


def _line(name: str, by_tool: Mapping[str, Result]) -> str:
    others = _others(by_tool)
    fewest = min(others, key=lambda result: result.nodes)
    quickest = max(others, key=lambda result: result.ratio or 0)
    cells = [name, f"{by_tool['original'].nodes}", f"{fewest.nodes} {fewest.tool}"]
    cells += [f"{by_tool['opweld'].nodes}", f"{_speed(quickest)} {quickest.tool}", _speed(by_tool["opweld"])]
    for part in (lambda result: str(result.nodes), _speed):
        cells += [part(by_tool[tool]) if tool in by_tool else "" for tool in ("ort-extended", "opweld-ort")]
    return "| " + " | ".join(cells) + " |\n"


def _speed(result: Result) -> str:
    return "" if result.ratio is None else f"{result.ratio:.2f}"


MARGIN = 0.97
"""Of noise, in a ratio of times."""


def _counts(found: Sequence[tuple[Mapping[str, Result], str]]) -> str:
    no_more = fewer = slower = 0
    names: list[str] = []
    for by_tool, name in found:
        best = min(result.nodes for result in _others(by_tool))
        no_more += by_tool["opweld"].nodes <= best
        fewer += by_tool["opweld"].nodes < best
        fastest = max([1.0, *(result.ratio or 0 for result in _others(by_tool))])
        if (by_tool["opweld"].ratio or 1.0) < MARGIN * fastest:
            slower += 1
            names.append(name)
    told = f" ({', '.join(names)})" if names else ""
    return (
        f"Of {len(found)}, opweld's result has no more nodes than the best of the others in {no_more}, fewer in "
        f"{fewer}; it is slower by more than 3% than the original or the fastest of theirs in {slower}{told}.\n"
    )


def _cases(models: Sequence[str], architectures: str) -> Iterable[tuple[str, Path, Mapping[str, Any]]]:
    if not architectures:
        for name in models or MODELS:
            yield name, fetch.path(name), inputs.example(name)
        return
    from tests.architectures.catalogue import CATALOGUE
    from tests.architectures.export import exported

    for architecture in CATALOGUE:
        for exporter in architecture.exporters if re.search(architectures, architecture.name) else ():
            folder = exported(architecture, exporter)
            if not (folder / "refusal.txt").exists():
                with np.load(folder / "0.npz") as arrays:
                    feeds = {k.removeprefix("feed_"): arrays[k] for k in arrays.files if k.startswith("feed_")}
                yield f"{architecture.name}, {exporter}", folder / "model.onnx", feeds


def _is_fewest(results: Sequence[Result]) -> bool:
    plain = {result.tool: result.nodes for result in results if result.tool in PLAIN}
    return plain.get("opweld", sys.maxsize) <= min(plain.values(), default=0)


def _print(name: str, results: Sequence[Result]) -> None:
    print(f"{name}{'' if _is_fewest(results) else '   (more nodes than the best)'}")
    for result in results:
        times = "" if result.ratio is None else f"   {result.ratio:5.2f} ({result.low:.2f} to {result.high:.2f})"
        print(
            f"    {result.tool:<13}{result.nodes:6} nodes {result.bytes:>13,} bytes {result.seconds:6.1f} s{times}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())

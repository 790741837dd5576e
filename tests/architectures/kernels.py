"""One model by each exporter: as many kernels? python -m tests.architectures.kernels [--only RE] [--json].

Counts the kernels of a usual run without compiling them, at the sizes of the export, to which torch.export fixes some
dims: what pays depends on sizes. Where the most and the least differ by over 5%, it tells the reason that kernels.toml
has for it, or else lists those of each exporter that the others do not have, by the operators that are in them. A
reason for an architecture that is no longer apart is an error, too.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import sys
import tomllib
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import opweld
from opweld.analysis.analysis import Analysis
from opweld.errors import OptionError
from tests.architectures.architecture import PROGRAMS, Architecture, Input
from tests.architectures.catalogue import CATALOGUE
from tests.architectures.export import exported, file_of, load_program

WITHIN = 0.05
"""How far the most kernels may lie above the least."""

REASONS = Path(__file__).with_suffix(".toml")
"""Why the counts of an architecture are apart: name = reason."""


def analysed(architecture: Architecture, exporter: str) -> Analysis | str:
    """The kernels of an architecture; in words, why there are none."""
    folder = exported(architecture, exporter)
    if (folder / "refusal.txt").exists():
        return "not exported"
    source: Any = str(folder / file_of(exporter))
    try:
        if exporter == PROGRAMS:
            source = load_program(folder / file_of(exporter))
            shapes = [node.meta["val"].shape for node in source.graph.find_nodes(op="placeholder")]
            inputs = [(f"arguments_{n}", shape) for n, shape in enumerate(shapes[-len(architecture.inputs) :])]
        else:
            inputs = _shapes(Path(source))
        return _analysed(source, _hints(architecture, inputs))
    except Exception as error:  # noqa: BLE001 - PyTorch's own of programs that it cannot decompose, too
        return " ".join(str(error).split())[:160]


def _shapes(path: Path) -> list[tuple[str, list[Any]]]:
    """The inputs of a model; its dims are names, numbers or nothing."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    dims = ((value.name, value.type.tensor_type.shape.dim) for value in graph.input)
    return [(name, [dim.dim_param or dim.dim_value for dim in shape]) for name, shape in dims]


def _hints(architecture: Architecture, inputs: list[tuple[str, Any]]) -> dict[str, int]:
    """The sizes of the export, by the names that opweld has for the dims of a model."""
    own = {item.name: item for item in architecture.inputs}
    by_position = dict(zip((name for name, _ in inputs), architecture.inputs, strict=False))
    hints: dict[str, int] = {}
    seen: set[str] = set()
    for name, shape in inputs:
        for axis, (size, dim) in enumerate(zip(shape, own.get(name, by_position.get(name, _NONE)).dims, strict=False)):
            if isinstance(dim, str) and not isinstance(size, int) and str(size) and str(size) not in seen:
                seen.add(str(size))
                hints[size if isinstance(size, str) else f"{name}_dim{axis}"] = architecture.sizes[0][dim]
    return hints


_NONE = Input("", ())


def _analysed(source: Any, hints: dict[str, int]) -> Analysis:
    while True:
        try:
            return opweld.analyze(source, dim_hints=hints)
        except OptionError as error:
            unknown = re.match(r"dim hint '([^']*)'", str(error))
            if unknown is None or hints.pop(unknown[1], None) is None:
                raise


def described(analysis: Analysis) -> Counter[str]:
    """Kernels by their operators and what they make."""
    operators: dict[str, set[str]] = collections.defaultdict(set)
    for node in analysis.nodes:
        for kernel in node.kernels:
            operators[kernel].add(node.operator)
    return collections.Counter(" + ".join(sorted(operators[k.entry.name])) or "(none)" for k in analysis.kernels)


def apart(counts: Mapping[str, int]) -> bool:
    """Whether the most and the least of several counts differ by more than is allowed."""
    return bool(counts) and max(counts.values()) > min(counts.values()) * (1 + WITHIN)


def main() -> int:
    """Prints a line for each architecture; the status is 1 where one has no reason, or a reason is left over."""
    parser = argparse.ArgumentParser(prog="python -m tests.architectures.kernels", description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression: architectures whose names hold it")
    parser.add_argument("--json", action="store_true", help="one object a line instead of the table")
    given = parser.parse_args()
    reasons = tomllib.loads(REASONS.read_text(encoding="utf-8"))
    told, compared, wrong = 0, 0, list[str]()
    for architecture in CATALOGUE:
        if not re.search(given.only, architecture.name):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = {exporter: analysed(architecture, exporter) for exporter in architecture.exporters}
        made = {exporter: a for exporter, a in found.items() if isinstance(a, Analysis)}
        counts = {exporter: len(a.kernels) for exporter, a in made.items()}
        if given.json:
            print(json.dumps({"name": architecture.name, "kernels": counts}), flush=True)
        else:
            cells = "  ".join(f"{e} {len(a.kernels) if isinstance(a, Analysis) else a}" for e, a in found.items())
            print(f"{architecture.name:28} {cells}{'   APART' if apart(counts) else ''}", flush=True)
        compared += len(counts) > 1
        reason = reasons.get(architecture.name)
        if apart(counts):
            told += 1
            if reason is not None and not given.json:
                print(f"    {reason}")
                continue
            wrong += [architecture.name] if reason is None else []
            kinds = {exporter: described(a) for exporter, a in made.items()}
            common = set.intersection(*map(set, kinds.values()))
            for exporter, kernels in kinds.items():
                rest = {k: n for k, n in kernels.items() if k not in common or any(kinds[e][k] != n for e in kinds)}
                for kind, count in sorted(rest.items()) if not given.json else ():
                    print(f"    {exporter:7} {count:3} x {kind}")
        elif reason is not None:
            wrong.append(f"{architecture.name} (has a reason, and is not apart)")
    print(f"{compared} compared, {told} apart; without a reason: {', '.join(wrong) or 'none'}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

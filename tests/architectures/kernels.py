"""One model by each exporter: as many kernels? python -m tests.architectures.kernels [--only RE] [--json].

Counts the kernels of a usual run without compiling them. Where the most and the least differ by over 5%, it lists
those of each exporter that the others do not have, by the operators that are in them and the shape of what they make.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

import opweld
from opweld.analysis.analysis import Analysis
from tests.architectures.architecture import PROGRAMS, Architecture
from tests.architectures.catalogue import CATALOGUE
from tests.architectures.export import exported, file_of

WITHIN = 0.05
"""How far the most kernels may lie above the least."""


def analysed(architecture: Architecture, exporter: str) -> Analysis | str:
    """The kernels of an architecture; in words, why there are none."""
    folder = exported(architecture, exporter)
    if (folder / "refusal.txt").exists():
        return "not exported"
    source: Any = str(folder / file_of(exporter))
    try:
        if exporter == PROGRAMS:
            import torch

            source = torch.export.load(source)
        return opweld.analyze(source)
    except Exception as error:  # noqa: BLE001 - PyTorch's own of programs that it cannot decompose, too
        return " ".join(str(error).split())[:160]


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
    """Prints a line for each architecture; the status is 1 where counts are apart."""
    parser = argparse.ArgumentParser(prog="python -m tests.architectures.kernels", description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression: architectures whose names hold it")
    parser.add_argument("--json", action="store_true", help="one object a line instead of the table")
    given = parser.parse_args()
    told = 0
    compared = 0
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
        if apart(counts):
            told += 1
            kinds = {exporter: described(a) for exporter, a in made.items()}
            common = set.intersection(*map(set, kinds.values()))
            for exporter, kernels in kinds.items():
                rest = {k: n for k, n in kernels.items() if k not in common or any(kinds[e][k] != n for e in kinds)}
                for kind, count in sorted(rest.items()) if not given.json else ():
                    print(f"    {exporter:7} {count:3} x {kind}")
    print(f"{compared} compared, {told} apart", file=sys.stderr)
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())

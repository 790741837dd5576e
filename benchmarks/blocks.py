"""Blocks of several contractions and windows: each beside the kernels that it would be apart, wherever it is legal.

    python -m benchmarks.blocks mobilenetv2-raw       what cost decides, and whether measuring agrees

A model is compiled with every block that is legal and with none; what the nodes of a block take is compared, kernel by
kernel, by the medians of `opweld profile`. `taken` are those that the cost model wants; of the others it says that they
do not pay. Alike are blocks of the same kinds of members. `python -m benchmarks.fusion` puts the table into its page.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.performance import profile_of
from benchmarks.zoo import fetch, inputs
from opweld.accounts import account_of
from opweld.cached import compile_model
from opweld.ledger import Decision
from opweld.options import Options

MODELS = ("mobilenetv2-raw", "layout-cdla", "ppocrv4-det", "ppocrv4-rec", "convnext-tiny-raw", "bert-base-raw")
HEADER = (
    "| model | members | taken | blocks | us apart | us as blocks | faster | predicted |\n"
    "|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Alike:
    """Blocks of a model whose members are of the same kinds, those that are taken or those that are not: how many,
    microseconds of all of them apart and as blocks, measured and as predicted (`apart`, `together`)."""

    model: str
    members: str
    taken: bool
    count: int
    apart_us: float
    block_us: float
    apart: float
    together: float

    def line(self) -> str:
        """A row of the table."""
        cells = [self.model, self.members, "yes" if self.taken else "no", str(self.count)]
        cells += [f"{self.apart_us:.0f}", f"{self.block_us:.0f}", f"**{self.apart_us / self.block_us:.2f}**"]
        return "| " + " | ".join([*cells, f"{self.apart / self.together:.2f}"]) + " |"


def compare(name: str, threads: int) -> list[Alike]:
    """The blocks of a model of the zoo."""
    model, feeds = fetch.path(name), inputs.example(name)
    chosen = account_of(compile_model(model, Options(threads=threads)))
    legal = [d for d in chosen.ledger if d.rule == "fuse.block" and not d.failed and _priced(d)]
    disjoint: list[Decision] = []
    seen: set[str] = set()
    for decision in legal:
        if seen.isdisjoint(decision.site):
            disjoint.append(decision)
            seen |= set(decision.site)
    pins = {decision.id: "block" for decision in disjoint}
    joined = _kernels(compile_model(model, Options(threads=threads, pins=pins)), feeds)
    apart = _kernels(compile_model(model, Options(threads=threads, disable=("fuse.block",))), feeds)
    found: dict[tuple[str, bool], list[tuple[float, float, float, float]]] = {}
    for decision in disjoint:
        nodes = set(decision.site)
        blocks = [kernel for kernel in joined if set(kernel["nodes"]) == nodes and "block" in kernel["name"]]
        parts = [kernel for kernel in apart if kernel["nodes"] and set(kernel["nodes"]) <= nodes]
        if len(blocks) != 1 or len(parts) < 2:
            continue  # several blocks of the same nodes, or one in an other variant
        seconds = {a.name: a.seconds or 0.0 for a in decision.alternatives}
        kinds = " -> ".join(_kind(kernel) for kernel in parts if "halo" not in kernel["name"])
        measured = (sum(map(_microseconds, parts)), _microseconds(blocks[0]))
        entry = (*measured, seconds["separate"], seconds["block"])
        found.setdefault((kinds, decision.preferred == "block"), []).append(entry)
    rows: list[Alike] = []
    for (kinds, taken), entries in found.items():
        apart_us, block_us, separate, together = (sum(column) for column in zip(*entries, strict=True))
        rows.append(Alike(name, kinds, taken, len(entries), apart_us, block_us, separate, together))
    return rows


def _priced(decision: Decision) -> bool:
    return all(alternative.seconds is not None for alternative in decision.alternatives)


def _kernels(artifact: Path, feeds: Mapping[str, Any]) -> list[dict[str, Any]]:
    return profile_of(artifact, feeds)["kernels"]


def _kind(kernel: Mapping[str, Any]) -> str:
    return kernel["name"].partition("_")[2]


def _microseconds(kernel: Mapping[str, Any]) -> float:
    return kernel["seconds"]["median"] * 1e6


def main(names: Sequence[str]) -> int:
    """Prints the table."""
    print(HEADER)
    for name in names or MODELS:
        for row in compare(name, 2):
            print(row.line(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The rows of graph optimisation: which rules do it, which tests hold them, and where they fire in the zoo.

    python -m benchmarks.capabilities
    python -m benchmarks.capabilities --file docs/rewrites.md --times

Every model of the zoo is rewritten twice: as `opweld optimize` does, and for ONNX Runtime. What compiling decides
instead, on the tensor program, is read off the ledgers of compilations. With `--times`, opweld's own latency on the
model where a row's rules fire most often: without by with them, in blocks of runs that alternate. Rules of rewriting
are applied alone, and opweld compiles what they leave; those of compiling are left at their baseline.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import opweld
from benchmarks.paired import BLOCK_S, REPOSITORY, REST_S, Contestant
from benchmarks.zoo import fetch, inputs
from benchmarks.zoo.catalogue import MODELS
from opweld.build.workspace import temporary_folder
from opweld.ledger import Ledger
from opweld.options import Options
from opweld.rewrite.optimize import optimize_as_asked, optimize_model
from opweld.rewrite.write import save
from opweld.rules import REWRITES


@dataclass(frozen=True)
class Row:
    """A capability: its letter, what it is, the rules of rewriting, those of compiling, the tests; `note` what else."""

    name: str
    what: str
    rewrites: Sequence[str]
    compiled: Sequence[str]
    tests: Sequence[str]
    note: str = ""


def _rules(*names: str) -> tuple[str, ...]:
    return tuple(f"rewrite.{name}" for name in names)


ROWS = (
    Row(
        "A1", "redundant nodes",
        _rules("redundant", "dead", "transposes", "transposed_batch", "reshapes", "casts", "split_concat",
               "concat_slice", "axes", "slices", "concats", "zero_states", "repeated", "limits",
               "requantized"),
        ("fuse.view",),
        ("test_redundant", "test_pairs", "test_joined", "test_states", "test_passes", "test_repeated",
         "test_requantized"),
    ),
    Row("A2", "constant folding", _rules("fold", "target"), (), ("test_passes", "test_bodies")),
    Row("A3", "common subgraphs", _rules("equal_nodes", "equal_tensors"), (), ("test_passes", "test_bodies")),
    Row("A4", "normalisation in weights", _rules("batch_normalization"), (), ("test_linear",)),
    Row(
        "A5", "bias, scale, padding in weights",
        _rules("bias", "scale", "scale_before", "shift_before", "scale_past", "padding"), (),
        ("test_linear", "test_scaled_past", "test_shift_before"),
    ),
    Row(
        "A6", "normalisation as scale and shift", (), ("fuse.chain", "fuse.epilogue"), (),
        "as any elementwise chain, of the tensor program",
    ),
    Row(
        "A7", "one operator for another", _rules("gemm", "one_slope", "consecutive", "one_place", "pointwise"),
        ("rewrite.consecutive",),
        ("test_linear", "test_joined", "test_consecutive", "test_places", "test_pointwise", "test_orders"),
        "products and convolutions are one thing in the tensor program",
    ),
    Row(
        "A8", "recognised whoever wrote them",
        _rules("gelu", "tanh_gelu", "sigmoid", "swish", "mish", "hard_swish", "hard_sigmoid", "layer_normalization",
               "rms_normalization", "skip_normalization", "softmax", "log_softmax", "attention", "rotary_embedding",
               "rotary_parts", "einsum",
               "fused_activation", "fused_matmul", "bias_gelu"),
        ("fuse.rows", "fuse.block"),
        ("test_activations", "test_normalization", "test_softmax", "test_attention", "test_rotary",
         "test_einsum", "test_fused"),
    ),
    Row(
        "A9", "hoisting",
        _rules("constants", "common_factor", "sum_of_products", "association", "selection", "branches", "sinking"),
        ("rewrite.selection",),
        ("test_selection", "test_branches", "test_sinking", "test_orders", "test_distributive"),
    ),
    Row(
        "A10", "horizontal merging", _rules("siblings", "parallel_convolutions"), (),
        ("test_siblings", "test_parallel"),
    ),
    Row("A11", "layout over the whole graph", (), ("place.order",), ()),
    Row("A12", "rules of users", (), (), ("test_added",), "`opweld.rules`, guides/your-own-rules-and-operators.md"),
    Row(
        "A13", "a plain ONNX file", (), (),
        ("test_optimize", "test_file", "test_large", "test_functions", "../account/test_regions"),
        "`opweld optimize`, `--keep-regions`",
    ),
    Row("A14", "operators of users", (), (), ("../ops/test_added", "../ops/test_kernel"), "`opweld.operators`"),
)  # fmt: skip

ROUNDS = 9
"""Blocks of runs of each of a pair."""

TESTS = Path(__file__).parents[1] / "tests/unit/rewrite"


def rewritten(models: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
    """By rule, how often it fires in each model in which it does, at the better of the two vocabularies."""
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for model in models:
        counts: Counter[str] = Counter()
        for contributed in (False, True):
            done = optimize_model(fetch.path(model), lambda: Ledger(rules=REWRITES), contributed)
            counts |= Counter(decision.rule for decision in done.ledger if decision.fired)
        for rule, count in counts.items():
            found[rule][model] = count
    return found


def compiled(models: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
    """The same for the decisions of compiling."""
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for model in models:
        ledger = Ledger.loads((opweld.compile(fetch.path(model)).path / "ledger.json").read_text(encoding="utf-8"))
        for rule, count in Counter(decision.rule for decision in ledger if decision.fired).items():
            found[rule][model] = count
    return found


Fired = Mapping[str, Mapping[str, int]]
"""By rule, by model, how often."""


def table(models: Sequence[str], timed: bool) -> str:
    """Markdown: one line a rule, under its row."""
    by_stage = {"rewrites": rewritten(models), "compiled": compiled(models)}
    lines = ["| row | rule | tests | fires in the zoo | opweld without / with |", "|---|---|---|---|---|"]
    for row in ROWS:
        tests = ", ".join(f"`{name.rpartition('/')[2]}`" for name in row.tests)
        lines.append(f"| **{row.name}** {row.what} | {row.note} | {tests} | | |")
        for stage, rules in (("rewrites", row.rewrites), ("compiled", row.compiled)):
            ratio = gain(rules, by_stage[stage], stage == "compiled") if timed else ""
            for rule in rules:
                places = by_stage[stage].get(rule, {})
                most = sorted(places, key=lambda name: -places[name])[:3]
                where = (
                    f"{len(places)} models, {sum(places.values())} times: {', '.join(most)}" if places else "nowhere"
                )
                when = " when compiling" if stage == "compiled" else ""
                lines.append(f"| | `{rule}`{when} | | {where} | {ratio} |")
                ratio = ""  # the rules of a row are timed together
    return "\n".join(lines) + "\n"


def gain(rules: Sequence[str], fired: Fired, compiling: bool) -> str:
    """opweld's time without some rules by that with them, where they fire most often."""
    counts: Counter[str] = Counter()
    for rule in rules:
        counts.update(fired.get(rule, {}))
    if not counts:
        return ""
    ((model, _),) = counts.most_common(1)
    original = fetch.path(model)
    with temporary_folder() as folder, contextlib.ExitStack() as stack:
        feeds, written = folder / "feeds.npz", folder / "written.onnx"
        np.savez(feeds, allow_pickle=False, **inputs.example(model))
        if not compiling:
            others = Options(disable=tuple(sorted(set(REWRITES) - set(rules))))
            save(optimize_as_asked(original, others, contributed=True), written)
        entries = [(original, rules), (original, ())] if compiling else [(original, ()), (written, ())]
        pair: list[Contestant] = []
        for source, disabled in entries:
            pair.append(Contestant(source.name, REPOSITORY, "opweld", source, feeds, 2, disabled))
            stack.callback(pair[-1].close)
            pair[-1].wait()
        for _ in range(ROUNDS):
            for contestant in pair:
                time.sleep(REST_S)
                contestant.block(BLOCK_S)
        low, ratio, high = pair[0].ratio_to(pair[1])
    print(f"{' '.join(rules)}: {model} {ratio:.2f} ({low:.2f} to {high:.2f})", flush=True)
    return f"{model}: {ratio:.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    """Prints the table, or writes it to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="of the zoo; left out: all")
    parser.add_argument("--file", type=Path, help="write the table there, with a heading")
    parser.add_argument("--times", action="store_true", help="opweld's latency without and with the rules of each row")
    given = parser.parse_args()
    text = table(given.models or list(MODELS), given.times)
    if given.file is None:
        print(text, end="")
    else:
        heading = "# What the graph optimiser does, and where\n\nMade by `python -m benchmarks.capabilities`.\n\n"
        given.file.write_text(heading + text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""What fusion is worth, rule by rule: models with a rule at its baseline beside the same with all rules.

    python -m benchmarks.fusion                          all cases; about ten minutes, nothing else may run
    python -m benchmarks.fusion softmax resnet50-raw     some of them
    python -m benchmarks.fusion --threads 1 --page ""    on one thread, printed only

The small cases are those that papers on fusion report; the models are exports that still hold their BatchNorms, GELUs
and LayerNorms as exporters write them. Both ways of a case run in one process, in alternating blocks. `bytes` is what
kernels must read and write at least, weights included; `arena` the memory of intermediate values. The page is
docs/fusion.md. `benchmarks.blocks` holds every block of contractions and windows beside the kernels that it would be.
The last table bounds what more fusion could gain: bytes that pass between kernels, and the part of a run that they take
at the bandwidth of L3.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks import blocks
from benchmarks.paired import REPOSITORY
from benchmarks.performance import machine
from benchmarks.zoo import fetch, inputs
from opweld.account.account import Account
from opweld.accounts import account_of
from opweld.analysis.alternate import Blocks, alternate_runs
from opweld.analysis.ceilings import measure as measure_machine
from opweld.analysis.machine import Machine
from opweld.cached import compile_model
from opweld.options import Options
from opweld.runtime.session import Session

PAGE = REPOSITORY / "docs" / "fusion.md"
BLOCKS = Blocks(rounds=7, block_s=0.2)
MODELS = ("resnet50-raw", "mobilenetv2-raw", "convnext-tiny-raw", "vit-base-raw", "bert-base-raw", "llama-160m-raw")
RULES = (
    "fuse",
    "fuse.epilogue",
    "fuse.rows",
    "fuse.chain",
    "fuse.view",
    "fuse.block",
    "place.rows",
    "place.slice",
    "place.split_k",
    "schedule.algorithm",
    "schedule.masked",
    "schedule.span",
    "schedule.prefetch",
)
HEADER = '<ir_version: 8, opset_import: ["" : 17]>'


@dataclass(frozen=True)
class Small:
    """A case of a few operators: ONNX's text, the shapes of stored weights, what the literature reports, and the rule
    that is switched off."""

    text: str
    known: str
    weights: Mapping[str, tuple[int, ...]]
    rule: str = "fuse"


def attention(length: int, causal: bool = False) -> str:
    """One head of 64, as exporters write it."""
    at = f"float[{length}, 64]"
    mask = """i = Range(begin, length, step) r = Unsqueeze(i, last) seen = GreaterOrEqual(r, i)
        m = Where(seen, a, never)"""
    return f"""g ({at} q, {at} k, {at} v) => ({at} y) <float scale = {{0.125}}, float never = {{-inf}},
        int64 begin = {{0}}, int64 length = {{{length}}}, int64 step = {{1}}, int64[1] last = {{1}}> {{
        t = Transpose <perm = [1, 0]> (k) s = MatMul(q, t) a = Mul(s, scale) {mask if causal else ""}
        p = Softmax({"m" if causal else "a"}) y = MatMul(p, v) }}"""


FLASH = "memory O(N^2) -> O(N), memory accesses 4 to 10 times fewer, 2 to 4 times faster (GPU)"
HALF = "half of the blocks: 1.7 to 1.8 times faster (GPU)"
SMALL: Mapping[str, Small] = {
    "matmul + sigmoid": Small(
        "g (float[1024, 1024] x, float[1024, 1024] w) => (float[1024, 1024] y) { m = MatMul(x, w) y = Sigmoid(m) }",
        "one write and one read of the product saved",
        {"w": (1024, 1024)},
    ),
    "conv + batch norm + relu": Small(
        """g (float[1, 64, 56, 56] x, float[64, 64, 3, 3] w, float[64] s, float[64] b, float[64] m, float[64] v)
            => (float[1, 64, 1, 1] y) { c = Conv <pads = [1, 1, 1, 1]> (x, w)
                n = BatchNormalization(c, s, b, m, v) r = Relu(n) y = GlobalAveragePool(r) }""",
        "on ResNet-50 15 to 25% faster, activations' memory about 30% less (GPU)",
        {"w": (64, 64, 3, 3), "s": (64,), "b": (64,), "m": (64,), "v": (64,)},
    ),
    "eight elementwise": Small(
        """g (float[2048, 4096] x, float[4096] w) => (float[2048, 4096] y) { a = Mul(x, w) b = Add(a, x) c = Relu(b)
            d = Sub(c, w) e = Abs(d) f = Mul(e, x) g = Neg(f) y = Add(g, w) }""",
        "2 to 5 times faster, launches n -> 1",
        {"w": (4096,)},
    ),
    "layer norm": Small(
        """g (float[4096, 1024] x, float[1024] s, float[1024] b) => (float[4096, 1024] y) {
            y = LayerNormalization(x, s, b) }""",
        "tensor passes 3 -> 1",
        {"s": (1024,), "b": (1024,)},
    ),
    "residual + layer norm": Small(
        """g (float[4096, 1024] x, float[4096, 1024] z, float[1024] s, float[1024] b) => (float[4096, 1024] y) {
            r = Add(x, z) y = LayerNormalization(r, s, b) }""",
        "tensor passes 5 -> 3, launches 2 -> 1",
        {"s": (1024,), "b": (1024,)},
    ),
    "softmax": Small("g (float[4096, 4096] x) => (float[4096, 4096] y) { y = Softmax(x) }", "", {}),
    "attention 512": Small(attention(512), FLASH, {}),
    "attention 2,048": Small(attention(2048), FLASH, {}),
    "attention 8,192": Small(attention(8192), FLASH, {}),
    "causal attention 2,048": Small(attention(2048, causal=True), HALF, {}, "schedule.masked"),
}


@dataclass(frozen=True)
class Way:
    """A case compiled one way: milliseconds of a run, kernels, bytes that they move, bytes of the arena."""

    milliseconds: float
    kernels: int
    bytes: int
    arena: int


@dataclass(frozen=True)
class Pair:
    """A case with a rule at its baseline (`off`) and with all rules. `fired`: decisions of it that did something.
    `faster`: how often, the median over blocks that follow one another; `low`, `high`: its quartiles."""

    case: str
    rule: str
    fired: int
    off: Way
    on: Way
    faster: float
    low: float
    high: float
    known: str = ""

    def line(self) -> str:
        """A row of the table."""
        cells = [self.case, f"`{self.rule}`", str(self.fired)]
        for number, unit in (("milliseconds", 1.0), ("kernels", 1), ("bytes", 1e6), ("arena", 1e6)):
            off, on = getattr(self.off, number) / unit, getattr(self.on, number) / unit
            cells.append(
                f"{off:.3g} -> {on:.3g}" if unit != 1 or number == "milliseconds" else f"{off:.0f} -> {on:.0f}"
            )
        faster = f"**{self.faster:.2f}** ({self.low:.2f} to {self.high:.2f})"
        return "| " + " | ".join([*cells, faster, self.known]) + " |"


def of_small(small: Small, path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Writes the model of a small case; its feeds."""
    model = onnx.parser.parse_model(f"{HEADER} {small.text}")
    random = np.random.default_rng(0)
    for value in list(model.graph.input):
        if value.name in small.weights:
            array = random.uniform(0.5, 1.5, small.weights[value.name]).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
            model.graph.input.remove(value)
    onnx.save(model, path)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@dataclass(frozen=True)
class Left:
    """What passes between the kernels of a model when all rules are on: bytes written and read, and the part of a run
    that they would take if nothing were computed beside and all of them came from L3."""

    case: str
    bytes: int
    part: float

    def line(self) -> str:
        """A row of the table."""
        return f"| {self.case} | {self.bytes / 1e6:.1f} | {self.part:.1%} |"


def left(case: str, model: Path, pairs: Sequence[Pair], threads: int) -> Left:
    """For a model of which a run was timed."""
    account = account_of(compile_model(model, Options(threads=threads)))
    passed = sum(kernel.bytes - kernel.weights for kernel in account.kernels)
    level = (Machine.remembered() or measure_machine()).level("L3")
    assert level is not None
    run = min(pair.on.milliseconds for pair in pairs) * 1e-3
    return Left(case, passed, passed / level.read.at(threads) / run)


def measure(case: str, model: Path, feeds: Mapping[str, Any], rules: Sequence[str], threads: int) -> list[Pair]:
    """The case with each rule at its baseline, where it does something."""
    folder = compile_model(model, Options(threads=threads))
    session, account = Session(folder, threads=threads), account_of(folder)
    known = SMALL[case].known if case in SMALL else ""
    found: list[Pair] = []
    for rule in rules:
        fired = sum(d.fired for d in account.ledger if d.rule == rule or d.stage == rule)
        if not fired:
            continue
        other = compile_model(model, Options(threads=threads, disable=(rule,)))
        if rule.startswith("fuse") and _moved(account_of(other)) == _moved(account):
            continue  # other rules did the same
        sessions = {"on": session, "off": Session(other, threads=threads)}
        contestants: dict[str, Callable[[], object]] = {
            name: (lambda one=one: one.run_tensors(feeds) and None) for name, one in sessions.items()
        }
        runs = alternate_runs(contestants, BLOCKS)
        ways: dict[str, Way] = {}
        for name, made in (("on", folder), ("off", other)):
            own, plan = account_of(made), sessions[name].plan(feeds)
            milliseconds = float(np.median([run.seconds for run in runs[name]])) * 1e3
            ways[name] = Way(milliseconds, len(own.kernels), own.bytes, plan.arena)
        parts = [np.array_split([run.seconds for run in runs[name]], BLOCKS.rounds) for name in ("off", "on")]
        ratios = [float(np.median(off) / np.median(on)) for off, on in zip(*parts, strict=True)]
        low, faster, high = (float(value) for value in np.percentile(ratios, (25, 50, 75)))
        found.append(Pair(case, rule, fired, ways["off"], ways["on"], faster, low, high, known))
        print(found[-1].line(), flush=True)
    return found


def _moved(account: Account) -> tuple[int, int]:
    return len(account.kernels), account.bytes


def page(
    pairs: Sequence[Pair],
    across: Sequence[blocks.Alike],
    lefts: Sequence[Left],
    about: Mapping[str, str],
    threads: int,
) -> str:
    """docs/fusion.md."""
    head = (
        "| case | off | decisions | ms | kernels | MB moved | MB arena | faster | known |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    lines = [
        "# What fusion is worth",
        "",
        "Made by `python -m benchmarks.fusion`, whose docstring says how. Each row is a model without a rule ->",
        "with it: median of a run, kernels, bytes that kernels must move at least, memory of intermediate values, how",
        "often faster (the median of blocks that follow one another, and its quartiles).",
        "`fuse` switches all of fusion off, the others one rule (`schedule.algorithm` is Winograd's convolution).",
        "`known` is what papers report, mostly of GPUs.",
        "",
        f"{'; '.join(f'{name} {value}' for name, value in about.items())}; {threads} threads.",
        "",
        "## What papers report",
        "",
        head,
        *(pair.line() for pair in pairs if pair.case in SMALL),
        "",
        "## Exports as they come, rule by rule",
        "",
        head.replace(" known |", "", 1).replace("---|", "", 1),
        *(pair.line().removesuffix("  |") for pair in pairs if pair.case not in SMALL),
        "",
        "## Across contractions",
        "",
        "Blocks of several contractions, windows and rows beside the kernels that they would be, wherever they are",
        "legal: `taken` are those that are predicted to gain at least 3%; of the others prediction says that they do",
        "not pay, but for rows before weights, which stay apart whatever is predicted. Microseconds of all that are",
        "alike, and how often faster a block is, measured and predicted.",
        "",
        blocks.HEADER,
        *(row.line() for row in across),
        "",
        "No block, and what it could gain at most: a convolution and the pooling behind it (the only one of the six",
        "architectures is ResNet-50's first, 3.2 MB once written and once read: 0.6% of a run at the bandwidth of L3",
        "of an Intel Xeon, family 6, model 167); products behind a convolution of 3 x 3, which takes fewer products by",
        "Winograd's algorithm alone. An upsampling that is added is index arithmetic in the addition (`fuse.view`),",
        "SwiGLU and residuals are epilogues.",
        "",
        "## What is left to fuse",
        "",
        "Values that one kernel writes and another reads, the model's inputs and outputs with them, at the bandwidth",
        "of L3, where most of them are nearer: no fusion of what still is apart can gain a larger part of a run.",
        "",
        "| model | MB between kernels | at most, of a run |",
        "|---|---|---|",
        *(one.line() for one in lefts),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measures, prints and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join((*SMALL, *MODELS))}; left out: all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--page", default=str(PAGE), metavar="FILE")
    options = parser.parse_args()
    unknown = sorted(set(options.cases) - {*SMALL, *MODELS})
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}")
    pairs: list[Pair] = []
    across: list[blocks.Alike] = []
    lefts: list[Left] = []
    with tempfile.TemporaryDirectory(prefix="opweld-fusion-") as folder:
        for case in options.cases or (*SMALL, *MODELS):
            if case in SMALL:
                path = Path(folder) / f"{len(pairs)}.onnx"
                pairs += measure(case, path, of_small(SMALL[case], path), (SMALL[case].rule,), options.threads)
            else:
                found = measure(case, fetch.path(case), inputs.example(case), RULES, options.threads)
                lefts.append(left(case, fetch.path(case), found, options.threads))
                print(lefts[-1].line(), flush=True)
                pairs += found
    for case in blocks.MODELS if not options.cases else [case for case in options.cases if case in blocks.MODELS]:
        across += blocks.compare(case, options.threads)
        print("\n".join(row.line() for row in across if row.model == case), flush=True)
    if options.page:
        Path(options.page).write_text(page(pairs, across, lefts, machine(), options.threads), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

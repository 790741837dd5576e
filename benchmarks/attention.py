"""Attention as sequences grow: one kernel or three, and other runtimes, with the time and the memory that each takes.

    python -m benchmarks.attention                             one head of 64, lengths from 512 to 131,072
    python -m benchmarks.attention 1024 4096 --heads 8 --vs onnxruntime,openvino
    python -m benchmarks.attention --disable fuse.block        also with the rule at its baseline: three kernels

The model is softmax(q k^T / 8) v as exporters write it: two MatMuls, a Mul and a Softmax, length and batch fixed. Each
contestant has a process of its own, and they take turns; `peak` is the most memory that the process had, less what it
had with the shortest sequence: what grows with the length. Scores of the whole sequence would be length^2 floats. A
contestant that fails, or would need more memory than `--memory`, is left out of longer ones, and the table says so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.paired import REPOSITORY, Contestant, contest

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
HEAD = 64
QUICK_S = 2.0
"""Runs that take longer are timed in one block."""


@dataclass(frozen=True)
class Cell:
    """A contestant at one length: the median of a run in ms, GFLOP/s of it, and the peak memory of its process in MiB;
    or why there is none."""

    contestant: str
    length: int
    milliseconds: float = 0.0
    gflops: float = 0.0
    peak: float = 0.0
    problem: str = ""


def attention(length: int, heads: int, causal: bool) -> onnx.ModelProto:
    """softmax(q k^T / 8 + mask) v of `heads` heads; a causal mask is computed from positions, as exporters write it."""
    shape = [1, heads, length, HEAD]
    nodes = [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["s"]),
        helper.make_node("Mul", ["s", "scale"], ["scaled"]),
    ]
    weights = [numpy_helper.from_array(np.array(HEAD**-0.5, np.float32), "scale")]
    scores = "scaled"
    if causal:
        positions = np.arange(length, dtype=np.int64)
        weights += [
            numpy_helper.from_array(positions[:, None], "rows"),
            numpy_helper.from_array(positions[None, :], "columns"),
            numpy_helper.from_array(np.array(-np.inf, np.float32), "never"),
        ]
        nodes += [
            helper.make_node("GreaterOrEqual", ["rows", "columns"], ["seen"]),
            helper.make_node("Where", ["seen", "scaled", "never"], ["masked"]),
        ]
        scores = "masked"
    nodes += [
        helper.make_node("Softmax", [scores], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "qkv"]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "attention", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def measure(length: int, options: argparse.Namespace, gone: set[str]) -> list[Cell]:
    """All contestants that are left, at one length."""
    heads, threads = options.heads, options.threads
    flops = 4.0 * heads * length * length * HEAD / (2 if options.causal else 1)
    scores = 4.0 * heads * length * length / 2**30
    entries: list[tuple[str, str, Sequence[str]]] = [("opweld", "opweld", ())]
    entries += [(f"without {rule}", "opweld", (rule,)) for rule in options.disable]
    entries += [(peer, peer, ()) for peer in options.vs.split(",") if peer]
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory(prefix="opweld-attention-") as folder, contextlib.ExitStack() as stack:
        model, feeds = Path(folder) / "attention.onnx", Path(folder) / "feeds.npz"
        onnx.save(attention(length, heads, options.causal), model)
        random = np.random.default_rng(0)
        arrays = {name: random.normal(size=(1, heads, length, HEAD)).astype(np.float32) for name in "qkv"}
        np.savez(feeds, allow_pickle=False, **arrays)
        contestants: list[Contestant] = []
        for name, runtime, disable in entries:
            whole = name != "opweld"
            if name in gone or (whole and 2 * scores > options.memory):
                gone.add(name)
                problem = f"scores of {scores:.0f} GiB, twice" if 2 * scores > options.memory else "failed before"
                cells.append(Cell(name, length, problem=problem))
                continue
            contestants.append(Contestant(name, REPOSITORY, runtime, model, feeds, threads, disable))
        opened = contest(contestants[:1], 1, stack, f"{length}: ")
        rounds = options.rounds if opened[0].median < QUICK_S else 1
        opened += contest(contestants[1:], 0, stack, f"{length}: ")
        for _ in range(rounds):
            for contestant in opened:
                contestant.block(0.25)
        for contestant in opened:
            peak = contestant.opened["peak"] / 2**20
            cells.append(Cell(contestant.name, length, contestant.median * 1e3, flops / contestant.median * 1e-9, peak))
        gone |= {c.name for c in contestants} - {c.name for c in opened}
    return cells


def main() -> int:
    """Prints a line for each contestant and length as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lengths", nargs="*", type=int, default=list(LENGTHS))
    parser.add_argument("--heads", type=int, default=1)
    parser.add_argument("--causal", action="store_true", help="each place sees those before it")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5, help="blocks of a contestant, of runs that take less than 2 s")
    parser.add_argument("--vs", default="", metavar="NAMES", help="onnxruntime, openvino")
    parser.add_argument("--disable", action="append", default=[], metavar="RULE", help="opweld once more without it")
    parser.add_argument("--memory", type=float, default=8.0, metavar="GIB", help="that scores may take")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    gone: set[str] = set()
    cells: list[Cell] = []
    for length in options.lengths:
        for cell in measure(length, options, gone):
            cells.append(cell)
            what = cell.problem or f"{cell.milliseconds:12.3f} ms {cell.gflops:7.1f} GFLOP/s {cell.peak:8.0f} MiB"
            print(f"{cell.length:>7}  {cell.contestant:<20} {what}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(cell) for cell in cells], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

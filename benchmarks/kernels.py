"""Every kind of kernel over a table of shapes: its time beside the floor, and the registers, spills and stack it takes.

    python -m benchmarks.kernels                       all shapes, two threads
    python -m benchmarks.kernels gemm conv --threads 1 those whose names begin so
    python -m benchmarks.kernels --vs a58b94a          and the same shapes compiled by another revision, in turns
    python -m benchmarks.kernels --resources           without timing anything: what kernels take of a core

A shape is a model of a node or a few. `floor` is what the machine needs at least (`opweld machine` measures it), as a
part of the time that all kernels of the model take; spills are vector registers that innermost loops move to the stack
and back.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.attention import attention
from benchmarks.paired import REPOSITORY, Contestant, contest, revision

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """A shape: its kernels; vector registers of the one that is predicted to take the most, spills and stack of all;
    ms that they take, the floor as a part of it; another revision's time by this one's."""

    shape: str
    kernels: str
    registers: int
    spills: int
    stack: int
    milliseconds: float = 0.0
    floor: float = 0.0
    ratio: float = 0.0


class _Graph:
    """A model of a few nodes: x and what else is fed, weights of small random numbers."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._random = np.random.default_rng(0)

    def input(self, name: str, shape: Shape) -> str:
        """Something that is fed."""
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def weight(self, *shape: int) -> str:
        """A constant."""
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(self._random.normal(0, 0.1, shape).astype(np.float32), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output."""
        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], name=f"{kind}_{len(self._nodes)}", **attributes))
        return name

    def model(self, output: str) -> onnx.ModelProto:
        """The model of one output."""
        made = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self._nodes, "kernel", self._inputs, [made], self._weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def gemm(m: int, n: int, k: int) -> onnx.ModelProto:
    """relu(x w + b), as a layer has it."""
    g = _Graph()
    product = g.node("MatMul", g.input("x", (m, k)), g.weight(k, n))
    return g.model(g.node("Relu", g.node("Add", product, g.weight(n))))


def products(batch: int, m: int, n: int, k: int) -> onnx.ModelProto:
    """A batch of products of two operands that are fed."""
    g = _Graph()
    return g.model(g.node("MatMul", g.input("x", (batch, m, k)), g.input("y", (batch, k, n))))


def conv(ci: int, co: int, size: int, kernel: int, stride: int = 1, group: int = 1) -> onnx.ModelProto:
    """A convolution of a picture, its bias and ReLU."""
    g = _Graph()
    pads = [kernel // 2] * 4
    x = g.input("x", (1, ci, size, size))
    weights = g.weight(co, ci // group, kernel, kernel)
    made = g.node("Conv", x, weights, g.weight(co), pads=pads, strides=[stride] * 2, group=group)
    return g.model(g.node("Relu", made))


def conv1d(ci: int, co: int, length: int, kernel: int) -> onnx.ModelProto:
    """A convolution of a signal."""
    g = _Graph()
    x = g.input("x", (1, ci, length))
    return g.model(g.node("Conv", x, g.weight(co, ci, kernel), g.weight(co), pads=[kernel // 2] * 2))


def transposed(ci: int, co: int, size: int) -> onnx.ModelProto:
    """A transposed convolution that doubles a picture."""
    g = _Graph()
    x = g.input("x", (1, ci, size, size))
    return g.model(g.node("ConvTranspose", x, g.weight(ci, co, 2, 2), g.weight(co), strides=[2, 2]))


def pool(channels: int, size: int, kernel: int, stride: int) -> onnx.ModelProto:
    """The largest of a window."""
    g = _Graph()
    x = g.input("x", (1, channels, size, size))
    return g.model(g.node("MaxPool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4))


def softmax(rows: int, columns: int) -> onnx.ModelProto:
    """Over the last axis."""
    g = _Graph()
    return g.model(g.node("Softmax", g.input("x", (rows, columns)), axis=-1))


def layer_norm(rows: int, columns: int) -> onnx.ModelProto:
    """Of a sum, as in a transformer."""
    g = _Graph()
    total = g.node("Add", g.input("x", (rows, columns)), g.input("y", (rows, columns)))
    return g.model(g.node("LayerNormalization", total, g.weight(columns), g.weight(columns), axis=-1))


def global_pool(channels: int, size: int) -> onnx.ModelProto:
    """The mean of each channel."""
    g = _Graph()
    return g.model(g.node("GlobalAveragePool", g.input("x", (1, channels, size, size))))


def elementwise(rows: int, columns: int, *kinds: str) -> onnx.ModelProto:
    """A chain of functions and the sum with what they began with."""
    g = _Graph()
    value = x = g.input("x", (rows, columns))
    for kind in kinds:
        value = g.node(kind, value)
    return g.model(g.node("Add", value, x))


def transpose(rows: int, columns: int) -> onnx.ModelProto:
    """A matrix on its side."""
    g = _Graph()
    return g.model(g.node("Transpose", g.input("x", (rows, columns)), perm=[1, 0]))


SHAPES: dict[str, Callable[[], onnx.ModelProto]] = {
    "gemm 128 x 3072 x 768": lambda: gemm(128, 3072, 768),
    "gemm 128 x 768 x 3072": lambda: gemm(128, 768, 3072),
    "gemm 197 x 768 x 768": lambda: gemm(197, 768, 768),
    "gemm 64 x 384 x 1536": lambda: gemm(64, 384, 1536),
    "gemm 16 x 1024 x 1024": lambda: gemm(16, 1024, 1024),
    "gemm 4 x 2048 x 2048": lambda: gemm(4, 2048, 2048),
    "gemm 1 x 4096 x 4096": lambda: gemm(1, 4096, 4096),
    "products 12 of 128 x 128 x 64": lambda: products(12, 128, 128, 64),
    "conv 1x1 256 -> 64, 56": lambda: conv(256, 64, 56, 1),
    "conv 1x1 s2 256 -> 512, 56": lambda: conv(256, 512, 56, 1, 2),
    "conv 3x3 64 -> 64, 56": lambda: conv(64, 64, 56, 3),
    "conv 3x3 512 -> 512, 7": lambda: conv(512, 512, 7, 3),
    "conv 3x3 s2 128 -> 128, 56": lambda: conv(128, 128, 56, 3, 2),
    "conv 3x3 96 -> 24, 80": lambda: conv(96, 24, 80, 3),
    "conv 3x3 32 -> 1, 160": lambda: conv(32, 1, 160, 3),
    "conv 7x7 s2 3 -> 64, 224": lambda: conv(3, 64, 224, 7, 2),
    "conv 3x3 128 in 32 groups, 28": lambda: conv(128, 128, 28, 3, 1, 32),
    "conv1d 5 512 -> 256, 257": lambda: conv1d(512, 256, 257, 5),
    "transposed 2x2 24 -> 24, 80": lambda: transposed(24, 24, 80),
    "depthwise 3x3 144, 56": lambda: conv(144, 144, 56, 3, 1, 144),
    "depthwise 3x3 s2 144, 56": lambda: conv(144, 144, 56, 3, 2, 144),
    "depthwise 5x5 96, 40": lambda: conv(96, 96, 40, 5, 1, 96),
    "depthwise 7x7 96, 56": lambda: conv(96, 96, 56, 7, 1, 96),
    "pool 3x3 s2 64, 112": lambda: pool(64, 112, 3, 2),
    "softmax 1536 x 128": lambda: softmax(1536, 128),
    "softmax 64 x 8192": lambda: softmax(64, 8192),
    "layer_norm 128 x 768": lambda: layer_norm(128, 768),
    "layer_norm 197 x 768": lambda: layer_norm(197, 768),
    "global_pool 1280, 7": lambda: global_pool(1280, 7),
    "tanh, sigmoid 128 x 3072": lambda: elementwise(128, 3072, "Tanh", "Sigmoid"),
    "exp, erf 128 x 3072": lambda: elementwise(128, 3072, "Exp", "Erf"),
    "transpose 768 x 1024": lambda: transpose(768, 1024),
    "attention 12 of 128 x 64": lambda: attention(128, 12, False),
    "attention 12 of 197 x 64": lambda: attention(197, 12, False),
    "attention 1 of 4096 x 64": lambda: attention(4096, 1, False),
    "attention, causal 8 of 512 x 64": lambda: attention(512, 8, True),
}
"""By name: kind, then sizes; of products rows x columns x what is summed."""


def row_of(shape: str, model: Path, threads: int, timed: bool) -> Row:
    """The kernels of a shape, timed or not."""
    import opweld
    from opweld.accounts import account_of
    from opweld.analysis.machine import Machine
    from opweld.analysis.resources import Resources, kernel_resources
    from opweld.cli.profile import taken

    compiled = opweld.compile(str(model), threads=threads)
    resources, account = kernel_resources(compiled.path), account_of(compiled.path)
    longest = max(account.kernels, key=lambda kernel: kernel.seconds)
    found = resources.get(f"{account.record.usual[0].name}/{longest.name}", Resources(0, (), 0))
    spilled = sum(len(one.spills) for one in resources.values())
    stack = max((one.stack for one in resources.values()), default=0)
    names = ", ".join(kernel.name.partition("_")[2] for kernel in account.kernels)
    if not timed:
        return Row(shape, names, found.registers, spilled, stack)
    made = taken(compiled.session, feeds_of(compiled), account, Machine.remembered())
    seconds = sum(kernel.seconds.median for kernel in made.kernels)
    floor = sum(kernel.judgement.bound.floor for kernel in made.kernels if kernel.judgement.bound is not None)
    return Row(shape, names, found.registers, spilled, stack, seconds * 1e3, floor / seconds)


def feeds_of(model: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Random numbers for all inputs."""
    random = np.random.default_rng(0)
    return {info.name: random.normal(size=info.shape).astype(np.float32) for info in model.inputs}


def ratio_to(old: str, tree: Path, model: Path, threads: int, rounds: int) -> float:
    """The time of a model compiled by another revision, by that of this one; they take turns."""
    import opweld

    with tempfile.TemporaryDirectory(prefix="opweld-kernels-") as folder, contextlib.ExitStack() as stack:
        feeds = Path(folder) / "feeds.npz"
        np.savez(feeds, allow_pickle=False, **feeds_of(opweld.compile(str(model), threads=threads)))
        started = [
            Contestant(name, source, "opweld", model, feeds, threads)
            for name, source in (("this", REPOSITORY), (old, tree))
        ]
        mine, other = contest(started, rounds, stack, "")
        return other.ratio_to(mine)[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a row for each shape as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="what the shapes begin with; left out: all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vs", metavar="REVISION", help="any name git knows")
    parser.add_argument("--rounds", type=int, default=5, help="blocks of each revision")
    parser.add_argument("--resources", action="store_true", help="time nothing")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    names = [name for name in SHAPES if not options.names or name.startswith(tuple(options.names))]
    rows: list[Row] = []
    print(f"{'shape':<32} {'ms':>8} {'floor':>6} {'ratio':>6} {'registers':>9} {'spills':>6} {'stack':>6}  kernels")
    with contextlib.ExitStack() as stack:
        tree = stack.enter_context(revision(options.vs)) if options.vs else None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="opweld-kernels-")))
        for name in names:
            model = folder / "kernel.onnx"
            onnx.save(SHAPES[name](), model)
            row = row_of(name, model, options.threads, not options.resources)
            if tree is not None:
                row = replace(row, ratio=ratio_to(options.vs, tree, model, options.threads, options.rounds))
            rows.append(row)
            times = f"{row.milliseconds:8.3f} {row.floor:6.0%}" if row.milliseconds else f"{'':8} {'':6}"
            ratio = f"{row.ratio:6.2f}" if row.ratio else " " * 6
            print(
                f"{name:<32} {times} {ratio} {row.registers:9} {row.spills:6} {row.stack:6}  {row.kernels}", flush=True
            )
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

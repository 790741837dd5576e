"""Predicted bytes of kernels beside those that a cache simulator counts.

    python -m benchmarks.cachesim            five kernels, built for x86-64-v3 (the simulator knows no AVX-512)
    python -m benchmarks.cachesim --json FILE

Each kernel is a model of its own, compiled and run once from C (examples/c) under Cachegrind, which simulates a
first-level and a last-level cache of the sizes that the target has. `moved` are the bytes that a kernel must read and
write, each value once: what `opweld analyze` counts. What comes from beyond a cache is compared with its misses, of
64 bytes each. Needs valgrind (apt install valgrind).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import opweld
from opweld.accounts import account_of
from opweld.record import KernelEntry
from opweld.target import Target

TARGET = "x86-64-v3"
LINE = 64
EXAMPLE = Path(__file__).parents[1] / "examples" / "c"


@dataclass(frozen=True)
class Case:
    """A model of one kernel: its graph in ONNX's text form, stored tensors, and what it is fed, by shape."""

    name: str
    graph: str
    weights: Mapping[str, tuple[int, ...]]
    feeds: Mapping[str, tuple[int, ...]]


CASES = (
    Case(
        "relu, 1 M elements",
        "g (float[1048576] x) => (float[1048576] y) { y = Relu(x) }",
        {},
        {"x": (1 << 20,)},
    ),
    Case(
        "softmax, 512 x 1024",
        "g (float[512, 1024] x) => (float[512, 1024] y) { y = Softmax(x) }",
        {},
        {"x": (512, 1024)},
    ),
    Case(
        "matmul, 256 x 512 x 512",
        "g (float[256, 512] x) => (float[256, 512] y) { y = MatMul(x, w) }",
        {"w": (512, 512)},
        {"x": (256, 512)},
    ),
    Case(
        "layer norm + residual, 512 x 768",
        "g (float[512, 768] x, float[512, 768] z) => (float[512, 768] y) { a = Add(x, z) "
        "y = LayerNormalization(a, s, b) }",
        {"s": (768,), "b": (768,)},
        {"x": (512, 768), "z": (512, 768)},
    ),
    Case(
        "max pool, 64 x 112 x 112",
        "g (float[1, 64, 112, 112] x) => (float[1, 64, 56, 56] y) "
        "{ y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) }",
        {},
        {"x": (1, 64, 112, 112)},
    ),
)


@dataclass(frozen=True)
class Row:
    """A kernel: bytes that it must move, and those predicted to come to the first-level cache, and from beyond the
    second, beside the simulator's."""

    case: str
    kernel: str
    moved: int
    near: float
    far: float
    simulated_near: int
    simulated_far: int

    @property
    def ratios(self) -> tuple[float, float]:
        """Predicted by simulated bytes: to the first level, from beyond the last."""
        return self.near / self.simulated_near, self.far / max(1, self.simulated_far)


def measure(case: Case, folder: Path) -> list[Row]:
    """Compiles, runs and compares a case; a row for each of its kernels."""
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {case.graph}')
    for name, shape in case.weights.items():
        model.graph.initializer.append(numpy_helper.from_array(random.standard_normal(shape, np.float32), name))
    path = folder / "model.onnx"
    onnx.save(model, path)
    artifact = opweld.compile(path, target=TARGET).save(folder / "model.opweld")
    command = [str(_driver(artifact, folder)), str(artifact), "--threads", "1", "--output", str(folder)]
    for name, shape in case.feeds.items():
        np.save(folder / f"{name}.npy", random.standard_normal(shape, np.float32))
        command += ["--input", f"{name}={folder / name}.npy"]
    (variant,) = account_of(artifact).record.usual
    misses = simulate(command, folder / "cachegrind.out", [kernel.name for kernel in variant.kernels])
    return [_row(case, kernel, misses[kernel.name]) for kernel in variant.kernels]


def _row(case: Case, kernel: KernelEntry, misses: tuple[int, int]) -> Row:
    p = kernel.predicted
    return Row(case.name, kernel.name, kernel.bytes, p.l2, p.l3 + p.dram, misses[0] * LINE, misses[1] * LINE)


def _driver(artifact: Path, folder: Path) -> Path:
    program = folder / "run_model"
    command = [sys.executable, "-m", "ziglang", "cc", "-O1", "-std=gnu11", f"-I{artifact / 'include'}"]
    command += [str(EXAMPLE / "run_model.c"), str(EXAMPLE / "npy.c"), str(artifact / "runtime.so")]
    subprocess.run([*command, f"-Wl,-rpath,{artifact}", "-o", str(program)], check=True, timeout=300)
    return program


def simulate(command: Sequence[str], out: Path, kernels: Sequence[str]) -> dict[str, tuple[int, int]]:
    """For each kernel, misses of the first-level data cache and of the last one, from symbols that hold its name."""
    target = Target.of(TARGET)
    caches = [f"--D1={target.l1_bytes},8,{LINE}", f"--LL={target.l2_bytes},8,{LINE}"]
    tool = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", *caches, f"--cachegrind-out-file={out}", "--quiet"]
    answer = subprocess.run([*tool, *command], capture_output=True, text=True, check=False, timeout=600)
    if answer.returncode:
        raise SystemExit(f"valgrind: {answer.stderr}")
    found: dict[str, tuple[int, int]] = dict.fromkeys(kernels, (0, 0))
    columns: list[str] = []
    function = ""
    for line in out.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("events:"):
            columns = line.split()[1:]
        elif line.startswith("fn="):
            function = line[3:]
        elif line[:1].isdigit():
            counts = dict(zip(columns, map(int, line.split()[1:]), strict=True))
            for kernel in kernels:
                if kernel in function:
                    near, far = found[kernel]
                    near += counts["D1mr"] + counts["D1mw"]
                    far += counts["DLmr"] + counts["DLmw"]
                    found[kernel] = near, far
    return found


def main() -> None:
    """Prints a row for each kernel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON too")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed: apt install valgrind")
    rows: list[Row] = []
    print(
        f"{'kernel':46} {'moved':>9} {'to L1':>9} {'sim':>9} {'ratio':>6} {'from beyond':>11} {'sim':>9} {'ratio':>6}"
    )
    for case in CASES:
        with TemporaryDirectory() as folder:
            for row in measure(case, Path(folder)):
                near, far = row.ratios
                print(
                    f"{case.name + ' ' + row.kernel:46} {row.moved:9,} {row.near:9,.0f} {row.simulated_near:9,} "
                    f"{near:6.2f} {row.far:11,.0f} {row.simulated_far:9,} {far:6.2f}",
                    flush=True,
                )
                rows.append(row)
    if arguments.json:
        data: Any = [asdict(row) for row in rows]
        Path(arguments.json).write_text(json.dumps(data, indent=2) + "\n")


if __name__ == "__main__":
    main()

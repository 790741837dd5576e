"""Kernels with specialised warps on an H100 or H200, which no default is yet: right, and how fast beside the defaults
and the libraries.

    python -m benchmarks.gpu_specialized --seconds 120 --json specialized.json

A kernel whose warps wait for one another can hang: items run in a process that is ended when one takes too long, and
the next process goes on behind it. What is wrong is not timed. All are compiled first, by processes that leave them in
Triton's cache. What is measured stands in the file as soon as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product as pairs
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu_attention import PEERS, Shape, forward
from benchmarks.gpu_attention_tune import told
from benchmarks.gpu_kernel_checks import normal
from benchmarks.gpu_timing import median_ms
from opweld.kernels.flash_forward import SPECIALIZED, forward_launch
from opweld.kernels.flash_problem import Configuration, Problem
from opweld.kernels.product import SPECIALIZED as PRODUCTS
from opweld.kernels.product import Configuration as Tile
from opweld.kernels.product import product
from tests.kernels.attention_oracle import attention

BF16 = torch.bfloat16
WORKERS = min(14, os.cpu_count() or 1)
STALL_S = 10.0
"""What an item may take; the first of a process, which imports PyTorch, twice as long."""

LENGTHS = (4096, 16384, 1024)
SIZES = (4096, 8192)
ODD = ((1, 2, 2, 256, 256), (2, 4, 2, 321, 512), (1, 3, 1, 1000, 130), (2, 8, 2, 64, 1000), (1, 8, 4, 1024, 2048))
"""Batch, heads, heads of keys, queries, keys."""

ODD_PRODUCTS = ((128, 256, 64), (1000, 776, 328), (64, 4096, 1024), (4096, 1024, 2048))

Row = dict[str, Any]


def check_attention(head_dim: int, chosen: Configuration) -> Row:
    """The largest error beside float64 over odd shapes, of output and log-sum-exp, in what they may differ by."""
    worst = 0.0
    for causal, (batch, heads, kv_heads, length_q, length_k) in pairs((False, True), ODD):
        query = normal(batch, heads, length_q, head_dim, dtype=BF16, seed=1)
        key, value = (normal(batch, kv_heads, length_k, head_dim, dtype=BF16, seed=seed) for seed in (2, 3))
        output = torch.full_like(query, float("nan"))
        lse = torch.full(query.shape[:3], float("nan"), device="cuda")
        given = Problem.plain(length_q, length_k, head_dim, causal=causal)
        forward_launch(output, lse, query, key, value, given, 90, chosen).run(query.device)
        expected, expected_lse = attention(query, key, value, causal=causal)
        seen = expected_lse.isfinite()
        errors = (
            (output.double() - expected).abs().max() / 2**-6,
            (lse.double() - expected_lse)[seen].abs().max() / 1e-3,
            (lse[~seen] != float("-inf")).any().double() * float("inf") if (~seen).any() else torch.tensor(0.0),
        )
        worst = max([worst, *(float(error) if error == error else float("inf") for error in errors)])
    return {"error": worst}


def check_product(epilogue: bool, chosen: Tile) -> Row:
    """The largest error beside float64 over odd shapes, in roundings."""
    worst = 0.0
    for m, n, k in ODD_PRODUCTS:
        a, b = normal(m, k, dtype=BF16, seed=1), normal(n, k, dtype=BF16, seed=2)
        expected = a.double() @ b.double().t()
        given = following(m, n) if epilogue else {}
        if epilogue:
            expected = torch.nn.functional.gelu(expected + given["bias"].double()) + given["residual"].double()
        found, _ = product(a, b, BF16, chosen=chosen, **given)
        error = float(((found.double() - expected).abs() / (2**-8 * expected.abs() + 1e-3)).max())
        worst = max(worst, error if error == error else float("inf"))
    return {"error": worst}


def following(m: int, n: int) -> dict[str, Any]:
    """What follows a product."""
    return {
        "bias": normal(n, dtype=BF16, seed=3),
        "residual": normal(m, n, dtype=BF16, seed=4),
        "activation": "gelu",
    }


def time_attention(shape: Shape, right: Sequence[Configuration]) -> Row:
    """Teraflops by kernel, cuDNN first and last."""
    sets = [shape.operands() for _ in range(2)]

    def cudnn(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        with torch.nn.attention.sdpa_kernel(PEERS["cudnn"]), torch.no_grad():
            return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=shape.causal)

    library = [partial(cudnn, *operands[:3]) for operands in sets]
    calls: dict[str, Sequence[Callable[[], Any]]] = {"cuDNN": library}
    for chosen in (None, *right):
        launches = [forward(shape, operands, chosen) for operands in sets]
        calls[spelled(chosen)] = [partial(launch.run, torch.device("cuda")) for launch in launches]
    calls["cuDNN again"] = library
    return {label: shape.flops / median_ms(several) * 1e-9 for label, several in calls.items()}


def time_product(size: int, epilogue: bool, right: Sequence[Tile]) -> Row:
    """Milliseconds by kernel, cuBLAS' product alone first and last."""
    sets = [[normal(size, size, dtype=BF16, seed=seed) for seed in (at, at + 2)] for at in range(2)]
    given = following(size, size) if epilogue else {}
    library = [partial(torch.matmul, a, b.t()) for a, b in sets]
    calls: dict[str, Sequence[Callable[[], Any]]] = {"cuBLAS alone": library}
    for chosen in (None, *right):
        calls[str(chosen or "default")] = [partial(product, a, b, BF16, chosen=chosen, **given) for a, b in sets]
    calls["cuBLAS again"] = library
    return {label: median_ms(several) for label, several in calls.items()}


def spelled(chosen: Configuration | None) -> str:
    """A configuration in a few words."""
    if chosen is None:
        return "default"
    marks = [name for name in ("turns", "early", "persistent") if getattr(chosen, name)]
    return " ".join([told(chosen), *marks])


def checks() -> Iterator[tuple[str, Callable[[], Row]]]:
    """Each kernel, the plainest first."""
    for head_dim, several in SPECIALIZED.items():
        for chosen in several:
            yield f"attention d={head_dim} {spelled(chosen)}", partial(check_attention, head_dim, chosen)
    for epilogue, chosen in pairs((False, True), PRODUCTS):
        yield f"product {'finished ' if epilogue else ''}{chosen}", partial(check_product, epilogue, chosen)


def times(right: set[str]) -> Iterator[tuple[str, Callable[[], Row]]]:
    """What is timed of kernels whose checks were right."""
    for length, head_dim, causal in pairs(LENGTHS, SPECIALIZED, (False, True)):
        several = [one for one in SPECIALIZED[head_dim] if f"attention d={head_dim} {spelled(one)}" in right]
        shape = Shape(length, head_dim, causal)
        name = f"attention d={head_dim} n={length}{' causal' if causal else ''}, TFLOP/s"
        yield name, partial(time_attention, shape, several)
    for epilogue, size in pairs((False, True), SIZES):
        prefix = f"product {'finished ' if epilogue else ''}"
        chosen = [one for one in PRODUCTS if f"{prefix}{one}" in right]
        yield f"{prefix}{size}^3, ms", partial(time_product, size, epilogue, chosen)


def compiled(place: int) -> list[str]:
    """Compiles every so-many-th kernel; says what failed."""
    jobs: list[Callable[[], Any]] = []
    for head_dim, causal in pairs(SPECIALIZED, (False, True)):
        shape = Shape(4096, head_dim, causal)
        for chosen in (None, *SPECIALIZED[head_dim]):
            jobs.append(lambda shape=shape, chosen=chosen: forward(shape, shape.operands("meta"), chosen).compile())
    failed: list[str] = []
    for job in jobs[place::WORKERS]:
        try:
            job()
        except Exception as error:  # noqa: BLE001 - told again where it is run
            failed.append(f"{type(error).__name__}: {str(error)[-150:]}")
    return failed


def child(file: Path, start: int, right: set[str] | None) -> None:
    """Runs items from a place on, checks where `right` is None; says before each which it is."""
    for number, (name, run) in enumerate(checks() if right is None else times(right)):
        if number < start:
            continue
        file.with_suffix(".at").write_text(json.dumps([number, name]))
        try:
            row = run()
            torch.cuda.synchronize()
        except Exception as error:  # noqa: BLE001 - the others go on
            row = {"failed": f"{type(error).__name__}: {str(error)[-200:]}"}
        with file.open("a") as lines:
            lines.write(json.dumps([name, row]) + "\n")
        if "CUDA" in row.get("failed", ""):
            os._exit(1)  # the context is lost
    file.with_suffix(".at").write_text(json.dumps([-1, "the end"]))


def watched(file: Path, end: float, right: set[str] | None) -> dict[str, Row]:
    """The rows of all items by name, through as many processes as it takes."""
    at, start = file.with_suffix(".at"), 0
    while time.monotonic() < end:
        command = [sys.executable, "-m", "benchmarks.gpu_specialized", "--child", str(file), str(start)]
        command += [] if right is None else ["--right", json.dumps(sorted(right))]
        at.write_text(json.dumps([start, "the import of PyTorch"]))
        seen, since, patience = at.read_text(), time.monotonic(), 2 * STALL_S
        with subprocess.Popen(command) as process:
            while process.poll() is None and time.monotonic() < min(end, since + patience):
                time.sleep(0.05)
                if at.exists() and (now := at.read_text()) not in ("", seen):
                    seen, since, patience = now, time.monotonic(), STALL_S
            process.kill()
        number, name = json.loads(seen)
        if number < 0 or time.monotonic() >= end:
            break
        with file.open("a") as lines:
            lines.write(json.dumps([name, {"failed": "hangs, or ended its process"}]) + "\n")
        start = number + 1
    found: dict[str, Row] = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        name, row = json.loads(line)
        found.setdefault(name, row)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; answers its exit status, 1 where a kernel is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_specialized", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, metavar="S", help="end after so many seconds (120)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what is measured there, too")
    parser.add_argument("--child", nargs=2, metavar=("FILE", "START"), help=argparse.SUPPRESS)
    parser.add_argument("--right", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        child(Path(given.child[0]), int(given.child[1]), None if given.right is None else set(json.loads(given.right)))
        return 0
    began = time.monotonic()
    end = began + given.seconds
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        for failed in {text for several in pool.map(compiled, range(WORKERS)) for text in several}:
            print(f"does not compile: {failed}")
    print(f"compiled in {time.monotonic() - began:.0f} s", flush=True)
    with TemporaryDirectory() as folder:
        checked = watched(Path(folder) / "checks.jsonl", began + 0.6 * given.seconds, None)
        right = {name for name, row in checked.items() if row.get("error", float("inf")) <= 1.0}
        print(f"{len(right)} of {len(checked)} right, after {time.monotonic() - began:.0f} s")
        for name in sorted(set(checked) - right):
            print(f"   WRONG {name}: {checked[name]}")
        found = watched(Path(folder) / "times.jsonl", end, right)
    for name, row in found.items():
        print(f"{name}: {row.get('failed', '')}")
        for label, value in sorted(row.items(), key=lambda item: str(item[1])) if "failed" not in row else []:
            print(f"   {label:62} {value:8.4g}")
    if given.json is not None:
        given.json.write_text(json.dumps({"checked": checked, "timed": found}, indent=1) + "\n", encoding="utf-8")
    return int(len(right) < len(checked))


if __name__ == "__main__":
    sys.exit(main())

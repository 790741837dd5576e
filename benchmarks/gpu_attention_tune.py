"""Configurations of attention beside one another on an H100 or H200, the best first, in less than a minute.

    python -m benchmarks.gpu_attention_tune --seconds 45 --json tune.json

Forward kernels, the shipped one and others whose inner loop has another order (`attention_candidates`), those of the
backward pass, decoding by the bandwidth of a copy, peak memory of 131072 queries and keys. A candidate's output is
compared with the default's before it is timed. All are compiled first, by processes that leave them in Triton's cache.
It ends when the seconds are over, which count from when PyTorch is imported, whatever it does then: what is measured
stands in the file as soon as it is. Specialised warps are measured by `benchmarks.gpu_specialized`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.attention_candidates import candidate_launch
from benchmarks.gpu_attention import PEERS, Row, Shape, backward, copy_bandwidth, decode, forward, medians
from opweld.kernels.flash_attention import flash_attention
from opweld.kernels.flash_backward_launches import keys_launch, queries_launch, row_numbers, rows_launch
from opweld.kernels.flash_problem import Configuration
from opweld.kernels.launches import Launch

T = partial(Configuration, descriptors=True)
WORKERS = 14
ROUNDING = 2.0**-6
"""What results in bfloat16 may differ by, over the largest of the default."""


@dataclass(frozen=True)
class Candidate:
    """A forward kernel: the shipped one, or one of `attention_candidates` by its order."""

    configuration: Configuration | None
    order: str = "shipped"
    deferred: bool = False
    factor: int = 1

    def __str__(self) -> str:
        marks = (" deferred" if self.deferred else "") + (f" x{self.factor}" if self.factor > 1 else "")
        return f"{self.order}{marks} {told(self.configuration)}"

    def launch(self, shape: Shape, operands: Sequence[Tensor]) -> Launch:
        """Its launch; arguments have "output" and "log_sum_exp"."""
        if self.order == "shipped" or self.configuration is None:
            return forward(shape, operands, self.configuration)
        query, key, value = operands[:3]
        lse = query.new_empty(query.shape[:3], dtype=torch.float32)
        return candidate_launch(
            torch.empty_like(query), lse, query, key, value, shape.causal, shape.head_dim**-0.5,
            self.configuration, self.order, self.deferred, self.factor,
        )  # fmt: skip


DEFAULT = Candidate(None)
FORWARD: dict[int, tuple[Candidate, ...]] = {
    128: (
        DEFAULT,
        Candidate(T(128, 128, 8, 2, overlapped=True)),
        Candidate(T(128, 64, 8, 2, overlapped=True)),
        Candidate(T(128, 64, 8, 3, overlapped=True)),
        Candidate(T(64, 64, 4, 2, overlapped=True)),
        Candidate(T(64, 128, 4, 2, overlapped=True)),
        Candidate(T(128, 128, 8, 2), "behind", deferred=True),
        Candidate(T(128, 128, 8, 2), "ahead"),
        Candidate(T(128, 128, 8, 2), "in order"),
        Candidate(T(128, 128, 8, 2), "in order", deferred=True),
        Candidate(T(128, 64, 8, 3), "in order", factor=2),
        Candidate(T(128, 64, 8, 3)),
        Candidate(T(128, 64, 8, 2)),
        Candidate(T(64, 64, 4, 2)),
        Candidate(T(64, 128, 4, 2)),
        Candidate(Configuration(128, 64, 8, 3)),
    ),
    64: (
        DEFAULT,
        Candidate(T(128, 128, 8, 3, overlapped=True)),
        Candidate(T(128, 64, 8, 3, overlapped=True)),
        Candidate(T(64, 128, 4, 2, overlapped=True)),
        Candidate(T(64, 64, 4, 3, overlapped=True)),
        Candidate(T(256, 64, 8, 3, overlapped=True)),
        Candidate(T(256, 64, 16, 3, overlapped=True)),
        Candidate(T(128, 128, 8, 3), "behind", deferred=True),
        Candidate(T(128, 128, 8, 3), "ahead"),
        Candidate(T(128, 128, 8, 3), "in order"),
        Candidate(T(128, 128, 8, 2), "in order", deferred=True),
        Candidate(T(128, 128, 8, 3), "in order", factor=2),
        Candidate(T(128, 64, 8, 3)),
        Candidate(T(64, 128, 4, 2)),
        Candidate(T(128, 64, 4, 3)),
    ),
}
"""Head size -> forward kernels. None spills on sm_90."""

KEYS: dict[int, tuple[Configuration | None, ...]] = {
    128: (None, T(64, 64, 4, 2), T(32, 128, 8, 2), T(32, 128, 8, 3), T(64, 64, 8, 2)),
    64: (None, T(64, 128, 8, 3), T(64, 64, 4, 2), T(64, 64, 4, 3), T(128, 64, 8, 2), T(32, 128, 4, 2)),
}
QUERIES: dict[int, tuple[Configuration | None, ...]] = {
    128: (None, T(128, 64, 8, 3), T(64, 64, 4, 2), T(64, 64, 4, 3), T(64, 128, 8, 2), T(128, 32, 8, 3)),
    64: (None, T(128, 64, 8, 2), T(64, 64, 4, 3), T(64, 128, 4, 2), T(128, 128, 8, 2), T(128, 32, 8, 3)),
}
"""Head size -> configurations of the kernels of gradients; None is the default."""

SHAPES = [Shape(4096, head_dim, causal) for head_dim, causal in product((128, 64), (False, True))]
DECODES = ((64, 32, 8, 8192), (16, 32, 8, 32768), (32, 32, 8, 16384), (16, 32, 8, 8192))


def told(chosen: Configuration | None) -> str:
    """Tiles, warps, stages; T by the tensor memory accelerator, W with specialised warps, O overlapped."""
    if chosen is None:
        return "default"
    marks = ("T" if chosen.descriptors else "") + ("W" if chosen.specialized else "")
    marks += "O" if chosen.overlapped else ""
    return f"{chosen.block_m}x{chosen.block_n} w{chosen.warps} s{chosen.stages} {marks}"


# Measured side by side


def compared(name: str, launches: Sequence[tuple[str, Launch, Sequence[str]]], flops: float, **where: Any) -> list[Row]:
    """Rates of launches, the best first. Of each the named results must be those of the first, or it is not timed.

    A library's product takes its turn, if `where` has one as "beside": name and call."""
    device = torch.device("cuda")
    beside: tuple[str, Callable[[], Any]] | None = where.pop("beside", None)
    ready: dict[str, Callable[[], Any]] = {}
    apart: dict[str, float] = {}
    expected: list[Tensor] = []
    for label, launch, results in launches:
        try:
            for result in results:
                launch.arguments[result].zero_()
            launch.run(device)
            torch.cuda.synchronize()
        except Exception as error:  # noqa: BLE001 - one that does not fit; the others go on
            print(f"   {label:36} FAILED: {str(error).splitlines()[0][:90]}", flush=True)
            continue
        got = [launch.arguments[result] for result in results]
        expected = expected or got
        apart[label] = max(
            ((one.float() - other.float()).abs().max() / other.float().abs().max()).item()
            for one, other in zip(got, expected, strict=True)
        )
        if not apart[label] <= ROUNDING:
            print(f"   {label:36} WRONG by {apart[label]:.1e} of the largest", flush=True)
            continue
        ready[label] = partial(launch.run, device)
    if beside is not None:
        ready |= [beside]
    times = dict(zip(ready, medians(list(ready.values())), strict=True))
    first = times.get(launches[0][0], float("nan"))
    print(f"{name}:")
    rows: list[Row] = []
    for label in sorted(times, key=times.__getitem__):
        row = {"name": name, "candidate": label, "ms": times[label], "tflops": flops / times[label] * 1e-9}
        row |= {"of_default": first / times[label], "apart": apart.get(label)} | where
        print(f"   {label:36} {row['tflops']:5.0f} TFLOP/s  {row['of_default']:5.0%} of the first", flush=True)
        rows.append(row)
    return rows


def forwards(shape: Shape, candidates: Sequence[Candidate]) -> list[Row]:
    """Forward kernels of one shape, beside cuDNN."""
    operands = shape.operands()
    launches = [(str(one), one.launch(shape, operands), ("output", "log_sum_exp")) for one in candidates]
    query, key, value = operands[:3]

    def cudnn() -> Tensor:
        with torch.nn.attention.sdpa_kernel(PEERS["cudnn"]), torch.no_grad():
            return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=shape.causal)

    return compared(f"forward {spelled(shape)}", launches, shape.flops, beside=("cudnn", cudnn))


def spelled(shape: Shape) -> str:
    """d=128 n=4096 causal"""
    return f"d={shape.head_dim} n={shape.length}" + (" causal" if shape.causal else "")


def gradients(shape: Shape) -> Iterator[Row]:
    """The kernels of the backward pass, of gradients of true sums."""
    device = torch.device("cuda")
    query, key, value, grad = operands = shape.operands()
    done = forward(shape, operands)
    origin, delta = row_numbers(query)
    results = (done.arguments["output"], grad, done.arguments["log_sum_exp"])
    for launch in (done, rows_launch(origin, delta, *results)):
        launch.run(device)
    shared = (query, key, value, grad, origin, delta, shape.problem, 90)
    keys = [
        (told(one), keys_launch(torch.empty_like(key), torch.empty_like(value), None, *shared, one),
         ("grad_key", "grad_value"))
        for one in KEYS[shape.head_dim]
    ]  # fmt: skip
    yield from compared(f"keys {spelled(shape)}", keys, 2.0 * shape.flops)
    queries = [
        (told(one), queries_launch(torch.empty_like(query), *shared, one), ("grad_query",))
        for one in QUERIES[shape.head_dim]
    ]
    yield from compared(f"queries {spelled(shape)}", queries, 1.5 * shape.flops)


def bandwidths() -> Iterator[Row]:
    """Steps of decoding, keys in a row and in pages."""
    bandwidth = copy_bandwidth()
    print(f"copy: {bandwidth * 1e-12:.2f} TB/s; decode:")
    yield {"name": "copy", "bytes_per_s": bandwidth}
    for sizes, page in product(DECODES, (None, 16, 256)):
        row = decode(*sizes, bandwidth, page)
        where = f"b={sizes[0]} h=32/8 n={sizes[3]} page={page or 0}"
        print(f"   {where:32} {row['ms']:.3f} ms, {row['of_copy']:.0%} of copy", flush=True)
        yield row | {"name": "decode"}
        torch.cuda.empty_cache()


def memory() -> Iterator[Row]:
    """Peak memory beyond the operands by the size of one, which does not grow where it is linear in the length."""
    for length in (32768, 65536, 131072):
        query, key, value = (
            torch.randn(1, 4, length, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True) for _ in range(3)
        )
        peaks: list[float] = []
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        output = flash_attention(query, key, value, causal=True)
        peaks.append((torch.cuda.max_memory_allocated() - before) / query.nbytes)
        output.backward(torch.ones_like(output))
        peaks.append((torch.cuda.max_memory_allocated() - before) / query.nbytes)
        print(f"memory n={length}: forward {peaks[0]:.2f}, with backward {peaks[1]:.2f} times an operand", flush=True)
        yield {"name": "memory", "length": length, "forward": peaks[0], "backward": peaks[1]}


# All of it


def compilations() -> list[Callable[[], None]]:
    """What compiles all that is measured, the first needed first."""
    made: list[Callable[[], None]] = []
    for shape in SHAPES:
        made.extend(partial(_forward, shape, one) for one in FORWARD[shape.head_dim])
    made.extend(partial(_backward, Shape(4096, 64, True), None, None, part) for part in range(3))
    for shape in SHAPES:
        made.extend(partial(_backward, shape, one, None, 1) for one in KEYS[shape.head_dim])
        made.extend(partial(_backward, shape, None, one, 2) for one in QUERIES[shape.head_dim])
    return made


def _forward(shape: Shape, candidate: Candidate) -> None:
    candidate.launch(shape, shape.operands("meta")).compile()


def _backward(shape: Shape, keys: Configuration | None, queries: Configuration | None, part: int) -> None:
    backward(shape, shape.operands("meta"), keys, queries)[part].compile()


def items() -> Iterator[Callable[[], Iterator[Row]]]:
    """What is measured, the most important first."""
    best: dict[Shape, list[Candidate]] = {}

    def swept(shape: Shape) -> Iterator[Row]:
        rows = forwards(shape, FORWARD[shape.head_dim])
        order = [row["candidate"] for row in rows if row["candidate"] not in ("cudnn", str(DEFAULT))]
        known = {str(one): one for one in FORWARD[shape.head_dim]}
        best[shape] = [known[label] for label in order]
        yield from rows

    def elsewhere(shape: Shape, length: int, number: int) -> Iterator[Row]:
        yield from forwards(Shape(length, shape.head_dim, shape.causal), [DEFAULT, *best[shape][:number]])

    for shape in SHAPES:
        yield partial(swept, shape)
    yield memory
    yield bandwidths
    for shape in SHAPES:
        yield partial(elsewhere, shape, 16384, 2)
    for shape in SHAPES:
        yield partial(elsewhere, shape, 1024, 5)
    for shape in SHAPES:
        yield partial(gradients, shape)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; answers its exit status, 1 where an item failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_attention_tune", description=__doc__)
    parser.add_argument("--seconds", type=float, default=45, metavar="S", help="end after so many seconds (45)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what is measured there, too")
    given = parser.parse_args(arguments)
    began = time.monotonic()
    pool = ProcessPoolExecutor(min(WORKERS, os.cpu_count() or 1), mp_context=get_context("spawn"))
    compiling = [pool.submit(one) for one in compilations()]

    def over() -> None:
        print(f"== ended: {given.seconds:.0f} s are over", flush=True)
        for child in active_children():
            child.kill()
        os._exit(0)  # whatever runs: a kernel that does not end, a compiler

    watch = threading.Timer(given.seconds, over)
    watch.daemon = True
    watch.start()
    found: list[Row] = []
    status = 0

    def keep(rows: Iterator[Row] | Sequence[Row]) -> None:
        for row in rows:
            found.append(row)
            if given.json is not None:
                whole = given.json.with_name(f".{given.json.name}")
                whole.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
                whole.replace(given.json)

    done, late = wait(compiling, timeout=max(0.0, 0.6 * given.seconds - (time.monotonic() - began)))
    for error in {str(future.exception() or "")[:150] for future in done} - {""}:
        print(f"does not compile: {error}", flush=True)
    pool.shutdown(wait=False, cancel_futures=True)
    print(f"compiled, all but {len(late)}, after {time.monotonic() - began:.0f} s", flush=True)
    for item in items():
        try:
            keep(item())
        except Exception as error:  # noqa: BLE001 - the other items go on
            status = 1
            print(f"{item}: {type(error).__name__}: {error}"[:300], flush=True)
        torch.cuda.empty_cache()
    watch.cancel()
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())

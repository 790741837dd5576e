"""One server process and several at one port, in turns.

    python -m benchmarks.serving.processes                     a product of matrices, N = 1 and 2
    python -m benchmarks.serving.processes --model minilm --connections 16 --seconds 3 --rounds 6

Clients are a program of C in one thread, which takes little of the processors that it shares with the servers: each
connection sends a request of HTTP binary when it has its answer. All servers stay up; in each round every one of them
has its turn. Prints requests a second and percentiles of each round, and medians. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from benchmarks.serving import servers
from benchmarks.serving.requests import Load, http_request, loads
from benchmarks.serving_overhead import small

HOST = "127.0.0.1"


class Turn(NamedTuple):
    """What clients got. p50, p99: in milliseconds."""

    rate: float
    p50: float
    p99: float
    refused: int


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="product", help="product, or one of benchmarks.serving (product)")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn (2)")
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        load = _product(folder) if given.model == "product" else loads()[given.model]
        request = http_request(load.name, load.feeds(1)[0])
        program = _program(folder)
        turns: dict[int, list[Turn]] = {}
        ports: dict[int, int] = {}
        for count in given.workers:
            own = folder / str(count)
            own.mkdir()
            ports[count] = stack.enter_context(servers.opweld([load], own, ["--workers", str(count)])).http
            _turn(program, ports[count], request, given.connections, 1.0)
        for _ in range(given.rounds):
            for count, port in ports.items():
                turn = _turn(program, port, request, given.connections, given.seconds)
                turns.setdefault(count, []).append(turn)
                print(f"{count} processes: {_line(turn)}", flush=True)
        for count, found in turns.items():
            columns: Any = zip(*found, strict=True)
            rate, p50, p99, refused = map(statistics.median, columns)
            print(f"median of {count} processes: {_line(Turn(rate, p50, p99, int(refused)))}")


def _line(turn: Turn) -> str:
    return f"{turn.rate:8.0f}/s  p50 {turn.p50:7.2f} ms  p99 {turn.p99:7.2f} ms  refused {turn.refused}"


def _product(folder: Path) -> Load:
    file = folder / "product.onnx"
    onnx.save(small(), str(file))
    return Load("product", file, lambda random: {"x": random.standard_normal((1, 64)).astype(np.float32)})


def _program(folder: Path) -> Path:
    made = folder / "clients"
    source = Path(__file__).with_name("clients.c")
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", "-o", str(made), str(source)], check=True)
    return made


def _turn(program: Path, port: int, request: bytes, connections: int, seconds: float) -> Turn:
    command = [str(program), HOST, str(port), str(connections), str(seconds)]
    done = subprocess.run(command, input=request, stdout=subprocess.PIPE, check=True)
    answered, others, took, p50, p99 = map(float, done.stdout.split())
    return Turn(answered / took, p50 / 1e3, p99 / 1e3, int(others))


if __name__ == "__main__":
    main()

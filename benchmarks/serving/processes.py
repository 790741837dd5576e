"""One server process and several at one port, in turns.

    python -m benchmarks.serving.processes                     a product of matrices, N = 1 and 2
    python -m benchmarks.serving.processes --model minilm --connections 16 --seconds 3 --rounds 6
    python -m benchmarks.serving.processes --grpc

Clients are a program of C in one thread, which takes little of the processors that it shares with the servers: each
connection sends a request of HTTP binary when it has its answer. Over gRPC they are two processes of Python, which take
more of the processors than the servers do. All servers stay up; in each round every one of them
has its turn. Prints requests a second and percentiles of each round, and medians. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from benchmarks.serving import servers
from benchmarks.serving.load import Result, closed_loop
from benchmarks.serving.requests import Load, grpc_request, http_request, loads
from benchmarks.serving.transports import Grpc
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
    parser.add_argument("--grpc", action="store_true", help="instead of HTTP")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        load = _product(folder) if given.model == "product" else loads()[given.model]
        request = (grpc_request if given.grpc else http_request)(load.name, load.feeds(1)[0])
        turn_of = stack.enter_context(_over_grpc()) if given.grpc else partial(_over_http, _program(folder))
        turns: dict[int, list[Turn]] = {}
        ports: dict[int, int] = {}
        for count in given.workers:
            own = folder / str(count)
            own.mkdir()
            address = stack.enter_context(servers.opweld([load], own, ["--workers", str(count)]))
            ports[count] = address.grpc if given.grpc else address.http
            turn_of(ports[count], request, given.connections, 1.0)
        for _ in range(given.rounds):
            for count, port in ports.items():
                turn = turn_of(port, request, given.connections, given.seconds)
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


def _over_http(program: Path, port: int, request: bytes, connections: int, seconds: float) -> Turn:
    command = [str(program), HOST, str(port), str(connections), str(seconds)]
    done = subprocess.run(command, input=request, stdout=subprocess.PIPE, check=True)
    answered, others, took, p50, p99 = map(float, done.stdout.split())
    return Turn(answered / took, p50 / 1e3, p99 / 1e3, int(others))


@contextmanager
def _over_grpc() -> Generator[Callable[[int, bytes, int, float], Turn]]:
    """The same by two processes of clients."""
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:

        def turn(port: int, request: bytes, connections: int, seconds: float) -> Turn:
            each = [pool.submit(_clients, port, request, connections // 2, seconds) for _ in range(2)]
            results = [one.result() for one in each]
            latencies = [one for result in results for one in result.latencies]
            refused = sum(result.statuses.total() - result.statuses[200] for result in results)
            p50, p99 = (1e3 * float(np.quantile(latencies, part)) for part in (0.5, 0.99))
            return Turn(sum(result.answered for result in results), p50, p99, refused)

        yield turn


def _clients(port: int, request: bytes, connections: int, seconds: float) -> Result:
    async def run() -> Result:
        transport = Grpc(HOST, port, connections)
        try:
            return await closed_loop(transport, [request], connections, seconds)
        finally:
            await transport.close()

    return asyncio.run(run())


if __name__ == "__main__":
    main()

"""Servers under load, beside each other.

    python -m benchmarks.serving capacity                      what each carries with a 99th percentile under 50 ms
    python -m benchmarks.serving capacity --models minilm --servers opweld plain-2x1
    python -m benchmarks.serving overload --minutes 10         120% of what it carries: nothing lost, memory flat
    python -m benchmarks.serving loadgen                       MLPerf's SingleStream, Server and Offline

Servers: opweld, opweld-grpc; opweld-N and opweld-N-grpc, which are N processes; plain-TxC, which is FastAPI and ONNX
Runtime with T threads and C calls at once; mlserver-B, MLServer (over gRPC, its binary form) with batches of B, 0:
none; pytriton-TxB, Triton Inference Server with ONNX Runtime of T threads behind it, by PyTriton, and batches of B. The
interpreters of these two are --mlserver and --pytriton.
Requests come as a Poisson process from one client process on the same machine, and a latency counts from when a request
was due. What a server carries is the rate at which half of the windows have a 99th percentile within --p99; all servers
are up meanwhile, and have their windows by turns. Nothing else should run.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.serving import loadgen, servers
from benchmarks.serving.load import Staircase, closed_loop, open_loop
from benchmarks.serving.requests import Load, grpc_request, http_request, loads
from benchmarks.serving.servers import Address
from benchmarks.serving.transports import Grpc, Http, Transport

HOST = "127.0.0.1"
COUNT = 64
"""Different requests."""

CHANNELS = 16
"""Of gRPC: the system draws a process for each, where a server has several."""


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("capacity", "overload", "loadgen"))
    parser.add_argument("--models", nargs="+", default=["minilm", "ppocrv4-rec", "resnet50"])
    parser.add_argument(
        "--servers", nargs="+", default=["opweld", "opweld-grpc", "plain-2x1", "plain-1x2", "mlserver-0"]
    )
    parser.add_argument("--p99", type=float, default=50.0, help="milliseconds")
    parser.add_argument("--seconds", type=float, default=3.0, help="of one window")
    parser.add_argument("--rounds", type=int, default=12, help="windows of each server")
    parser.add_argument("--scenarios", nargs="+", default=loadgen.SCENARIOS, help="of LoadGen, 60 seconds each")
    parser.add_argument("--part", type=float, default=0.35, help="of the throughput, in LoadGen's Server scenario")
    parser.add_argument("--deadline", type=float, default=200.0, help="milliseconds of a request in overload")
    parser.add_argument("--minutes", type=float, default=10.0, help="of overload")
    parser.add_argument("--mlserver", default=sys.executable, help="the interpreter that has mlserver")
    parser.add_argument("--pytriton", default=sys.executable, help="the interpreter that has nvidia-pytriton")
    given = parser.parse_args()
    known = loads()
    chosen = [known[name] for name in given.models]
    with tempfile.TemporaryDirectory() as folder:
        for load in chosen:
            if given.what == "loadgen":
                with servers.opweld([load], Path(folder)) as address:
                    transport = Http(HOST, address.http)
                    feeds = load.feeds(COUNT)
                    loadgen.run(load, transport, feeds, given.p99 / 1e3, given.part, given.scenarios)
                continue
            with ExitStack() as stack:
                addresses = {
                    server: stack.enter_context(started(server, [load], Path(folder), given.mlserver, given.pytriton))
                    for server in (given.servers if given.what == "capacity" else given.servers[:1])
                }
                if given.what == "capacity":
                    asyncio.run(capacities(given, load, addresses))
                else:
                    (address,) = addresses.values()
                    asyncio.run(overload(load, address, given.deadline / 1e3, given.seconds, given.minutes * 60))


@contextmanager
def started(server: str, chosen: Sequence[Load], folder: Path, mlserver: str, pytriton: str) -> Generator[Address]:
    """A server by its name."""
    kind, _, shape = server.partition("-")
    if kind == "opweld":
        processes = shape.removesuffix("grpc").rstrip("-")
        with servers.opweld(chosen, folder, ["--workers", processes] if processes else []) as address:
            yield address
    elif kind == "plain":
        threads, _, calls = shape.partition("x")
        with servers.plain(chosen, folder, int(threads), int(calls), sys.executable) as address:
            yield address
    elif kind == "mlserver":
        with servers.mlserver(chosen, folder, 2, int(shape), mlserver) as address:
            yield address
    elif kind == "pytriton":
        threads, _, batch = shape.partition("x")
        with servers.pytriton(chosen, folder, int(threads), int(batch), pytriton) as address:
            yield address
    else:
        raise SystemExit(f"there is no server {server!r}; --help lists them")


def client(server: str, load: Load, address: Address) -> tuple[Transport, list[bytes]]:
    """Connections to a server, and what goes over them."""
    if server.startswith("mlserver") or server.endswith("-grpc"):
        return Grpc(HOST, address.grpc, CHANNELS), [grpc_request(load.name, feed) for feed in load.feeds(COUNT)]
    return Http(HOST, address.http), [http_request(load.name, feed) for feed in load.feeds(COUNT)]


async def capacities(given: argparse.Namespace, load: Load, addresses: Mapping[str, Address]) -> None:
    """The highest rates that servers carry, which have their windows by turns."""
    clients = {server: client(server, load, address) for server, address in addresses.items()}
    told: dict[str, str] = {}
    stairs: dict[str, Staircase] = {}
    allowed = given.p99 / 1e3
    try:
        for server, (transport, requests) in clients.items():
            first = await closed_loop(transport, requests, 1, min(given.seconds, 2.0))
            if not first.statuses[200]:
                log = addresses[server].log
                raise SystemExit(f"{server} answers none of its requests: {dict(first.statuses)}; see {log}")
            alone = await closed_loop(transport, requests, 1, min(given.seconds, 2.0))
            most = (await closed_loop(transport, requests, 16, given.seconds)).answered
            told[server] = f"alone p50 {1e3 * alone.quantile(0.5):6.2f} ms, 16 clients {most:6.1f}/s"
            stairs[server] = Staircase(0.7 * most)
        for number in range(given.rounds):
            for server, (transport, requests) in clients.items():
                result = await open_loop(transport, requests, stairs[server].rate, given.seconds, number)
                stairs[server].add(result.quantile(0.99) <= allowed and set(result.statuses) <= {200})
    finally:
        for transport, _ in clients.values():
            await transport.close()
    for server, line in told.items():
        print(
            f"{load.name:12} {server:14} {line}, p99 within {given.p99:g} ms: {stairs[server].found:6.1f}/s", flush=True
        )


async def overload(load: Load, address: Address, deadline: float, seconds: float, long: float) -> None:
    """120% of what it carries, for long: what is answered, refused and lost, and the server's memory. Each request says
    its deadline."""
    transport = Http(HOST, address.http)
    requests = [http_request(load.name, feed, timeout=deadline) for feed in load.feeds(COUNT)]
    try:
        most = (await closed_loop(transport, requests, 64, seconds)).answered
        rounds = max(1, round(long / 30))
        print(
            f"{load.name}: 64 clients {most:.1f}/s; {1.2 * most:.1f}/s are sent for {long / 60:g} minutes, "
            f"with a deadline of {1e3 * deadline:g} ms",
            flush=True,
        )
        for number in range(rounds):
            result = await open_loop(transport, requests, 1.2 * most, min(30.0, long), seed=number)
            statuses = ", ".join(f"{count} x {status}" for status, count in sorted(result.statuses.items()))
            print(
                f"{(number + 1) * 30:5} s  {statuses}  p50 {1e3 * result.quantile(0.5):7.1f} ms  "
                f"p99 {1e3 * result.quantile(0.99):7.1f} ms  most {1e3 * result.quantile(1.0):7.1f} ms  "
                f"RssAnon {anonymous(address.process) / 1e6:.0f} MB",
                flush=True,
            )
    finally:
        await transport.close()


def anonymous(process: int) -> int:
    """Bytes of memory that a process and its children have for themselves."""
    found = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and process in _ancestors(int(folder.name)):
            try:
                status = (folder / "status").read_text()
            except OSError:
                continue
            found += sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon"))
    return found


def _ancestors(process: int) -> list[int]:
    found: list[int] = []
    while process > 1:
        found.append(process)
        try:
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return found


if __name__ == "__main__":
    main()

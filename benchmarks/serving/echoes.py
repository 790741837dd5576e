"""Servers with nothing behind them, whose answers are what they are sent: what uvicorn and grpcio take by themselves.

python -m benchmarks.serving.echoes http      prints its port
python -m benchmarks.serving.echoes grpc
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from typing import Any, Final

import grpc
import uvicorn
import uvloop

METHOD: Final = "/echo.Echo/Call"


@contextmanager
def echo(kind: str) -> Generator[str]:
    """One of them, in a process of its own: its address."""
    command = [sys.executable, "-m", "benchmarks.serving.echoes", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def _http() -> None:
    async def app(_scope: Any, receive: Any, send: Any) -> None:
        event = await receive()
        body = event["body"]
        while event["more_body"]:
            event = await receive()
            body += event["body"]
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": body})

    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(app, loop="uvloop", http="httptools", lifespan="off", access_log=False, log_level="error")
    uvicorn.Server(config).run(sockets=[listening])


async def _grpc() -> None:
    async def call(_requests: AsyncIterator[bytes], context: Any) -> bytes:
        return await context.read()

    service, _, name = METHOD[1:].partition("/")
    server = grpc.aio.server()
    handlers = {name: grpc.stream_unary_rpc_method_handler(call)}  # as ours
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    if sys.argv[1] == "http":
        _http()
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_grpc())

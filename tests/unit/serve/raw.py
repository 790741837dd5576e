"""Requests byte by byte, where a client of a library would not send them."""

from __future__ import annotations

import json
import socket
from typing import Any, Protocol

from tests.patience import PATIENCE_S


class Address(Protocol):
    """Where a server listens."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


def connect(running: Address) -> socket.socket:
    return socket.create_connection((running.host, running.port), timeout=PATIENCE_S)


def head(path: str, length: int, method: str = "POST", **headers: str) -> bytes:
    lines = {"Host": "here", "Content-Type": "application/json", "Content-Length": str(length), **headers}
    return "\r\n".join([f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in lines.items()), "", ""]).encode()


def post(path: str, body: Any, **headers: str) -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head(path, len(raw), **headers) + raw


def until_closed(connection: socket.socket) -> bytes:
    """All that the server sends until it closes the connection."""
    got = b""
    while piece := connection.recv(1 << 16):
        got += piece
    return got


def ready(running: Address) -> bool:
    """Whether a server that has just been started answers."""
    try:
        return ask(running, head("/health/ready", 0, "GET"))[0] == 200
    except ConnectionRefusedError:
        return False


def ask(running: Address, request: bytes) -> tuple[int, dict[str, str], Any]:
    """Status, headers and JSON of an answer to a request that closes its connection."""
    with connect(running) as connection:
        connection.sendall(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
        got = until_closed(connection)
    lines, _, body = got.partition(b"\r\n\r\n")
    first, *rest = lines.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
    return int(first.split()[1]), headers, json.loads(body) if body else None

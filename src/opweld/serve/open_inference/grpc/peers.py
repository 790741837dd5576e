"""Connections of clients, which gRPC does not let a server end."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote

_FILES: Final = Path("/dev/fd")


def host_of(peer: str) -> str:
    """The address of a client as logs show it, of what `ServicerContext.peer` returns; "-" where it has none."""
    host, _ = _address(peer)
    return host or "-"


def cut_off(peer: str) -> bool:
    """Ends the connection of a client, which `ServicerContext.peer` names, as if it had gone away: gRPC would wait for
    ever for one that takes nothing. Whether there was one."""
    wanted = _address(peer)
    if not wanted[0]:
        return False
    for name in os.listdir(_FILES):
        try:
            copy = os.dup(int(name))
        except OSError:
            continue  # it was open a moment ago
        if not stat.S_ISSOCK(os.fstat(copy).st_mode):
            os.close(copy)
            continue
        with socket.socket(fileno=copy) as found, suppress(OSError):  # what is not connected, or not any more
            if found.family in (socket.AF_INET, socket.AF_INET6) and _same(found.getpeername(), wanted):
                found.shutdown(socket.SHUT_RDWR)
                return True
    return False


def _same(address: tuple[str, int], wanted: tuple[str, int]) -> bool:
    # gRPC listens by IPv6 where there is some, and tells of clients by IPv4 as they are.
    return (address[0].removeprefix("::ffff:"), address[1]) == wanted


def _address(peer: str) -> tuple[str, int]:
    """Host and port; "" and 0 where it is none of the network."""
    kind, _, address = unquote(peer).partition(":")
    host, _, port = address.rpartition(":")
    return (host.strip("[]"), int(port)) if kind.startswith("ipv") and port.isdigit() else ("", 0)

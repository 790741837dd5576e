"""gRPC's server beside that of HTTP, on the same loop."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

import grpc
from grpc import aio

from opweld.errors import OptionError
from opweld.serve.listener import Common
from opweld.serve.open_inference.grpc.guard import GrpcGuard
from opweld.serve.open_inference.grpc.service import Service
from opweld.serve.tls import Tls

_MOST_CALLS: Final = 4096
"""At once; gRPC has read their messages before it asks us, and refuses more as RESOURCE_EXHAUSTED."""

_LAST_S: Final = 1.0
"""That answers which are written already have to be read."""


class GrpcListener:
    """See `Listener`."""

    def __init__(
        self, service: Service, common: Common, address: socket.socket, around: Sequence[aio.ServerInterceptor]
    ) -> None:
        """
        Args:
            address: a socket that has it, until this listens there; others may as well where it is SO_REUSEPORT.
            around: are around everything else, as what traces calls.
        """
        self._guard, self._common, self._address = GrpcGuard(service, common), common, address
        self._around = around
        self._server: aio.Server | None = None

    async def start(self) -> None:
        """See `Listener`."""
        host, port = self._address.getsockname()[:2]
        self._server = aio.server(
            interceptors=self._around,
            maximum_concurrent_rpcs=_MOST_CALLS,
            options=[
                ("grpc.max_receive_message_length", self._common.limits.body),
                ("grpc.max_send_message_length", -1),
                # Only among processes of one server: another one at the same port would take half of its clients.
                ("grpc.so_reuseport", int(bool(self._address.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)))),
            ],
        )
        self._server.add_generic_rpc_handlers((self._guard.handler(),))
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._address.close()
        try:
            if (tls := self._common.tls) is None:
                self._server.add_insecure_port(where)
            else:
                self._server.add_secure_port(where, _credentials(tls))
        except RuntimeError as error:
            raise OptionError(f"cannot listen on {where} for gRPC; choose another --grpc-port") from error
        await self._server.start()

    async def stop(self) -> None:
        """See `Listener`."""
        if self._server is not None:
            await self._server.stop(_LAST_S)


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    clients = tls.clients.read_bytes() if tls.clients else None
    pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
    return grpc.ssl_server_credentials([pair], root_certificates=clients, require_client_auth=clients is not None)

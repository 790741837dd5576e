"""Listens, and stops without losing an answer."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Sequence
from types import FrameType
from typing import Any, TypeAlias

import uvicorn
from starlette.types import ASGIApp, Scope

from opweld.collector import pass_over_what_is_new
from opweld.errors import OptionError
from opweld.serve.access import AccessLog
from opweld.serve.application import application
from opweld.serve.connection import connection_of
from opweld.serve.health import Health
from opweld.serve.interface import Backend, Interface, path_of
from opweld.serve.limits import Keys, Limits, bytes_in_flight
from opweld.serve.listener import Common, Listener, MakeListener
from opweld.serve.metrics import Metrics
from opweld.serve.processes.member import Member
from opweld.serve.tls import Tls
from opweld.serve.visits import Visits

MakeInterface: TypeAlias = Callable[[Limits, Metrics], Interface]
Around: TypeAlias = Callable[[ASGIApp, Callable[[Scope], bool]], ASGIApp]
"""Middleware of an application, and whether a request is one of an interface."""

_USUAL, _NONE = Limits(), Keys()
_LAST_S = 1.0
"""That answers which are written already have to be read, where no time to drain is left."""


class Server(uvicorn.Server):
    """A server of models.

    SIGTERM, SIGINT or `stop` begins its end: it is no longer ready and refuses what comes, answers have `limits.drain`
    seconds to finish and to be taken, and what is left of them is cut short with an error. A second signal ends it at
    once.
    """

    def __init__(
        self,
        backends: Sequence[Backend],
        interfaces: Sequence[MakeInterface],
        *,
        limits: Limits = _USUAL,
        keys: Keys = _NONE,
        origins: Sequence[str] = (),
        listeners: Sequence[MakeListener] = (),
        tls: Tls | None = None,
        around: Around | None = None,
        member: Member | None = None,
        beat: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """
        Args:
            backends: the models behind the interfaces, which end with the server.
            interfaces: the first answers for paths that belong to none.
            origins: of web pages that may call it.
            listeners: beside HTTP's; they start, let their requests end and stop with it.
            tls: how connections are secured; None: they are not.
            around: is around everything else of HTTP, as what traces requests.
            member: hands it connections over HTTP, where it is one of several processes; None: it listens itself.
            beat: tells somebody, again and again until it is cancelled, that the event loop runs.
        """
        self._backends, self._limits, self._member, self._beat = backends, limits, member, beat
        self._visits = Visits(bytes_in_flight(limits), limits.seconds)
        metrics, health = Metrics(), Health(backends, self._visits)
        self._log = AccessLog(metrics)
        common = Common(limits, keys, self._visits, metrics, self._log, health, tls)
        self._listeners = [make(common) for make in listeners]
        made = [make(limits, metrics) for make in interfaces]
        app = application(made, common, origins)
        if around is not None:
            app = around(app, lambda scope: any(one.covers(path_of(scope)) for one in made))
        config = uvicorn.Config(
            app,
            loop="uvloop",
            http=connection_of(limits, self._visits, member),
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            ws="none",
            proxy_headers=False,
            ssl_certfile=tls and tls.certificate,
            ssl_keyfile=tls and str(tls.key),
            ssl_ca_certs=tls and tls.clients and str(tls.clients),
            ssl_cert_reqs=ssl.CERT_REQUIRED if tls and tls.clients else ssl.CERT_NONE,
        )
        super().__init__(config)
        self._stopping = asyncio.Event()
        self._connecting: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers requests until it is stopped; then ends the models. Raises OptionError if it cannot listen."""
        self._loop = asyncio.get_running_loop()
        drain = asyncio.create_task(self._drain())
        beat = None if self._beat is None else asyncio.create_task(self._beat())
        started: list[Listener] = []
        try:
            if self._member is not None:
                await self._member.join()
            for listener in self._listeners:
                await listener.start()
                started.append(listener)
            for one in sockets or ():
                one.listen(self.config.backlog)  # uvloop does not say where this fails
            await super().serve(sockets)
        except OSError as error:
            raise OptionError(f"cannot listen: {error.strerror or error}") from error
        finally:
            self._loop = None
            drain.cancel()
            for listener in started:
                await listener.stop()
            for backend in self._backends:
                await backend.close()
            self._log.flush()
            if self._member is not None:
                self._member.close()
            if beat is not None:  # to the end, which may hang as well
                beat.cancel()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to take requests over HTTP."""
        pass_over_what_is_new(look=True)
        await super().startup(sockets)
        if self._member is not None:
            self._member.serve(self._take)

    def stop(self) -> None:
        """Begins the end, from any thread. Nothing where it is not running."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """What a signal does."""
        if self._stopping.is_set():
            self.should_exit = self.force_exit = True
        self.stop()

    async def _drain(self) -> None:
        await self._stopping.wait()
        begun = time.monotonic()
        await self._visits.drain(self._limits.drain)
        if self._member is not None:
            await self._member.leave()
        # What is on its way has the rest of the time to be taken.
        left = self._limits.drain - (time.monotonic() - begun)
        asyncio.get_running_loop().call_later(max(_LAST_S, left), self._cut_off)
        self.should_exit = True

    def _take(self, accepted: socket.socket) -> None:
        """Speaks with a client that the supervisor has accepted."""
        accepted.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._connect(accepted))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, accepted: socket.socket) -> None:
        config = self.config

        def protocol() -> asyncio.Protocol:
            made: Any = config.http_protocol_class  # uvicorn declares no arguments of it
            return made(config=config, server_state=self.server_state, app_state=self.lifespan.state)

        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(protocol, accepted, ssl=config.ssl)
        except OSError:  # the client has gone, or speaks no TLS
            accepted.close()
            assert self._member is not None
            self._member.gone()

    def _cut_off(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def allow_connections() -> None:
    """Lets this process have as many files open as the system allows it: each connection is one, and the usual number
    is small for a server."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def share(reserved: socket.socket) -> None:
    """Lets each process of a server listen at the address of a reserved socket, for itself. Set when it is reserved:
    where another server listens there, whatever it lets others do, that has failed."""
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def reserve(host: str, port: int, option: str = "--port") -> socket.socket:
    """A socket for `Server.run`, which refuses connections until then; port 0 takes a free one.

    Raises OptionError if the address is taken, or none of this machine's."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        reserved = socket.socket(family, kind, protocol)
        try:
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(address)
        except OSError:
            reserved.close()
            raise
        return reserved
    except OSError as error:
        raise OptionError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another {option}"
        ) from error

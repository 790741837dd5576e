"""What a protocol brings to the server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from opweld.errors import OpweldError
from opweld.serve.refusal import Refusal, refusal_of
from opweld.serve.routes import Router, UnfitError
from opweld.serve.visits import Visit


class Backend(Protocol):
    """Models that interfaces give access to."""

    @property
    def failed(self) -> Sequence[str]:
        """Names of models that take no requests any more, which only a new process mends."""
        ...

    async def close(self) -> None:
        """Ends all of them."""
        ...


def unfit(error: UnfitError) -> Refusal:
    """A request whose fields do not fit, of a protocol that says no more."""
    fault = error.faults[0]
    return Refusal(400, f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}")


def unbroken(_: Refusal) -> bytes:
    """The end of a stream in a protocol that has none."""
    return b""


class Request(NamedTuple):
    """A request over HTTP, all of it.

    Attributes:
        path: below where the application is mounted.
        headers: by name in lower case; of several of a name the first.
    """

    method: str
    path: str
    headers: Mapping[bytes, bytes]
    body: bytes
    visit: Visit


class Answer(NamedTuple):
    """What it is answered.

    Attributes:
        headers: others than those of the type and the length.
    """

    body: bytes
    content_type: bytes = b"application/json"
    headers: Sequence[tuple[bytes, bytes]] = ()


@dataclass(frozen=True)
class Interface:
    """A protocol beside others.

    Attributes:
        prefix: of its paths, as "/v1".
        router: its routes; None where `answer` answers all its paths.
        refuse: a refusal as the protocol says it: what its routes raise as Refusal, or as an error that `refusal_of`
            knows.
        faults: what is wrong with fields that do not fit their types, of routes in `router`.
        broken: the last event of a stream that cannot be finished.
        answer: in place of routes, where routes would take longer to read a request than a model to answer it. It sets
            `visit.route` and raises what is not answered by status 200, as routes do.
        live, ready: paths that answer as /health/live and /health/ready do, without a key; none where empty.
    """

    prefix: str
    router: Router | None
    refuse: Callable[[Refusal], Response]
    faults: Callable[[UnfitError], Refusal] = unfit
    broken: Callable[[Refusal], bytes] = unbroken
    answer: Callable[[Request], Awaitable[Answer]] | None = None
    live: str = ""
    ready: str = ""

    def covers(self, path: str) -> bool:
        """Whether a path is one of its, other than its health. path: as `path_of` has it."""
        return (path == self.prefix or path.startswith(f"{self.prefix}/")) and path not in (self.live, self.ready)


def path_of(scope: Scope) -> str:
    """The path of a request below where the application is mounted, as Ray Serve does by its `route_prefix`."""
    path, root = scope["path"], scope.get("root_path", "")
    return path[len(root) :] if path.startswith(f"{root}/") else path


class EventStream(Response):
    """Server-sent events. The answer begins with the first one: what is raised before is answered with its status."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes], broken: Callable[[Refusal], bytes]) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events, self._broken = events, broken

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends them, and closes what makes them however it ends."""
        async with aclosing(self._events) as events:
            piece = await anext(events, b"")
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                while piece:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    piece = await anext(events, b"")
            except OpweldError as error:
                if (refusal := refusal_of(error)) is None:
                    raise
                await send({"type": "http.response.body", "body": self._broken(refusal), "more_body": True})
            await send({"type": "http.response.body", "body": b""})

"""A worker's end of what workers do together."""

from __future__ import annotations

import array
import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

from opweld.errors import OpweldError
from opweld.serve.processes.handing import Closed
from opweld.serve.processes.part import Part
from opweld.serve.refusal import Refusal, internal, refusal_of

_log = logging.getLogger("opweld.serve")

Handler: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Answers a question, or does a change, by what is given with it. What it returns is a value of JSON; None where a
question has no answer here."""

_LONGEST: Final = 1 << 30
"""Bytes of a message."""


class Member:
    """Of one worker, from before there is an event loop.

    Attributes:
        part: of the machine that it has.
    """

    def __init__(self, part: Part, talk: socket.socket, handed: socket.socket, closed: Closed) -> None:
        self.part = part
        self._talk, self._handed, self._closed = talk, handed, closed
        self._handlers: dict[str, Handler] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last_id = 0
        self._alone = False
        self._surplus = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._taken: Callable[[socket.socket], object] | None = None

    def on(self, what: str, handler: Handler) -> None:
        """How a question is answered, or a change done. Before `join`."""
        self._handlers[what] = handler

    # ---- its life ----

    async def join(self) -> None:
        """All models are loaded here: returns when they are everywhere, and what was changed since is changed here."""
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._talk.setblocking(False)
        reader, self._writer = await asyncio.open_unix_connection(sock=self._talk, limit=_LONGEST)
        self._do(self._read(reader))
        self._send(kind="loaded")
        await self._begun

    def serve(self, take: Callable[[socket.socket], object]) -> None:
        """From now on takes connections.

        Args:
            take: is called with each, on the event loop; calls `gone` when it has ended.
        """
        self._taken = take
        self._handed.setblocking(False)
        asyncio.get_running_loop().add_reader(self._handed, self._take)
        self._send(kind="serving")

    def gone(self) -> None:
        """A connection has ended that was taken."""
        self._closed.add(self.part.number)

    def parts(self) -> bool:
        """Whether a connection that has a request now is to end with its answer, as others have fewer."""
        if self._surplus == 0:
            return False
        self._surplus -= 1
        return True

    async def leave(self) -> None:
        """Takes connections no more: returns when all are taken that were handed out."""
        if self._taken is None:
            return
        if not self._alone:
            self._send(kind="leaves")
            with suppress(Refusal):
                await self._left
        asyncio.get_running_loop().remove_reader(self._handed)
        while self._take():
            pass
        self._taken = None

    def close(self) -> None:
        """Ends what it has with the supervisor."""
        if self._writer is not None:
            self._writer.close()
        self._talk.close()
        self._handed.close()

    # ---- what is asked ----

    async def ask(self, what: str, given: Mapping[str, Any] | None = None) -> list[Any]:
        """What all workers answer, this one among them; who does not within a while is left out."""
        reply = await self._asked(kind="ask", what=what, given=given or {})
        return reply["answers"]

    async def change(self, concerns: str, name: str, what: str, given: Mapping[str, Any], *, keeps: bool) -> None:
        """Has all workers do something, this one first. Raises Refusal where one of them cannot; where this one cannot,
        nothing has changed.

        Args:
            concerns: the kind of what is changed; name: which of them, empty for all. Changes of the same model, and of
                anything of another kind, are done one after the other, in the same order everywhere.
            keeps: whether a worker that is started later has to do it as well; else it does not do what was kept
                before.
        """
        reply = await self._asked(kind="change", concerns=concerns, name=name, what=what, keeps=keeps, given=given)
        if (error := reply["error"]) is not None:
            raise _refusal(error)

    async def _asked(self, **message: Any) -> dict[str, Any]:
        if self._alone:
            raise _alone()
        self._last_id += 1
        id = self._last_id
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._replies[id] = reply
        try:
            self._send(id=id, **message)
            return await reply
        finally:
            self._replies.pop(id, None)

    # ---- messages ----

    def _send(self, **message: Any) -> None:
        assert self._writer is not None
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            said = json.loads(line)
            match said["kind"]:
                case "begin":
                    for what, given in said["changes"]:
                        await self._catch_up(what, given)
                    self._begun.set_result(None)
                case "question":
                    self._do(self._answer(said["id"], said["what"], said["given"]))
                case "change":
                    self._do(self._change(said["id"], said["what"], said["given"]))
                case "reply":
                    if (reply := self._replies.pop(said["id"], None)) is not None and not reply.done():
                        reply.set_result(said)
                case "surplus":
                    self._surplus = said["count"]
                case "left":
                    self._left.set_result(None)
                case kind:
                    raise AssertionError(kind)
        # The supervisor is gone, and the system has this process end, too.
        self._alone = True
        for future in (self._begun, self._left, *self._replies.values()):
            if not future.done():
                future.set_exception(_alone())
                future.exception()

    async def _catch_up(self, what: str, given: Mapping[str, Any]) -> None:
        try:
            await self._handlers[what](given)
        except OpweldError as error:  # it is so already, or cannot be done any more
            _log.info("%s %s: %s", what, " ".join(map(str, given.values())), error)

    async def _answer(self, id: int, what: str, given: Mapping[str, Any]) -> None:
        value = None
        if (handler := self._handlers.get(what)) is not None:
            try:
                value = await handler(given)
            except Exception:  # noqa: BLE001 - the log says it, and others answer
                _log.exception("the question %r cannot be answered", what)
        self._send(kind="answer", id=id, value=value)

    async def _change(self, id: int, what: str, given: Mapping[str, Any]) -> None:
        told = None
        try:
            await self._handlers[what](given)
        except Exception as error:  # noqa: BLE001 - who asked is told
            told = _told(error)
        self._send(kind="done", id=id, error=told)

    def _do(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- connections ----

    def _take(self) -> bool:
        """Whether there was a connection."""
        fds = array.array("i")
        try:
            message, ancillary, _, _ = self._handed.recvmsg(1, socket.CMSG_SPACE(fds.itemsize), socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return False
        if not message:  # the supervisor is gone
            asyncio.get_running_loop().remove_reader(self._handed)
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        for fd in fds:
            assert self._taken is not None
            with suppress(OSError):  # the supervisor is gone
                self._handed.send(b"t")
            self._taken(socket.socket(fileno=fd))
        return bool(fds)


def _alone() -> Refusal:
    return Refusal(503, "The supervisor of this server is gone.", retry_after=5)


def _told(error: Exception) -> dict[str, Any]:
    refusal = refusal_of(error) if isinstance(error, OpweldError) else None
    if refusal is None:
        _log.error("a change failed", exc_info=error)
        refusal = internal()
    return {
        "status": refusal.status,
        "message": str(refusal),
        "param": refusal.param,
        "code": refusal.code,
        "retry_after": refusal.retry_after,
    }


def _refusal(told: Mapping[str, Any]) -> Refusal:
    return Refusal(
        told["status"],
        told["message"],
        param=told["param"],
        code=told["code"],
        retry_after=told["retry_after"],
    )

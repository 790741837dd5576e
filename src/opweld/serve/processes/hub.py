"""The supervisor's end of what workers do together: nobody is ready before all are, and what one of them is asked that
concerns all, all are asked, in one order."""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from opweld.serve.processes.channel import Channel
from opweld.serve.processes.counts import Counts, added, kept, without
from opweld.serve.processes.handing import AGAIN_S, Closed, Handing, Taker
from opweld.serve.processes.member import Member
from opweld.serve.processes.part import Part

PATIENCE_S: Final = 2.0
"""That a worker has to answer a question. Changes take as long as they take."""

COUNTS: Final = "counts"
"""The question whose last answer of each worker is kept, for when it is no more."""

_GONE: Final = {"message": "it died"}
"""Of a change whose worker did: it is not done, and nobody is told."""


@dataclass(eq=False)
class _Peer:
    """A worker's process.

    Attributes:
        loaded: it has loaded what there is. joined: it was told to begin, and is asked what all are asked. serving: it
            answers requests.
        told: the counts that it told last.
        missed: what it has to do to be as the others are, in order: what was kept when it was forked, and all changes
            until it joins them.
    """

    number: int
    channel: Channel
    taker: Taker
    missed: list[list[Any]]
    loaded: bool = False
    joined: bool = False
    serving: bool = False
    told: Counts = field(default_factory=dict[str, Any])


@dataclass(eq=False)
class _Question:
    """What is asked of several, by whom it is asked, and until when there has to be an answer."""

    asker: _Peer
    id: int
    what: str
    due: float
    waiting: set[_Peer]
    answers: list[Any] = field(default_factory=list[Any])


@dataclass(eq=False)
class _Change:
    """What all have to do. The one that is asked by a client does it first: where that fails, nothing has changed.

    Attributes:
        kind, name: of what is changed; a name is empty where all of a kind are. keeps: whether a worker that is started
            later has to do it, too; else it has to do nothing of what was kept for that name.
        first: until it is done by the one who was asked.
    """

    asker: _Peer
    id: int
    kind: str
    name: str
    what: str
    given: Mapping[str, Any]
    keeps: bool
    first: bool = True
    waiting: set[_Peer] = field(default_factory=set[_Peer])
    error: Any = None


class Ends(NamedTuple):
    """Of two pairs of sockets between the supervisor and a worker: on one they talk, over the other connections are
    handed. `hub_talk` and `given` are the supervisor's."""

    hub_talk: socket.socket
    talk: socket.socket
    given: socket.socket
    taken: socket.socket


class Hub:
    """Of one supervisor, which calls it; its methods wait for nothing.

    Attributes:
        selector: what it waits for, with functions that are called with the events. workers: how many there are.
        closed: connections that workers have no more.
    """

    def __init__(self, listening: socket.socket, workers: int, begun: Callable[[], None]) -> None:
        """
        Args:
            listening: has the address over HTTP, and does not listen yet.
            begun: is called when all workers serve for the first time.
        """
        self.selector = selectors.PollSelector()  # epoll would be the same one in the workers that are forked
        self.workers = workers
        self._begun, self._has_begun, self._all_loaded = begun, False, False
        self.closed = Closed(workers)
        self._handing = Handing(listening, self.selector, self.closed)
        self._peers: dict[int, _Peer] = {}
        self._questions: dict[int, _Question] = {}
        self._changes: dict[str, deque[_Change]] = {}
        self._asked: dict[int, _Change] = {}
        self._kept: dict[str, dict[str, list[Any]]] = {}
        self._last_id = 0
        self._dead: Counts = {}
        self._deaths = 0

    # ---- to the supervisor ----

    @property
    def has_begun(self) -> bool:
        """Whether all workers have served at once."""
        return self._has_begun

    def serves(self) -> bool:
        """Whether a worker answers requests."""
        return any(peer.serving for peer in self._peers.values())

    @staticmethod
    def open() -> Ends:
        """What the next worker has in common with the supervisor, made before it is forked."""
        return Ends(*socket.socketpair(), *socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))

    def forked(self, number: int, ends: Ends) -> None:
        """In the supervisor: the worker of this number is there."""
        ends.talk.close()
        ends.taken.close()
        self.closed.reset(number)
        channel = Channel(ends.hub_talk, self.selector, lambda said: self._said(peer, said))
        missed = [change for names in self._kept.values() for change in names.values()]
        peer = self._peers[number] = _Peer(number, channel, Taker(number, ends.given), missed)

    def member(self, number: int, ends: Ends) -> Member:
        """In the worker: its end; ours are closed."""
        ends.hub_talk.close()
        ends.given.close()
        self.close()
        return Member(Part(number, self.workers), ends.talk, ends.taken, self.closed)

    def close(self) -> None:
        """Lets go of all that this process has of it."""
        for peer in self._peers.values():
            peer.channel.close()
            for connection in peer.taker.close():
                connection.close()
        self._handing.close()
        self.selector.close()

    def died(self, number: int) -> None:
        """A worker is no more: what it had is lost, others go on."""
        peer = self._peers.pop(number)
        self.closed.reset(number)
        self._handing.end(peer.taker)
        peer.channel.close()
        self._deaths += 1
        self._dead = added([self._dead, kept(peer.told)])
        for id, question in list(self._questions.items()):
            if question.asker is peer:
                del self._questions[id]
            else:
                self._answered(id, peer, None)
        for id, change in list(self._asked.items()):
            if peer in change.waiting:
                self._done(id, peer, _GONE if change.asker is peer else None)
        self._begin()

    def ends(self) -> None:
        """The supervisor has told workers to end. Whoever waits for one that would be started anew, waits for none."""
        if not self._peers:
            self._handing.close()

    def due(self) -> float | None:
        """When `act` is to be called, as `time.monotonic` counts; None: when something happens."""
        times = [question.due for question in self._questions.values()]
        if self._handing.waits:
            times.append(time.monotonic() + AGAIN_S)
        return min(times, default=None)

    def act(self) -> None:
        """Does what has its time."""
        self._handing.offer()
        now = time.monotonic()
        for id, question in list(self._questions.items()):
            if question.due <= now:
                for peer in list(question.waiting):
                    self._answered(id, peer, None)

    # ---- messages ----

    def _said(self, peer: _Peer, said: dict[str, Any]) -> None:
        match said["kind"]:
            case "loaded":
                peer.loaded = True
                self._begin()
            case "serving":
                self._serving(peer)
            case "leaves":
                peer.serving = False
                self._handing.remove(peer.taker)
                peer.channel.send({"kind": "left"})
            case "ask":
                self._ask(peer, said)
            case "change":
                self._change(peer, said)
            case "answer":
                self._answered(said["id"], peer, said.get("value"))
            case "done":
                self._done(said["id"], peer, said.get("error"))
            case kind:
                raise AssertionError(kind)

    def _begin(self) -> None:
        """Has those begin that are loaded, once all have been."""
        peers = self._peers.values()
        self._all_loaded |= len(peers) == self.workers and all(peer.loaded for peer in peers)
        for peer in peers if self._all_loaded else ():
            if peer.loaded and not peer.joined:
                peer.joined = True
                peer.channel.send({"kind": "begin", "changes": peer.missed})

    def _serving(self, peer: _Peer) -> None:
        """A worker answers requests. Clients find the port open once all do."""
        peer.serving = True
        if self._has_begun:
            self._handing.add(peer.taker)
            for taker, count in self._handing.surplus():
                self._peers[taker.number].channel.send({"kind": "surplus", "count": count})
        elif len(self._peers) == self.workers and all(one.serving for one in self._peers.values()):
            self._has_begun = True
            self._handing.listen()
            for one in self._peers.values():
                self._handing.add(one.taker)
            self._begun()

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _joined(self) -> set[_Peer]:
        return {peer for peer in self._peers.values() if peer.joined}

    # ---- questions ----

    def _ask(self, asker: _Peer, said: dict[str, Any]) -> None:
        id = self._new_id()
        asked = self._joined()
        question = _Question(asker, said["id"], said["what"], time.monotonic() + PATIENCE_S, asked)
        self._questions[id] = question
        for peer in list(asked):
            peer.channel.send({"kind": "question", "id": id, "what": said["what"], "given": said["given"]})

    def _answered(self, id: int, peer: _Peer, value: Any) -> None:
        """A worker has answered a question; None: it has not, and will not."""
        question = self._questions.get(id)
        if question is None or peer not in question.waiting:
            return
        question.waiting.discard(peer)
        if question.what == COUNTS:
            if value is not None:
                peer.told = value
            value = peer.told if self._peers.get(peer.number) is peer else None
        if value is not None:
            question.answers.append(value)
        if not question.waiting:
            del self._questions[id]
            if question.what == COUNTS:
                question.answers += [self._dead, self._own()]
            question.asker.channel.send({"kind": "reply", "id": question.id, "answers": question.answers})

    def _own(self) -> Counts:
        serving = sum(peer.serving for peer in self._peers.values())
        return {
            "families": {
                "opweld_workers": ["gauge", "Processes that answer requests", [["opweld_workers", {}, serving]]],
                "opweld_worker_ends": [
                    "counter",
                    "Processes that ended or died and were replaced",
                    [["opweld_worker_ends_total", {}, self._deaths]],
                ],
            }
        }

    # ---- changes ----

    def _change(self, asker: _Peer, said: dict[str, Any]) -> None:
        change = _Change(
            asker, said["id"], said["concerns"], said["name"], said["what"], said["given"], bool(said["keeps"])
        )
        waiting = self._changes.setdefault(_order(change), deque())
        waiting.append(change)
        if len(waiting) == 1:
            self._first(change)

    def _first(self, change: _Change) -> None:
        if self._peers.get(change.asker.number) is not change.asker:
            self._next(change)
            return
        self._send(change, {change.asker})

    def _send(self, change: _Change, to: set[_Peer]) -> None:
        id = self._new_id()
        self._asked[id] = change
        change.waiting = to
        for peer in list(to):
            peer.channel.send({"kind": "change", "id": id, "what": change.what, "given": dict(change.given)})

    def _done(self, id: int, peer: _Peer, error: Any) -> None:
        """A worker has done a change, or could not."""
        change = self._asked.get(id)
        if change is None or peer not in change.waiting:
            return
        change.waiting.discard(peer)
        if error and not change.first:
            error["message"] = f"done, but not by {Part(peer.number, self.workers).name}: {error['message']}"
        change.error = change.error or error
        if change.waiting:
            return
        del self._asked[id]
        if change.first and not change.error:
            change.first = False
            self._keep(change)
            if others := self._joined() - {change.asker}:
                self._send(change, others)
                return
        change.asker.channel.send({"kind": "reply", "id": change.id, "error": change.error})
        self._next(change)

    def _keep(self, change: _Change) -> None:
        done = [change.what, dict(change.given)]
        for peer in self._peers.values():
            if not peer.joined:
                peer.missed.append(done)
        kept_of_kind = self._kept.setdefault(change.kind, {})
        if change.keeps:
            kept_of_kind[change.name] = done
        elif change.name:
            kept_of_kind.pop(change.name, None)
        else:
            kept_of_kind.clear()
        if change.kind == "model":  # which counts from zero then
            self._dead = without(self._dead, change.name)
            for peer in self._peers.values():
                peer.told = without(peer.told, change.name)

    def _next(self, change: _Change) -> None:
        waiting = self._changes[_order(change)]
        waiting.popleft()
        if waiting:
            self._first(waiting[0])
        else:
            del self._changes[_order(change)]


def _order(change: _Change) -> str:
    """Changes with the same one are done one after the other."""
    return f"model {change.name}" if change.kind == "model" else change.kind

"""An engine for many callers at once: one thread steps it while there is work, and event loops get what it tells.

All that changes the engine happens in its thread, between steps and in order: callers leave commands for it, and it
sleeps while it has none and nothing to compute.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from opweld.errors import ClosedError, OpweldError, QueueFull, RunError
from opweld.llm.engine import Engine, Outcome, Statistics
from opweld.llm.requests import Delta, Finish, Request
from opweld.llm.sequence import Sequence
from opweld.llm.settings import Settings


class Observer(Protocol):
    """Gets times, in seconds, in the thread of the engine: it must be quick, and must not raise."""

    def first_token(self, seconds: float) -> None:
        """From a request's coming to the first tokens of its answer."""
        ...

    def next_tokens(self, seconds: float, count: int) -> None:
        """Since the tokens before of the same answer; a step can give several."""
        ...

    def finished(self, seconds: float, prompt: int, answer: int, finish: Finish | None) -> None:
        """From coming to end of a request, and the tokens of its prompt and answer. finish: None for an error."""
        ...


@dataclass(eq=False)
class Call:
    """A request that a caller waits for."""

    request: Request
    loop: asyncio.AbstractEventLoop
    came: float
    outcomes: asyncio.Queue[Outcome] = field(default_factory=asyncio.Queue[Outcome])
    tokens: int = 0
    last: float = 0.0


class AsyncEngine:
    """Answers requests of any number of tasks, in any number of event loops.

    It starts its thread at once; `close` ends it."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.perf_counter) -> None:
        self._engine, self._clock = engine, clock
        self._observers: list[Observer] = []
        self._calls: dict[str, Call] = {}  # the thread's own
        self._commands: deque[Callable[[], None]] = deque()
        self._open = 0  # requests that were taken and have not ended
        self._closing = self._stopped = self._ended = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="opweld-engine", daemon=True)
        self._thread.start()

    @property
    def settings(self) -> Settings:
        """Those of the engine."""
        return self._engine.settings

    @property
    def statistics(self) -> Statistics:
        """What the engine has and what it did so far."""
        return self._engine.statistics

    @property
    def unfinished(self) -> int:
        """Requests that were taken and have not ended."""
        return self._open

    @property
    def closing(self) -> bool:
        """Whether it takes no more requests."""
        return self._closing

    def subscribe(self, observer: Observer) -> None:
        """Tells an observer of times from now on."""
        self._observers.append(observer)

    async def generate(self, request: Request) -> AsyncGenerator[Delta]:
        """The answer to a request, piece by piece, the last of which has its `finish`. Closing the iterator, or
        cancelling its task, aborts the request.

        Raises, at the first piece, InputError and OptionError where the request cannot be answered, QueueFull where too
        many wait, and ClosedError; at any piece RunError where the model fails."""
        call = Call(request, asyncio.get_running_loop(), self._clock())
        self._take()
        try:
            if request.sampling.grammar is None:
                sequence = self._engine.prepare(request)
            else:  # which can take long to compile
                sequence = await asyncio.to_thread(self._engine.prepare, request)
        except BaseException:
            self._give_back()
            raise
        if not self._command(partial(self._submit, call, sequence)):
            self._give_back()
            raise ClosedError("the engine was closed before the request began")
        try:
            while True:
                outcome = await call.outcomes.get()
                if not isinstance(outcome, Delta):
                    raise outcome
                yield outcome
                if outcome.finish is not None:
                    return
        finally:
            self._command(partial(self._abort, call))

    async def close(self, drain_seconds: float = 0.0) -> None:
        """Takes no more requests, waits so long for those it has, ends the others with "abort", and ends the thread."""
        await asyncio.to_thread(self._close, drain_seconds)

    def _take(self) -> None:
        with self._changed:
            if self._closing:
                raise ClosedError("the engine is closing: it takes no more requests")
            settings = self._engine.settings
            if self._open >= settings.rows + settings.queue:
                raise QueueFull(f"{settings.queue} requests wait already, which is the limit: try again later")
            self._open += 1

    def _give_back(self) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def _command(self, command: Callable[[], None]) -> bool:
        """Has the thread do something; False where there is none any more."""
        with self._changed:
            if self._ended:
                return False
            self._commands.append(command)
            self._changed.notify_all()
            return True

    def _close(self, drain_seconds: float) -> None:
        with self._changed:
            self._closing = True
            self._changed.wait_for(lambda: not self._open, drain_seconds)
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()

    # What follows runs in the thread of the engine.

    def _work(self) -> None:
        end: Outcome = Delta("", (), "abort")
        try:
            while self._next():
                self._deliver(self._engine.step())
        except BaseException as error:
            end = RunError(f"the engine failed: {type(error).__name__}: {error}")
            raise
        finally:
            with self._changed:
                self._closing = self._ended = True
            self._obey()  # a request that came last ends with the others
            self._end_all(end)

    def _next(self) -> bool:
        """Waits until there is something to compute; False when there will be nothing."""
        while True:
            self._obey()
            with self._changed:
                if self._stopped:
                    return False
                if self._engine.unfinished:
                    return True
                self._changed.wait_for(lambda: self._commands or self._stopped)

    def _obey(self) -> None:
        with self._changed:
            commands, self._commands = self._commands, deque()
        for command in commands:
            command()

    def _submit(self, call: Call, sequence: Sequence) -> None:
        try:
            self._engine.submit(sequence)
        except OpweldError as error:
            self._give_back()
            self._send({call.loop: [(call, error)]})
        else:
            self._calls[call.request.id] = call

    def _abort(self, call: Call) -> None:
        """Ends a request whose caller went away; one that has ended is none, and its id may be another's."""
        if self._calls.get(call.request.id) is call:
            self._engine.abort(call.request.id)
            self._end(call, "abort")

    def _deliver(self, told: list[tuple[str, Outcome]]) -> None:
        now = self._clock()
        messages: defaultdict[asyncio.AbstractEventLoop, list[tuple[Call, Outcome]]] = defaultdict(list)
        for id, outcome in told:
            call = self._calls[id]
            messages[call.loop].append((call, outcome))
            if not isinstance(outcome, Delta):
                self._end(call, None)
                continue
            for observer in self._observers:
                if call.tokens:
                    observer.next_tokens(now - call.last, len(outcome.chosen))
                else:
                    observer.first_token(now - call.came)
            call.tokens += len(outcome.chosen)
            call.last = now
            if outcome.finish is not None:
                self._end(call, outcome.finish)
        self._send(messages)

    def _end(self, call: Call, finish: Finish | None) -> None:
        del self._calls[call.request.id]
        seconds = self._clock() - call.came
        for observer in self._observers:
            observer.finished(seconds, len(call.request.prompt), call.tokens, finish)
        self._give_back()

    def _end_all(self, outcome: Outcome) -> None:
        messages: defaultdict[asyncio.AbstractEventLoop, list[tuple[Call, Outcome]]] = defaultdict(list)
        for call in list(self._calls.values()):
            self._engine.abort(call.request.id)
            self._end(call, outcome.finish if isinstance(outcome, Delta) else None)
            messages[call.loop].append((call, outcome))
        self._send(messages)

    def _send(self, messages: dict[asyncio.AbstractEventLoop, list[tuple[Call, Outcome]]]) -> None:
        """Hands outcomes to their event loops: each is woken once a step."""
        for loop, pieces in messages.items():
            try:
                loop.call_soon_threadsafe(put, pieces)
            except RuntimeError:  # the loop is closed, so that nobody waits any more
                for call, _ in pieces:
                    self._abort(call)


def put(pieces: list[tuple[Call, Outcome]]) -> None:
    """In an event loop: lets those that wait there go on."""
    for call, outcome in pieces:
        call.outcomes.put_nowait(outcome)

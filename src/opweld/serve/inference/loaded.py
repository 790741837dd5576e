"""A version of a model that answers calls."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opweld.errors import ClosedError, InputError, LateError, OpweldError, QueueFull, RunError
from opweld.interface import shape_text
from opweld.serve.inference.batcher import Batch, Batcher, Waiting
from opweld.serve.inference.dispatcher import Dispatcher
from opweld.serve.inference.examined import Examined
from opweld.serve.inference.model import Array, Call, KernelTime, Run, Statistics, TensorSpec
from opweld.serve.inference.settings import Settings
from opweld.serve.inference.tally import Tally
from opweld.serve.inference.tensors import Tensors


@dataclass(eq=False, slots=True)
class _Pending:
    """A call that is being answered. came: in nanoseconds, as `time.monotonic_ns` counts."""

    feeds: Mapping[str, Array]
    call: Call
    answer: asyncio.Future[list[Array]]
    came: int


@dataclass(eq=False, slots=True)
class _Outcome:
    """What became of a batch.

    Attributes:
        results: of each call, outputs or an error; of none that nobody waited for when it was to run again.
        runs: one that answered all, or those by which the call at fault was found, in order.
    """

    results: dict[Waiting, list[Array] | OpweldError] = field(
        default_factory=dict[Waiting, "list[Array] | OpweldError"]
    )
    runs: list[Run] = field(default_factory=list[Run])


class LoadedModel:
    """See `TensorModel`.

    Attributes:
        batcher: decides which calls share a run. tally: what it did.
    """

    def __init__(
        self, name: str, version: str, tensors: Tensors, settings: Settings, found: Examined, dispatcher: Dispatcher
    ) -> None:
        """found: what `examined` found out about it."""
        self.name, self.version, self.artifact = name, version, tensors.artifact
        self.inputs: Sequence[TensorSpec] = tensors.inputs
        self.outputs: Sequence[TensorSpec] = tensors.outputs
        self._rows = found.rows
        self.max_batch = 0 if found.rows is None else found.rows.most
        self.batcher = Batcher(
            max(1, self.max_batch),
            settings.target,
            threads=found.threads,
            processors=dispatcher.processors,
            pads=found.rows is not None and bool(found.rows.padded),
        )
        for (kind, size, threads), seconds in found.seconds.items():
            self.batcher.cost(kind, threads).observe(size, seconds)
        self.tally = Tally()
        self._tensors, self._settings, self._dispatcher = tensors, settings, dispatcher
        self._names = [spec.name for spec in self.outputs]
        self._closing = False

    @property
    def statistics(self) -> Statistics:
        """See `TensorModel`."""
        return self.tally.statistics(len(self.batcher))

    async def infer(self, feeds: Mapping[str, Array], call: Call) -> Mapping[str, Array]:
        """See `TensorModel`."""
        if self._closing:
            raise ClosedError(f"{self.name!r} is being unloaded")
        wanted = self._wanted(call)
        check_feeds(self.inputs, feeds)
        if len(self.batcher) >= self._settings.queue and (len(self.batcher) or self.tally.running):
            self.tally.refused += 1
            raise QueueFull(f"{len(self.batcher)} calls wait for {self.name!r} already")
        one = self._waiting(feeds, call)
        pending: _Pending = one.call
        self._dispatcher.submit(self, one)
        expiry = None
        if call.deadline is not None and not pending.answer.done():
            expiry = asyncio.get_running_loop().call_later(call.deadline - time.monotonic(), self._expired, one)
        try:
            found = await pending.answer
        except asyncio.CancelledError:
            self._dispatcher.withdraw(self, one)
            self._leave()
            raise
        finally:
            if expiry is not None:
                expiry.cancel()
        made = dict(zip(self._names, found, strict=True))
        return made if call.outputs is None else {name: made[name] for name in self._names if name in wanted}

    def close(self) -> None:
        """Takes no more calls; those that there are end."""
        self._closing = True
        self._leave()

    # ---- to the dispatcher ----

    def run(self, batch: Batch) -> _Outcome:
        """See `Runner`. Where a run of several calls fails, each half of them runs again, so that only who is at fault
        has the error."""
        outcome = _Outcome()
        self._answer(batch.calls, batch.threads, outcome)
        return outcome

    def begun(self, batch: Batch) -> None:
        """See `Runner`."""
        self.tally.begun += len(batch.calls)

    def took(self, outcome: _Outcome) -> float | None:
        """See `Runner`. Timed kernels take longer, and so does what runs again; what failed may have ended early."""
        run, *others = outcome.runs
        answered = any(isinstance(result, list) for result in outcome.results.values())
        return None if others or run.kernels or not answered else (run.ended - run.begun) / 1e9

    def ended(self, batch: Batch, outcome: _Outcome) -> None:
        """See `Runner`."""
        tally, begun = self.tally, outcome.runs[0].begun
        took = outcome.runs[-1].ended - begun
        tally.closed(batch.reason)
        for run in outcome.runs:
            tally.ran(run.rows, run.ended - run.begun)
            for call in run.calls:
                if call.observer is not None:
                    call.observer.ran(run)
        for one in batch.calls:
            pending: _Pending = one.call
            result = outcome.results.get(one)
            given_up = pending.answer.done()
            failed = not isinstance(result, list) or (given_up and not pending.answer.cancelled())
            tally.ended(max(0, begun - pending.came), took, failed=failed)
            if result is None or given_up:
                continue  # nobody waits for it any more
            if isinstance(result, OpweldError):
                pending.answer.set_exception(result)
            else:
                pending.answer.set_result(result)
        self._leave()

    def late(self, one: Waiting) -> None:
        """See `Runner`."""
        pending: _Pending = one.call
        self.tally.refused += 1
        if not pending.answer.done():
            pending.answer.set_exception(self._lateness())
        self._leave()

    # ---- inside ----

    def _lateness(self) -> LateError:
        return LateError(f"{self.name!r} cannot answer by the deadline")

    def _waiting(self, feeds: Mapping[str, Array], call: Call) -> Waiting:
        kind, rows, length = (None, 1, 1) if self._rows is None else self._rows.kind(feeds)
        deadline = math.inf if call.deadline is None else call.deadline
        pending = _Pending(feeds, call, asyncio.get_running_loop().create_future(), time.monotonic_ns())
        now = pending.came / 1e9
        due = min(deadline, call.begun + self._settings.target)
        return Waiting(kind, rows, length, now, due, deadline, pending)

    def _expired(self, one: Waiting) -> None:
        """The deadline of a call has come. Who asked is told now; a run that it is in goes on for others."""
        pending: _Pending = one.call
        if self._dispatcher.withdraw(self, one):
            self.late(one)
        elif not pending.answer.done():
            pending.answer.set_exception(self._lateness())

    def _answer(self, calls: Sequence[Waiting], threads: int, outcome: _Outcome) -> None:
        """Adds what calls get from a run that they share, or from more of them where it fails."""
        pending: list[_Pending] = [one.call for one in calls]
        begun, again = time.monotonic_ns(), False
        kernels: Sequence[KernelTime] = ()
        try:
            found, kernels = self._together(calls, pending, threads)
            outcome.results.update(zip(calls, found, strict=True))
        except OpweldError as error:
            again = len(calls) > 1
            if not again:
                outcome.results[calls[0]] = error
        except Exception as error:  # noqa: BLE001 - a fault of ours ends the calls, not the thread
            outcome.results.update(dict.fromkeys(calls, _unknown(error)))
        rows = sum([one.rows for one in calls])
        outcome.runs.append(Run(begun, time.monotonic_ns(), rows, [one.call for one in pending], kernels))
        if again:
            middle = len(calls) // 2
            for half in (calls[:middle], calls[middle:]):
                if wanted := [one for one in half if not one.call.answer.done()]:
                    self._answer(wanted, threads, outcome)

    def _together(
        self, calls: Sequence[Waiting], pending: Sequence[_Pending], threads: int
    ) -> tuple[list[list[Array]], Sequence[KernelTime]]:
        """The outputs of each call from one run."""
        feeds = pending[0].feeds
        if len(pending) > 1:
            assert self._rows is not None
            feeds = self._rows.join([one.feeds for one in pending])
        kernels: Sequence[KernelTime] = ()
        observers = [one.call.observer for one in pending if one.call.observer is not None]
        if observers and any(observer.wants_kernels for observer in observers):
            outputs, kernels = self._tensors.timed(feeds, threads)
        else:
            outputs = self._tensors.run(feeds, threads)
        if len(pending) == 1:
            return [outputs], kernels
        assert self._rows is not None
        return self._rows.split(outputs, [(one.rows, one.length) for one in calls]), kernels

    def _leave(self) -> None:
        """Is forgotten by the dispatcher, once nothing is left."""
        if self._closing:
            self._dispatcher.leave(self)

    def _wanted(self, call: Call) -> Sequence[str]:
        if call.outputs is None:
            return self._names
        for name in call.outputs:
            if name not in self._names:
                raise InputError(
                    f"{name!r} is no output of {self.name!r}; there are {', '.join(map(repr, self._names))}"
                )
        return call.outputs


def _unknown(error: Exception) -> RunError:
    """A fault of ours, or an answer that there is no memory for."""
    return RunError(f"the run failed: {type(error).__name__}: {error}")


def check_feeds(inputs: Sequence[TensorSpec], feeds: Mapping[str, Array]) -> None:
    """Raises InputError naming the input that is missing, unknown, or of another dtype or shape."""
    for spec in inputs:
        if (fed := feeds.get(spec.name)) is None:
            raise InputError(f"input {spec.name!r} is missing; there are {', '.join(repr(one.name) for one in inputs)}")
        if fed.dtype != spec.dtype and not (spec.dtype == object and fed.dtype.kind in "OUST"):
            raise InputError(f"input {spec.name!r}: expected dtype {spec.dtype}, got {fed.dtype}")
        if not spec.fits(fed.shape):
            raise InputError(
                f"input {spec.name!r}: expected shape {shape_text(spec.shape or ())}, got {list(fed.shape)}"
            )
    if len(feeds) != len(inputs):
        known = {spec.name for spec in inputs}
        unknown = next(name for name in feeds if name not in known)
        raise InputError(f"{unknown!r} is no input; there are {', '.join(map(repr, known))}")

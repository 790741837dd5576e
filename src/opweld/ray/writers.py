"""Actors that write parts, and others in the place of those that die.

A part is written by whoever has it first; a file of its name is the same whoever wrote it. So an actor that dies costs
what it was at, and nothing else: its part goes to the next one that is free, and a new actor is asked for, which takes
parts when there is a place for it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from opweld.errors import RunError
from opweld.ray.columns import Columns
from opweld.ray.packages import BlockAccessor, exceptions, parquet, ray
from opweld.ray.parts import Part, batches_of
from opweld.ray.predictor import Predictor
from opweld.ray.shipment import Shipment

ATTEMPTS: Final = 5
"""Actors that may die on a part before it is given up."""

LEFT: Final = ".new-"
"""What the name of a file begins with that is not complete yet."""


class Writer:
    """What an actor does: it fills the batches of a part and writes them to one file."""

    def __init__(self, shipment: Shipment, columns: Columns, threads: int, folder: str, batch_size: int) -> None:
        self._predictor = Predictor(shipment, columns, threads)
        self._folder, self._batch_size = Path(folder), batch_size

    def ready(self) -> int:
        """The process, when it has the model open."""
        return os.getpid()

    def write(self, name: str, cuts: Sequence[tuple[int, int]], *blocks: Any) -> int:
        """Writes these rows of the blocks as the file `name`, which appears complete; how many there are."""
        made = [BlockAccessor.batch_to_block(self._predictor(b)) for b in batches_of(blocks, cuts, self._batch_size)]
        table = BlockAccessor.for_block(_together(made)).to_arrow()
        handle, path = tempfile.mkstemp(prefix=LEFT, dir=self._folder)
        try:
            with os.fdopen(handle, "wb") as file:
                parquet.write_table(table, file)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(path, 0o644)
            os.replace(path, self._folder / name)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        return table.num_rows


class Writers:
    """A pool of `Writer` actors."""

    def __init__(self, count: int, threads: int, *arguments: Any) -> None:
        """`arguments`: of each `Writer`. `threads`: processors that Ray reserves for each."""
        self._actor = ray.remote(num_cpus=threads, max_restarts=0, max_task_retries=0)(Writer)
        self._arguments = arguments
        self._starting: dict[Any, Any] = {}
        self._idle: list[Any] = []
        self._running: dict[Any, tuple[Any, str, Part]] = {}
        self._again: deque[tuple[str, Part]] = deque()
        self._deaths: dict[int, int] = {}
        for _ in range(count):
            self._start()

    def written(self, parts: Iterator[tuple[str, Part]]) -> Iterator[tuple[Part, int]]:
        """Writes parts, each to the file of its name; yields each part that is written, and how many rows it has.

        No more are taken from `parts` than there are actors free. Raises what a part raises, RunError for one on which
        one actor after the other dies."""
        exhausted = False
        while True:
            while self._idle and not (exhausted and not self._again):
                given = self._again.popleft() if self._again else next(parts, None)
                if given is None:
                    exhausted = True
                    break
                self._submit(*given)
            if exhausted and not self._running and not self._again:
                return
            yield from self._wait()

    def close(self) -> None:
        """Ends all actors."""
        for actor in (*self._starting.values(), *self._idle, *(actor for actor, _, _ in self._running.values())):
            ray.kill(actor)
        self._starting, self._idle, self._running = {}, [], {}

    def _start(self) -> None:
        actor = self._actor.remote(*self._arguments)
        self._starting[actor.ready.remote()] = actor

    def _submit(self, name: str, part: Part) -> None:
        actor = self._idle.pop()
        cuts = [(piece.start, piece.stop) for piece in part.pieces]
        task = actor.write.remote(name, cuts, *(piece.block for piece in part.pieces))
        self._running[task] = (actor, name, part)

    def _wait(self) -> Iterator[tuple[Part, int]]:
        (done,), _ = ray.wait([*self._running, *self._starting], num_returns=1)
        if done in self._starting:
            actor = self._starting.pop(done)
            if _result(done) is None:
                self._start()
            else:
                self._idle.append(actor)
            return
        actor, name, part = self._running.pop(done)
        rows = _result(done)
        if rows is not None:
            self._idle.append(actor)
            yield part, rows
            return
        deaths = self._deaths[part.number] = self._deaths.get(part.number, 0) + 1
        if deaths == ATTEMPTS:
            raise RunError(
                f"{ATTEMPTS} actors died while they wrote {name}, for want of memory perhaps: take fewer rows a part "
                "(part_rows), smaller batches (batch_size), or fewer actors"
            )
        ray.kill(actor)
        self._again.append((name, part))
        self._start()


def _result(task: Any) -> int | None:
    """What a task returned; None where its actor or node died. Raises what it raised."""
    try:
        return ray.get(task)
    except exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, Exception) else error) from error
    except exceptions.RayError:
        return None


def _together(blocks: Sequence[Any]) -> Any:
    builder = BlockAccessor.for_block(blocks[0]).builder()
    for block in blocks:
        builder.add_block(block)
    return builder.build()

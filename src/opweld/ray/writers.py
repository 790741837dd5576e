"""Actors that write parts, and others in the place of those that die.

A part is written by whoever has it first; a file of its name is the same whoever wrote it. So an actor that dies costs
what it was at, and nothing else: its part goes to the next one that is free.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

from opweld.errors import RunError
from opweld.ray.ahead import Ahead
from opweld.ray.columns import Columns
from opweld.ray.packages import BlockAccessor, exceptions, parquet, ray
from opweld.ray.parts import Part, batches_of
from opweld.ray.predictor import Predictor
from opweld.ray.shipment import Shipment

ATTEMPTS: Final = 5
"""Actors that may die on a part before it is given up, or as they start while there is no other."""

_LOOK_S: Final = 0.1
_PATIENCE_S: Final = 5.0
"""How long actors wait for a part, while no processor is free, before one of them gives way."""

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
        write_file(self._folder / name, lambda file: parquet.write_table(table, file))
        return table.num_rows


class Writers:
    """A pool of `Writer` actors.

    They share the processors of the cluster with the tasks that read the dataset. An actor that has nothing to do while
    reading has no processor gives way; where parts wait and a processor is free, there is another actor. So no number
    of them, and no node that dies, stops a job as long as one processor is there.
    """

    def __init__(self, count: int, threads: int, *arguments: Any) -> None:
        """`arguments`: of each `Writer`. `threads`: processors that Ray reserves for each."""
        self._kind = ray.remote(num_cpus=threads, max_restarts=0, max_task_retries=0)(Writer)
        self._count, self._threads, self._arguments = count, threads, arguments
        self._starting: dict[Any, Any] = {}
        self._checked: dict[Any, Any] = {}
        self._idle: list[Any] = []
        self._running: dict[Any, tuple[Any, Part]] = {}
        self._waiting: deque[Part] = deque()
        self._deaths: Counter[int] = Counter()
        self._failed_starts = 0
        self._spare = 0
        self._worked = time.monotonic()
        for _ in range(count):
            self._start()

    def written(self, parts: Ahead, wanted: Callable[[Part], bool]) -> Iterator[tuple[Part, int]]:
        """Writes those parts that are wanted; yields each that is written, and how many rows its file has.

        Raises what starting an actor, finding or writing a part raises, RunError where one actor after the other dies
        on a part or as it starts."""
        while True:
            if not self._waiting and (part := parts.take(0 if self._busy else _LOOK_S)) is not None:
                self._worked = time.monotonic()
                if wanted(part):
                    self._waiting.append(part)
            while self._idle and self._waiting:
                self._submit(self._waiting.popleft())
            if self._waiting:
                self._grow()
            elif not self._running and not parts.ended:
                self._give_way()
            elif not self._running:
                return
            yield from self._wait()

    def close(self) -> None:
        """Ends all actors."""
        running = (actor for actor, _ in self._running.values())
        for actor in (*self._starting.values(), *self._checked.values(), *self._idle, *running):
            ray.kill(actor)
        self._starting, self._checked, self._idle, self._running = {}, {}, [], {}

    @property
    def _busy(self) -> bool:
        """Whether something may end that the pool waits for."""
        return bool(self._running or self._starting or self._checked)

    def _start(self) -> None:
        actor = self._kind.remote(*self._arguments)
        self._starting[actor.ready.remote()] = actor

    def _grow(self) -> None:
        """Asks for an actor where parts wait for one and there is a place for it, or there is none at all."""
        there = len(self._idle) + len(self._checked) + len(self._running)
        if self._starting or there >= self._count:
            return
        if there == 0 or _free_processors() >= self._threads + self._spare:
            self._start()

    def _give_way(self) -> None:
        """Ends an actor that waits for a part, and those that are not there yet, where reading has no processor."""
        if time.monotonic() - self._worked < _PATIENCE_S or _free_processors() >= 1:
            return
        self._worked, self._spare = time.monotonic(), 1
        for actor in self._starting.values():
            ray.kill(actor)
        self._starting = {}
        if self._idle:
            ray.kill(self._idle.pop())

    def _submit(self, part: Part) -> None:
        actor = self._idle.pop()
        cuts = [(piece.start, piece.stop) for piece in part.pieces]
        task = actor.write.remote(file_name(part.number), cuts, *(piece.block for piece in part.pieces))
        self._running[task] = (actor, part)

    def _wait(self) -> Iterator[tuple[Part, int]]:
        """What ends next, if it does so soon."""
        if not self._busy:
            return
        ended, _ = ray.wait([*self._running, *self._starting, *self._checked], num_returns=1, timeout=_LOOK_S)
        for task in ended:
            result = _result(task)
            if task in self._starting:
                self._started(self._starting.pop(task), result)
                continue
            if task in self._checked:
                actor = self._checked.pop(task)
                self._idle += [actor] if isinstance(result, int) else []
                continue
            self._worked = time.monotonic()
            actor, part = self._running.pop(task)
            if isinstance(result, int):
                self._idle.append(actor)
                yield part, result
            else:
                self._died(actor, part, result)

    def _started(self, actor: Any, result: int | Exception) -> None:
        """Takes an actor that is ready. One that died instead counts where it was the last: others may go on."""
        if isinstance(result, int):
            self._failed_starts = 0
            self._idle.append(actor)
        elif not self._idle and not self._busy:
            self._failed_starts += 1
            if self._failed_starts == ATTEMPTS:
                raise RunError(
                    f"no actor starts: {ATTEMPTS} in a row died while they opened the model, for want of memory "
                    f"perhaps; the last one: {result}"
                ) from result

    def _died(self, actor: Any, part: Part, error: Exception) -> None:
        """Gives its part to another one. Its node may have died, and idle ones with it: all are asked whether they
        live, lest the part goes to one dead actor after the other."""
        ray.kill(actor)
        self._checked |= {other.ready.remote(): other for other in self._idle}
        self._idle = []
        self._waiting.appendleft(part)
        self._deaths[part.number] += 1
        if self._deaths[part.number] == ATTEMPTS:
            raise RunError(
                f"{ATTEMPTS} actors died while they wrote {file_name(part.number)}, for want of memory perhaps: take "
                "fewer rows a part (part_rows), smaller batches (batch_size), or fewer actors"
            ) from error


def file_name(number: int) -> str:
    """Of a part."""
    return f"part-{number:08}.parquet"


def write_file(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Writes a file that appears when it is complete and on disk, also where the machine loses power."""
    handle, name = tempfile.mkstemp(prefix=LEFT, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _free_processors() -> float:
    return ray.available_resources().get("CPU", 0.0)


def _result(task: Any) -> int | Exception:
    """What a task returned, or the error that says that its actor or node died. Raises what it raised, and what the
    start of its actor raised: that would be so again."""
    try:
        return ray.get(task)
    except exceptions.RayTaskError as error:
        raise _cause(error) from error
    except exceptions.RayActorError as error:
        if error.actor_init_failed:
            raise _cause(error.args[0]) from error
        return error
    except (exceptions.NodeDiedError, exceptions.OutOfMemoryError, exceptions.WorkerCrashedError) as error:
        return error


def _cause(error: Any) -> Exception:
    """What a task raised, where it could be sent."""
    return error.cause if isinstance(error.cause, Exception) else error


def _together(blocks: Sequence[Any]) -> Any:
    builder = BlockAccessor.for_block(blocks[0]).builder()
    for block in blocks:
        builder.add_block(block)
    return builder.build()

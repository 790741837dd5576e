"""A program loaded: a model that answers calls by calls of other models."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from opweld.errors import ClosedError, InputError, LateError, OpweldError, QueueFull, RunError
from opweld.interface import shape_text
from opweld.serve.inference.loaded import check_feeds
from opweld.serve.inference.model import Array, Call, Statistics, TensorModel, TensorSpec
from opweld.serve.inference.program import forget, read_program, where
from opweld.serve.inference.settings import Settings
from opweld.serve.inference.workers import Workers
from opweld.serve.refusal import Refusal

T = TypeVar("T")


class ProgramModel:
    """See `TensorModel`: a program loaded.

    Attributes:
        uses: the names of the models that it calls.
    """

    def __init__(
        self,
        name: str,
        version: str,
        file: Path,
        settings: Settings,
        workers: Workers,
        get: Callable[[str], TensorModel],
    ) -> None:
        """
        Args:
            file: which is run now.
            get: a loaded model by name, as `Repository.get`.

        Raises ModelError as `read_program`.
        """
        self.name, self.version, self.max_batch, self.artifact = name, version, 0, None
        self._program, self._module = read_program(file)
        self.inputs, self.outputs = self._program.inputs, self._program.outputs
        self.uses = self._program.models
        self.statistics = Statistics()
        self._file, self._settings, self._workers, self._get = file, settings, workers, get
        self._closing = False

    async def infer(self, feeds: Mapping[str, Array], call: Call) -> Mapping[str, Array]:
        """See `TensorModel`."""
        if self._closing:
            raise ClosedError(f"{self.name!r} is being unloaded")
        wanted = self._wanted(call)
        check_feeds(self.inputs, feeds)
        if self.statistics.running >= max(self._settings.queue, 1):
            self._count(refused=1)
            raise QueueFull(f"{self.statistics.running} calls of {self.name!r} are being answered already")
        begun = time.monotonic_ns()
        self._count(running=1)
        try:
            made = await self._answered(feeds, call)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            refused = isinstance(error, QueueFull | LateError | ClosedError)
            self._count(refused=int(refused), failures=int(not refused))
            raise
        finally:
            self._count(running=-1)
            self._leave()
        self._count(calls=1, runs=1, rows=1, computed_ns=time.monotonic_ns() - begun)
        self.statistics = replace(self.statistics, last_ns=time.time_ns())
        return {name: made[name] for name in wanted}

    def close(self) -> None:
        """Takes no more calls. What is being answered goes on, as far as its models are there."""
        self._closing = True
        self._leave()

    def _leave(self) -> None:
        """Forgets the code, once nothing is left that may import from beside it."""
        if self._closing and not self.statistics.running:
            forget(self._module)

    async def _answered(self, feeds: Mapping[str, Array], call: Call) -> Mapping[str, Array]:
        """Every output. Raises what the program means for the client; RunError with its line for what it does not."""
        clock = asyncio.timeout(None if call.deadline is None else call.deadline - time.monotonic())
        try:
            async with clock:
                made = await self._program.answer(_Models(self, call), **feeds)
            return {spec.name: _checked(made, spec) for spec in self.outputs}
        except TimeoutError as error:
            if clock.expired():
                raise LateError(f"{self.name!r} could not answer by the deadline") from None
            raise self._failed(error) from error
        except (InputError, QueueFull, LateError, ClosedError, Refusal):
            raise
        except (Exception, SystemExit) as error:
            raise self._failed(error) from error

    def _wanted(self, call: Call) -> Sequence[str]:
        names = [spec.name for spec in self.outputs]
        if call.outputs is None:
            return names
        if unknown := next((name for name in call.outputs if name not in names), None):
            raise InputError(f"{unknown!r} is no output of {self.name!r}; there are {', '.join(map(repr, names))}")
        return [name for name in names if name in call.outputs]

    def _failed(self, error: BaseException) -> RunError:
        kind = "" if isinstance(error, OpweldError) else f"{type(error).__name__}: "
        return RunError(f"{where(error, self._file)}: {kind}{error}")

    def _count(self, **more: int) -> None:
        now = self.statistics
        self.statistics = replace(now, **{name: getattr(now, name) + by for name, by in more.items()})

    async def call(self, name: str, feeds: Mapping[str, Array], call: Call) -> Mapping[str, Array]:
        """The outputs of a model for a call of this program.

        Raises QueueFull, LateError and ClosedError as the model does, Refusal of status 503 where it is not loaded,
        RunError for all else: what it is fed is the program's."""
        if name not in self.uses:
            raise RunError(f"the program calls {name!r}, which is not one of the models that it declares")
        while True:
            try:
                model = self._get(name)
            except Refusal as error:
                raise Refusal(503, f"{self.name!r} needs {name!r}: {error}", retry_after=5) from error
            try:
                return await model.infer(feeds, Call(call.id, deadline=call.deadline, observer=call.observer))
            except ClosedError:
                if self._is_there(name, model):
                    raise
                # It was loaded anew meanwhile, and has not begun this call.
            except (QueueFull, LateError) as error:
                raise type(error)(f"{self.name!r}: {error}") from error
            except OpweldError as error:
                raise RunError(f"model {name!r}: {error}") from error

    def _is_there(self, name: str, model: TensorModel) -> bool:
        try:
            return self._get(name) is model
        except Refusal:
            return True

    async def compute(self, function: Callable[..., T], *arguments: Any) -> T:
        """See `Models`."""
        return await self._workers.run(lambda: function(*arguments))


class _Models:
    """The models of a program during one call."""

    def __init__(self, program: ProgramModel, call: Call) -> None:
        self._program, self._call = program, call

    def __getitem__(self, name: str) -> Callable[..., Awaitable[Mapping[str, Array]]]:
        async def infer(feeds: Mapping[str, Array] | None = None, **named: Array) -> Mapping[str, Array]:
            return await self._program.call(name, {**(feeds or {}), **named}, self._call)

        return infer

    async def compute(self, function: Callable[..., T], *arguments: Any) -> T:
        return await self._program.compute(function, *arguments)


def _checked(made: Mapping[str, Any], spec: TensorSpec) -> Array:
    """An output of what a program returned. Raises TypeError where it is not what it declares."""
    if spec.name not in made:
        raise TypeError(f"the program returns no {spec.name!r}, which is one of its outputs")
    value = made[spec.name]
    array = np.array(value, object) if spec.dtype == object else np.asarray(value)
    if array.dtype != spec.dtype or not spec.fits(array.shape):
        declared = f"{spec.dtype}{'' if spec.shape is None else shape_text(spec.shape)}"
        raise TypeError(
            f"the program returns {array.dtype}{list(array.shape)} as {spec.name!r}, which it declares to be {declared}"
        )
    for one in array.flat if spec.dtype == object else ():
        if not isinstance(one, str | bytes):
            raise TypeError(f"the program returns {type(one).__name__} in {spec.name!r}, expected str or bytes")
    return array

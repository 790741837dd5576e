"""A version of a model that answers calls."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from opweld.errors import ClosedError, InputError, LateError, QueueFull
from opweld.interface import shape_text
from opweld.serve.inference.model import Array, Call, KernelTime, Run, Statistics, TensorSpec
from opweld.serve.inference.settings import Settings
from opweld.serve.inference.tensors import Tensors
from opweld.serve.inference.workers import Workers


class LoadedModel:
    """See `TensorModel`."""

    def __init__(self, name: str, version: str, tensors: Tensors, settings: Settings, workers: Workers) -> None:
        self.name, self.version = name, version
        self._tensors, self._settings, self._workers = tensors, settings, workers
        self.inputs: Sequence[TensorSpec] = tensors.inputs
        self.outputs: Sequence[TensorSpec] = tensors.outputs
        self.artifact = tensors.artifact
        self.max_batch = 0
        self.statistics = Statistics()
        self._names = [spec.name for spec in self.outputs]
        self._closing = False

    async def infer(self, feeds: Mapping[str, Array], call: Call) -> Mapping[str, Array]:
        """See `TensorModel`."""
        if self._closing:
            raise ClosedError(f"{self.name!r} is being unloaded")
        wanted = self._wanted(call)
        check_feeds(self.inputs, feeds)
        if self.statistics.waiting > self._settings.queue:
            self._count(refused=1)
            raise QueueFull(f"{self.statistics.waiting} calls wait for {self.name!r} already")
        came = time.monotonic_ns()
        self._count(waiting=1)
        begun = ended = 0
        kernels: Sequence[KernelTime] = ()

        def run() -> list[Array]:
            nonlocal begun, ended, kernels
            begun = time.monotonic_ns()
            if call.deadline is not None and begun > call.deadline * 1e9:
                raise LateError(f"{self.name!r} could not answer by the deadline")
            try:
                if call.observer is None or not call.observer.wants_kernels:
                    return self._tensors.run(feeds)
                found, kernels = self._tensors.timed(feeds)
                return found
            finally:
                ended = time.monotonic_ns()

        try:
            found = await self._workers.run(run)
        except Exception as error:
            late = isinstance(error, LateError)
            self._count(refused=int(late), failures=int(not late))
            raise
        finally:
            self._count(waiting=-1)
            if call.observer is not None and ended:
                call.observer.ran(Run(begun, ended, 1, [call], kernels))
        self._count(calls=1, runs=1, rows=1, waited_ns=begun - came, computed_ns=ended - begun)
        self.statistics = replace(self.statistics, last_ns=time.time_ns())
        return {name: array for name, array in zip(self._names, found, strict=True) if name in wanted}

    def close(self) -> None:
        """Takes no more calls."""
        self._closing = True

    def _wanted(self, call: Call) -> Sequence[str]:
        if call.outputs is None:
            return self._names
        for name in call.outputs:
            if name not in self._names:
                raise InputError(
                    f"{name!r} is no output of {self.name!r}; there are {', '.join(map(repr, self._names))}"
                )
        return call.outputs

    def _count(self, **more: int) -> None:
        now = self.statistics
        self.statistics = replace(now, **{name: getattr(now, name) + by for name, by in more.items()})


def check_feeds(inputs: Sequence[TensorSpec], feeds: Mapping[str, Array]) -> None:
    """Raises InputError naming the input that is missing, unknown, or of another dtype or shape."""
    for spec in inputs:
        if (fed := feeds.get(spec.name)) is None:
            raise InputError(f"input {spec.name!r} is missing; there are {', '.join(repr(one.name) for one in inputs)}")
        if fed.dtype != spec.dtype and not (spec.dtype == object and fed.dtype.kind in "OUST"):
            raise InputError(f"input {spec.name!r}: expected dtype {spec.dtype}, got {fed.dtype}")
        if spec.shape is not None and not _fits(fed.shape, spec.shape):
            raise InputError(f"input {spec.name!r}: expected shape {shape_text(spec.shape)}, got {list(fed.shape)}")
    if len(feeds) != len(inputs):
        known = {spec.name for spec in inputs}
        unknown = next(name for name in feeds if name not in known)
        raise InputError(f"{unknown!r} is no input; there are {', '.join(map(repr, known))}")


def _fits(given: tuple[int, ...], declared: tuple[int | str, ...]) -> bool:
    return len(given) == len(declared) and all(
        isinstance(dim, str) or dim < 0 or dim == size for dim, size in zip(declared, given, strict=True)
    )

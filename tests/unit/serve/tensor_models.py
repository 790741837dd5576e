"""Models of tensors that compute next to nothing, and a repository of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from opweld.errors import ClosedError, InputError, LateError, QueueFull, RunError
from opweld.serve.inference.model import Array, Call, Entry, KernelTime, Run, Statistics, TensorModel, TensorSpec
from opweld.serve.refusal import Refusal

BF16 = np.dtype(ml_dtypes.bfloat16)
TEXT = np.dtype(object)

KERNEL = KernelTime("k1_map", 0, 100, 900, 64, 256)
"""What observers are told of a run, where they want its kernels."""

Compute = Callable[[Mapping[str, Array]], Mapping[str, Array]]


@dataclass
class FakeModel:
    """Computes with a function, and counts.

    Attributes:
        most: calls that may be there at once.
        held: calls wait until `release`.
        calls: that came, in order. gone: how many were cancelled while they waited.
    """

    name: str
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    compute: Compute
    version: str = "1"
    max_batch: int = 0
    most: int = 1000
    held: bool = False
    closing: bool = False
    artifact: Path | None = None
    calls: list[Call] = field(default_factory=list[Call])
    gone: int = 0
    statistics: Statistics = field(default_factory=Statistics)
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop | None = None

    async def infer(self, feeds: Mapping[str, Array], call: Call) -> Mapping[str, Array]:
        self._loop = asyncio.get_running_loop()
        if self.closing:
            raise ClosedError(f"{self.name} is being unloaded")
        if self.statistics.running >= self.most:
            self._count(refused=1)
            raise QueueFull(f"{self.most} calls wait for {self.name} already")
        self.calls.append(call)
        self._count(running=1)
        try:
            self._check(feeds)
            if self.held:
                try:
                    limit = None if call.deadline is None else call.deadline - time.monotonic()
                    async with asyncio.timeout(limit):
                        await self._released.wait()
                except TimeoutError:
                    raise LateError(f"{self.name} cannot answer in time") from None
                except asyncio.CancelledError:
                    self.gone += 1
                    raise
            found = self._observed(feeds, call)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._count(failures=1)
            raise
        finally:
            self._count(running=-1)
        self._count(calls=1, runs=1, rows=self._rows(feeds), waited_ns=1000, computed_ns=2000)
        self.statistics = replace(self.statistics, last_ns=1_700_000_000_000_000_000)
        wanted = [one.name for one in self.outputs if call.outputs is None or one.name in call.outputs]
        return {name: found[name] for name in wanted}

    def _observed(self, feeds: Mapping[str, Array], call: Call) -> Mapping[str, Array]:
        begun = time.monotonic_ns()
        try:
            return self.compute(feeds)
        finally:
            if call.observer is not None:
                kernels = [KERNEL] if call.observer.wants_kernels else []
                call.observer.ran(Run(begun, time.monotonic_ns(), self._rows(feeds), [call], kernels))

    def _rows(self, feeds: Mapping[str, Array]) -> int:
        return len(next(iter(feeds.values()))) if self.max_batch else 1

    def release(self) -> None:
        """From any thread: lets those go on that wait, and all that come."""
        self.held = False
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._released.set)

    def _check(self, feeds: Mapping[str, Array]) -> None:
        if set(feeds) != {one.name for one in self.inputs}:
            raise InputError(f"{self.name} takes {[one.name for one in self.inputs]}, got {list(feeds)}")
        sizes: dict[str, int] = {}
        for one in self.inputs:
            given = feeds[one.name]
            if given.dtype != one.dtype:
                raise InputError(f"{one.name} has dtype {given.dtype}, expected {one.dtype}")
            if one.shape is None:
                continue
            if len(given.shape) != len(one.shape):
                raise InputError(f"{one.name} has shape {given.shape}, expected {one.shape}")
            for size, expected in zip(given.shape, one.shape, strict=True):
                if size != (sizes.setdefault(expected, size) if isinstance(expected, str) else expected):
                    raise InputError(f"{one.name} has shape {given.shape}, expected {one.shape}")

    def _count(self, **more: int) -> None:
        now = self.statistics
        self.statistics = replace(now, **{name: getattr(now, name) + by for name, by in more.items()})


def simple(version: str = "1") -> FakeModel:
    """`simple` of Triton's examples: int32 [batch, 16] twice, to their sum and difference."""
    int32 = np.dtype(np.int32)
    return FakeModel(
        "simple",
        [TensorSpec(name, int32, ("batch", 16)) for name in ("INPUT0", "INPUT1")],
        [TensorSpec(name, int32, ("batch", 16)) for name in ("OUTPUT0", "OUTPUT1")],
        lambda feeds: {
            "OUTPUT0": feeds["INPUT0"] + feeds["INPUT1"],
            "OUTPUT1": feeds["INPUT0"] - feeds["INPUT1"],
        },
        version,
        max_batch=8,
    )


def simple_string() -> FakeModel:
    """`simple_string` of Triton's examples: `simple` of numbers written in decimal."""

    def numbers(texts: Array) -> Array:
        return np.array([int(text) for text in texts.flat], np.int64).reshape(texts.shape)

    def texts(found: Array) -> Array:
        return np.array([str(number) for number in found.flat], TEXT).reshape(found.shape)

    def compute(feeds: Mapping[str, Array]) -> dict[str, Array]:
        first, second = numbers(feeds["INPUT0"]), numbers(feeds["INPUT1"])
        return {"OUTPUT0": texts(first + second), "OUTPUT1": texts(first - second)}

    return FakeModel(
        "simple_string",
        [TensorSpec(name, TEXT, ("batch", 16)) for name in ("INPUT0", "INPUT1")],
        [TensorSpec(name, TEXT, ("batch", 16)) for name in ("OUTPUT0", "OUTPUT1")],
        compute,
        max_batch=8,
    )


def text(values: Array) -> Array:
    """Strings as a result has them: `str`, whether a feed had `bytes` or not."""
    decoded = [one.decode() if isinstance(one, bytes) else one for one in values.flat]
    return np.array(decoded, TEXT).reshape(values.shape)


def same(name: str, dtype: Any, shape: tuple[int | str, ...] | None = ("n",)) -> FakeModel:
    """Gives what it is given: `x` to `y`."""
    dtype = np.dtype(dtype)

    def compute(feeds: Mapping[str, Array]) -> dict[str, Array]:
        x = feeds["x"]
        return {"y": text(x) if dtype == TEXT else x.copy()}

    return FakeModel(name, [TensorSpec("x", dtype, shape)], [TensorSpec("y", dtype, shape)], compute)


def slow(most: int = 1000) -> FakeModel:
    """float32 [n] to the same, when it is released."""
    model = same("slow", np.float32)
    model.held, model.most = True, most
    return model


def failing() -> FakeModel:
    """A run that fails."""

    def compute(_: Mapping[str, Array]) -> dict[str, Array]:
        raise RunError("a secret of the server")

    return FakeModel(
        "failing",
        [TensorSpec("x", np.dtype(np.float32), ("n",))],
        [TensorSpec("y", np.dtype(np.float32), ("n",))],
        compute,
    )


DTYPES: Mapping[str, Any] = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BF16": BF16, "BYTES": TEXT,
}  # fmt: skip
"""Of the Open Inference Protocol, by its names."""


class FakeRepository:
    """Models that are loaded, and names of some that could be.

    `simple` has the versions 1 and 3; `same_BF16`, `same_FP32` and so on give back what they get; `slow` waits for its
    release, `failing` fails; `asleep` is known and not loaded, `damaged` cannot be."""

    def __init__(self) -> None:
        every = [simple("1"), simple("3"), simple_string(), slow(), failing()]
        every += [same(f"same_{name}", dtype) for name, dtype in DTYPES.items()]
        every += [same("any_rank", np.float32, None)]
        self.models: dict[str, dict[str, FakeModel]] = {}
        for model in every:
            self.models.setdefault(model.name, {})[model.version] = model
        self.asleep: dict[str, dict[str, FakeModel]] = {"asleep": {"1": same("asleep", np.float32)}}
        self.failed: list[str] = []
        self.closed = False

    def get(self, name: str, version: str = "") -> FakeModel:
        versions = self._loaded(name)
        if not version:
            return versions[self.versions(name)[-1]]
        if version not in versions:
            raise Refusal(404, f"{name} has no version {version}; it has {', '.join(versions)}")
        return versions[version]

    def versions(self, name: str) -> Sequence[str]:
        return sorted(self._loaded(name), key=int)

    def index(self) -> Sequence[Entry]:
        there = [Entry(name, version, "READY") for name, versions in self.models.items() for version in versions]
        there += [
            Entry(name, version, "UNAVAILABLE", "unloaded")
            for name, versions in self.asleep.items()
            for version in versions
        ]
        return sorted(there, key=lambda one: (one.name, one.version))

    async def load(self, name: str) -> None:
        await asyncio.sleep(0)
        if name == "damaged":
            raise InputError("damaged/1/model.onnx is no ONNX model")
        if name in self.asleep:
            self.models[name] = self.asleep.pop(name)
        elif name not in self.models:
            raise Refusal(404, f"there is no model {name}")

    async def unload(self, name: str) -> None:
        await asyncio.sleep(0)
        self._loaded(name)
        self.asleep[name] = self.models.pop(name)

    async def statistics(self, models: Sequence[TensorModel]) -> Sequence[Statistics]:
        await asyncio.sleep(0)
        return [model.statistics for model in models]

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed = True

    def _loaded(self, name: str) -> dict[str, FakeModel]:
        if name in self.asleep:
            raise Refusal(400, f"{name} is not loaded; load it first")
        if name not in self.models:
            raise Refusal(404, f"there is no model {name}; there are {', '.join(sorted(self.models))}")
        return self.models[name]

"""The ceilings of a GPU, as measured through its driver: bandwidth of copies, and what launches cost.

Times are those of the device's events where work runs there, and of the host's clock where that is what is measured.
Rates of matrix products are measured where PyTorch is (`opweld.kernels.ceilings`), for nothing else there is as fast.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import util
from typing import Any, Final

import numpy as np

from opweld.analysis.ceilings import figure_of
from opweld.analysis.machine import Figure
from opweld.build.cache import Cache
from opweld.runtime.cuda.arguments import Arguments
from opweld.runtime.cuda.device import Device, Properties, devices
from opweld.runtime.cuda.memory import Memory, Pinned
from opweld.runtime.cuda.module import Function, Module
from opweld.runtime.cuda.stream import Event, Graph, Stream

_SAMPLES: Final = 20
_WARM: Final = 3
_COPIED: Final = 1 << 30
_PINNED: Final = 256 << 20
"""Bytes of a copy within the GPU, which no cache holds, and of one to or from the host."""

_LAUNCHES: Final = 500
"""Launches of a sample, fewer than the driver queues."""

_FIGURES: Final = ("copy", "to_device", "to_host", "launch", "graph_launch")
"""The fields that are one figure."""

_MEASURING: Final = 1
"""Version of the method: stored figures of another version are measured again."""

_NOTHING: Final = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry nothing() { ret; }
\0"""
"""A kernel that does nothing, which the driver itself compiles."""


@dataclass(frozen=True)
class Gpu:
    """A GPU and its measured ceilings.

    Attributes:
        properties: what it is.
        measured: when, as an ISO date and time, UTC.
        copy: bytes a second that a copy within the GPU reads and writes, together.
        to_device, to_host: bytes a second of copies from and to pinned memory of the host.
        launch: seconds that a launch takes of the host, of many in a row.
        graph_launch: seconds from one kernel of a graph to the next where they do nothing.
        matrix: operations a second of a matrix product by type, a multiply-add two; empty where PyTorch is not.
    """

    properties: Properties
    measured: str
    copy: Figure
    to_device: Figure
    to_host: Figure
    launch: Figure
    graph_launch: Figure
    matrix: Mapping[str, Figure] = field(default_factory=dict[str, Figure])

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON types."""
        told = vars(self.properties) | {
            "capability": list(self.properties.capability),
            "cuda": ".".join(map(str, self.properties.cuda)),
        }
        return {
            **told,
            "measured": self.measured,
            **{name: vars(getattr(self, name)) for name in _FIGURES},
            "matrix": {kind: vars(figure) for kind, figure in self.matrix.items()},
        }

    @classmethod
    def remembered(cls, properties: Properties, cache: Cache | None = None) -> Gpu | None:
        """The stored figures of a GPU of this kind with this driver; None where there are none."""
        text = (cache or Cache.open()).find_text("machines", _key(properties))
        try:
            stored: dict[str, Any] = json.loads(text or "null")
            single = {name: Figure(**stored[name]) for name in _FIGURES}
            matrix = {kind: Figure(**figure) for kind, figure in stored["matrix"].items()}
            return cls(properties=properties, measured=str(stored["measured"]), matrix=matrix, **single)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def remember(self, cache: Cache | None = None) -> None:
        """Stores the figures for `remembered`, replacing earlier ones."""
        (cache or Cache.open()).publish_text("machines", _key(self.properties), json.dumps(self.to_json()))


def gpus(again: bool = False) -> list[Gpu]:
    """Each GPU that the process sees, as remembered, or measured now and remembered; none where there is no driver.

    `again`: whether to measure whatever is remembered, some seconds each.

    Raises DeviceError where one fails, ShortageError where others have its memory."""
    found: list[Gpu] = []
    for number in range(devices()):
        device = Device.open(number)
        known = None if again else Gpu.remembered(device.properties)
        if known is None:
            known = measure_gpu(device)
            known.remember()
        found.append(known)
    return found


def measure_gpu(device: Device, *, copied: int = _COPIED, pinned: int = _PINNED, samples: int = _SAMPLES) -> Gpu:
    """Measures one GPU: each figure from so many samples, by copies of so many bytes within it, and with the host."""
    stream = Stream(device)
    copied = min(copied, device.free_memory() // 4)
    source, target = Memory(device, copied), Memory(device, copied)
    host = np.asarray(Pinned(device, pinned))
    inside = min(pinned, copied)

    def on_device(work: Callable[[], object], amount: float) -> Figure:
        """How much a second, of an amount a piece of work."""
        return figure_of([amount / taken for taken in _device_times(device, stream, work, samples)])

    stream.fill(source.address, 0, copied)
    copy = on_device(lambda: stream.copy(target.address, source.address, copied), 2.0 * copied)
    to_device = on_device(lambda: stream.copy_in(target.address, host[:inside]), inside)
    to_host = on_device(lambda: stream.copy_out(host[:inside], source.address), inside)
    nothing = Module(device, _NOTHING).function("nothing", threads=32)
    launch = figure_of([taken / _LAUNCHES for taken in _host_times(stream, nothing, samples)])
    graph = _graph_of(stream, nothing)
    between = [t / _LAUNCHES for t in _device_times(device, stream, lambda: graph.launch(stream), samples)]
    return Gpu(
        properties=device.properties,
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
        copy=copy,
        to_device=to_device,
        to_host=to_host,
        launch=launch,
        graph_launch=figure_of(between),
        matrix=_matrix_rates(device),
    )


def _device_times(device: Device, stream: Stream, work: Callable[[], object], samples: int) -> list[float]:
    """Seconds of a piece of work on the device, by events around it."""
    start, end, found = Event(device), Event(device), list[float]()
    for _ in range(_WARM + samples):
        start.record(stream)
        work()
        end.record(stream)
        end.synchronize()
        found.append(end.elapsed(start))
    return found[_WARM:]


def _launch_all(stream: Stream, kernel: Function) -> None:
    arguments = Arguments(())
    for _ in range(_LAUNCHES):
        kernel.launch((1, 1, 1), stream, arguments)


def _host_times(stream: Stream, kernel: Function, samples: int) -> list[float]:
    """Seconds that the host takes for `_LAUNCHES` launches."""
    found: list[float] = []
    with stream.device.current():
        for _ in range(_WARM + samples):
            stream.synchronize()
            start = time.perf_counter()
            _launch_all(stream, kernel)
            found.append(time.perf_counter() - start)
        stream.synchronize()
    return found[_WARM:]


def _graph_of(stream: Stream, kernel: Function) -> Graph:
    return stream.capture(lambda: _launch_all(stream, kernel))


def _key(properties: Properties) -> str:
    """What ceilings depend on."""
    parts = ("gpu", _MEASURING, properties.name, properties.arch, properties.cuda)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


def _matrix_rates(device: Device) -> dict[str, Figure]:
    if util.find_spec("torch") is None or util.find_spec("triton") is None:
        return {}
    from opweld.kernels.ceilings import matrix_rates

    return {kind: figure_of(rates) for kind, rates in matrix_rates(device.ordinal).items()}

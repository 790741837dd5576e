"""One run as a trace that chrome://tracing, Perfetto (https://ui.perfetto.dev) and speedscope open.

The format is Chrome's Trace Event Format: an object with a list `traceEvents` of complete events (`ph` X, `ts` and
`dur` in microseconds) on tracks, each a thread of a process, which metadata events (`ph` M) name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from opweld.analysis.profile import KernelProfile, ModelProfile
from opweld.runtime.profile import Part

Event: TypeAlias = dict[str, Any]

_PROCESS = 1
_PHASES = 0
"""The track of the phases; thread n is track n + 1."""

WAITING = "waiting"


def trace_json(profile: ModelProfile, model: str) -> dict[str, Any]:
    """The run nearest the median: a track for its phases, and one for each thread, with kernels and waiting."""
    threads = range(profile.threads)
    tracks = ["phases", *(f"thread {thread}" + (" (caller)" if not thread else "") for thread in threads)]
    events: list[Event] = [_named("process_name", _PHASES, name=f"opweld {model}")]
    for track, name in enumerate(tracks):
        events.append(_named("thread_name", track, name=name))
        events.append(_named("thread_sort_index", track, sort_index=track))
    events += _phases(profile)
    for thread in threads:
        events += _thread(profile, thread)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"model": model, "variant": profile.variant, "wall_ns": profile.typical.wall},
    }


def _named(kind: str, track: int, **arguments: Any) -> Event:
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": track, "args": arguments}


def _complete(name: str, category: str, track: int, begin: float, end: float, arguments: Mapping[str, Any]) -> Event:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": _PROCESS,
        "tid": track,
        "ts": begin / 1000,
        "dur": (end - begin) / 1000,
        "args": dict(arguments),
    }


def _phases(profile: ModelProfile) -> Iterator[Event]:
    parts: dict[int, list[Part]] = {}
    steps = profile.typical.plan.steps
    for part in profile.typical.parts:
        parts.setdefault(steps[part.step].phase, []).append(part)
    for phase, own in sorted(parts.items()):
        names = [steps[step].name for step in dict.fromkeys(part.step for part in own)]
        busy = sum(part.busy for part in own)
        begin, end = min(part.begin for part in own), max(part.end for part in own)
        used = {"kernels": names, "threads": len({part.thread for part in own}), "busy_us": busy / 1000}
        yield _complete(f"phase {phase}", "phase", _PHASES, begin, end, used)


def _thread(profile: ModelProfile, thread: int) -> Iterator[Event]:
    """The events of a thread. Pieces of kernels of one phase may alternate; the busy time of each kernel is drawn as
    one event, since events of a track must not overlap."""
    parts = sorted((part for part in profile.typical.parts if part.thread == thread), key=lambda part: part.begin)
    at = 0
    for part in parts:
        kernel = profile.kernels[profile.steps[part.step]]
        begin = max(part.begin, at)
        yield from _waiting(thread, at, begin)
        at = begin + part.busy
        told = _told(kernel, part) | {"phase": profile.typical.plan.steps[part.step].phase}
        yield _complete(kernel.name, "kernel", thread + 1, begin, at, told)
    yield from _waiting(thread, at, profile.typical.wall)


def _waiting(thread: int, begin: int, end: int) -> Iterable[Event]:
    return [_complete(WAITING, WAITING, thread + 1, begin, end, {})] if end > begin else []


def _told(kernel: KernelProfile, part: Part) -> dict[str, Any]:
    told: dict[str, Any] = {
        "nodes": list(kernel.nodes),
        "segment": kernel.segment,
        "pieces": part.pieces,
        "first_piece_us": part.begin / 1000,
        "last_piece_end_us": part.end / 1000,
        "flops": kernel.flops,
        "bytes": kernel.bytes,
        "schedule": kernel.schedule,
        "predicted_us": kernel.predicted * 1e6,
    }
    sources = list(dict.fromkeys(filter(None, kernel.sources)))
    return told | ({"sources": sources} if sources else {})

"""A profile as JSON types; docs/profile.schema.json documents the fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from opweld.analysis.profile import KernelProfile, ModelProfile, timeline
from opweld.analysis.resources import Resources

FORMAT = 2
"""Version of the schema: fields may be added; none is removed or changed."""

COLUMNS = (
    "name", "variant", "phase", "region", "nodes", "sources", "schedule", "threads", "seconds_median", "seconds_best",
    "seconds_p90", "wall", "busy", "waiting", "share", "flops", "bytes", "flops_per_s",
    "bytes_per_s", "predicted_seconds", "bound", "predicted_bound", "disagreement", "segment", "times", "denormals",
)  # fmt: skip
"""The columns of `profile_rows`."""


def profile_json(
    profile: ModelProfile, model: str, target: str, resources: Mapping[str, Resources] | None = None
) -> dict[str, Any]:
    """The data of `opweld profile --json`. Times are in seconds, except those of the timeline. `resources` are those of
    kernels, by "variant/kernel", if requested."""
    latency = profile.latency
    p50, p90, p95, p99 = (float(np.percentile(profile.plain, part)) for part in (50, 90, 95, 99))
    return {
        "format": FORMAT,
        "model": model,
        "target": target,
        "threads": profile.threads,
        "runs": len(profile.timed),
        "inputs": {name: list(shape) for name, shape in profile.inputs.items()},
        "variant": profile.variant,
        "latency": {
            "median": latency.median,
            "best": latency.best,
            "mean": float(np.mean(profile.plain)),
            "p50": p50,
            "p90": p90,
            "p95": p95,
            "p99": p99,
            "runs": len(profile.plain),
            "per_second": profile.per_second,
        },
        "timed": {"median": float(np.median(profile.timed)), "best": float(np.min(profile.timed))},
        "overhead": profile.overhead.added,
        "overhead_noise": profile.overhead.noise,
        "disturbance": profile.disturbance.to_json(),
        "accounted": profile.accounted,
        "idle": vars(profile.idle).copy(),
        "counters": {
            "available": profile.counters.available,
            "reason": profile.counters.reason,
            "values": dict(profile.counters.values),
        },
        "kernels": [_kernel(kernel) | {"resources": _resources(kernel, resources)} for kernel in profile.kernels],
        "timeline": {
            "wall_ns": profile.typical.wall,
            "parts": [vars(part) | {"step": profile.steps[part.step]} for part in timeline(profile.typical)],
        },
    }


def _resources(kernel: KernelProfile, known: Mapping[str, Resources] | None) -> dict[str, Any] | None:
    found = (known or {}).get(f"{kernel.variant}/{kernel.name}")
    if found is None:
        return None
    spilled = [{"loop": spill.loop, "instruction": spill.instruction} for spill in found.spills]
    return {
        "registers": found.registers,
        "spilled": len(spilled),
        "spills": spilled,
        "stack": found.stack,
        "instructions": list(found.instructions),
    }


def _kernel(kernel: KernelProfile) -> dict[str, Any]:
    judgement = kernel.judgement
    return {
        "name": kernel.name,
        "variant": kernel.variant,
        "segment": kernel.segment,
        "times": kernel.times,
        "phase": kernel.phase,
        "region": kernel.region,
        "nodes": list(kernel.nodes),
        "sources": list(kernel.sources),
        "schedule": kernel.schedule,
        "threads": kernel.threads,
        "seconds": vars(kernel.seconds).copy(),
        "wall": kernel.wall,
        "busy": kernel.busy,
        "waiting": kernel.waiting,
        "share": kernel.share,
        "flops": kernel.flops,
        "bytes": kernel.bytes,
        "flops_per_s": kernel.flops_per_s,
        "bytes_per_s": kernel.bytes_per_s,
        "predicted_seconds": kernel.predicted,
        "bound": None if judgement.bound is None else judgement.bound.to_json(),
        "predicted_bound": None if judgement.predicted is None else judgement.predicted.to_json(),
        "disagreement": judgement.disagreement,
        "denormals": kernel.denormals,
    }


def profile_rows(profile: ModelProfile) -> list[tuple[str | int | float, ...]]:
    """A row for each kernel with `COLUMNS`, as in CSV: lists are separated by blanks."""
    rows: list[tuple[str | int | float, ...]] = []
    for kernel in profile.kernels:
        data = _kernel(kernel)
        data |= {f"seconds_{name}": value for name, value in data["seconds"].items()}
        data |= {name: (data[name] or {}).get("kind", "") for name in ("bound", "predicted_bound")}
        data |= {name: " ".join(filter(None, data[name])) for name in ("nodes", "sources")}
        rows.append(tuple(data[name] for name in COLUMNS))
    return rows

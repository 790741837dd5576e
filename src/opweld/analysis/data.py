"""The analysis as JSON types; docs/analyze.schema.json documents the fields."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from opweld.analysis.analysis import Analysis, KernelAnalysis, NodeAnalysis, Totals

FORMAT = 1
"""Version of the schema: fields may be added; none is removed or changed."""


def analysis_json(analysis: Analysis, model: str, target: str, file_bytes: int) -> dict[str, Any]:
    """What `opweld analyze --json` writes; `file_bytes` is the size of the model on disk."""
    training = analysis.training
    return {
        "format": FORMAT,
        "model": model,
        "target": target,
        "sizes": dict(analysis.sizes),
        "dims": dict(analysis.dims),
        "parameters": {
            "count": analysis.parameters,
            "bytes": analysis.parameter_bytes,
            "file_bytes": file_bytes,
        },
        "before": _totals(analysis.before),
        "after": _totals(analysis.after),
        "memory": asdict(analysis.memory),
        "training": {
            "weights": training.weights,
            "gradients": training.gradients,
            "optimizer": training.optimizer,
            "activations": training.activations.value,
            "total": training.total,
            "formula": training.formula,
        },
        "nodes": [_node(node) for node in analysis.nodes],
        "kernels": [_kernel(kernel) for kernel in analysis.kernels],
        "buffers": [
            {
                "variant": buffer.variant,
                "name": buffer.name,
                "bytes": buffer.bytes,
                "first": buffer.first,
                "last": buffer.last,
                "nodes": list(buffer.nodes),
            }
            for buffer in analysis.buffers
        ],
    }


def _totals(totals: Totals) -> dict[str, Any]:
    return {"launches": totals.launches, **totals.amounts.to_json()}


def _node(node: NodeAnalysis) -> dict[str, Any]:
    return {
        "name": node.name,
        "operator": node.operator,
        "source": node.source,
        "variant": node.variant,
        "outcome": node.outcome,
        "kernels": list(node.kernels),
        "parameters": node.parameters,
        "parameter_bytes": node.parameter_bytes,
        "launches": node.launches,
        "values": node.values.to_json(),
        **node.amounts.to_json(),
    }


def _kernel(kernel: KernelAnalysis) -> dict[str, Any]:
    predicted = kernel.work.predicted
    return {
        "variant": kernel.variant,
        "name": kernel.entry.name,
        "region": kernel.entry.region,
        "phase": kernel.entry.phase,
        "nodes": list(kernel.entry.nodes),
        "schedule": kernel.schedule,
        "weight_bytes": kernel.entry.weights,
        **kernel.amounts.to_json(),
        "predicted": {"seconds": kernel.work.seconds, "threads": kernel.work.threads, **asdict(predicted)},
        "bound": None if kernel.bound is None else kernel.bound.to_json(),
    }

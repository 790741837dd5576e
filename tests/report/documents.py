"""Documents for the page, made by hand: layers of MatMul, Add and Relu that one kernel computes, and a Softmax."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

from opweld.report.document import times_of

HOSTILE = "</script><img src=x onerror=\"document.title='taken'\">"
"""A name that would be markup, wherever it is not kept from it."""

LARGE = 317
"""Layers of a model as large as the largest of the zoo: 1,902 nodes."""


def held(page: str, name: str) -> str:
    """A text that a page holds packed."""
    found = re.search(f'id="{name}">([^<]*)</script>', page)
    assert found is not None, name
    return zlib.decompress(base64.b64decode(found[1], validate=True)).decode()


def document_of(page: str) -> dict[str, Any]:
    """What a report shows."""
    return json.loads(held(page, "document"))


def document(layers: int = 2, **others: Any) -> dict[str, Any]:
    """A document of so many layers, six nodes and two kernels each; `others` replace what it holds."""
    nodes, kernels, decisions = nodes_of(layers), kernels_of(layers), decisions_of(layers)
    whole: dict[str, Any] = {
        "format": 1,
        "title": "layers",
        "opweld": "0.1.0",
        "made": "2026-11-23T05:00:00+00:00",
        "model": "layers.onnx",
        "target": "x86-64-v3",
        "analysis": analysis(nodes, kernels),
        "account": account(nodes, kernels, decisions),
        "profile": profile(kernels),
        "profile_reason": "",
        "machine": machine(),
        "numerics": numerics(layers),
        "numerics_reason": "",
        "peers": [{"name": "opweld", "median": 4e-5, "best": 3e-5}, {"name": "another", "median": 6e-5, "best": 5e-5}],
        "sources": {f"main/{kernel['name']}": source(kernel["name"]) for kernel in kernels},
        "notes": [],
    }
    whole |= others
    return {**whole, "times": times_of(whole["account"], whole["analysis"], whole["profile"])}


def bare(layers: int = 2) -> dict[str, Any]:
    """What there is of an artifact that was not run."""
    nothing: dict[str, Any] = dict.fromkeys(("analysis", "profile", "machine", "numerics"))
    return document(layers, **nothing, numerics_reason="an artifact holds no graph", peers=[], sources={})


def name_of(layer: int, operator: str) -> str:
    return HOSTILE if (layer, operator) == (0, "Add") else f"/layer.{layer}/{operator}"


def nodes_of(layers: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for layer in range(layers):
        before = f"v{layer - 1}.Softmax" if layer else "x"
        steps = [
            ("Shape", [before], "known", []),
            ("Reshape", [before, f"v{layer}.Shape"], "index arithmetic", [contraction(layer)]),
            ("MatMul", [f"v{layer}.Reshape", f"w{layer}"], "fused", [contraction(layer)]),
            ("Add", [f"v{layer}.MatMul", f"b{layer}"], "fused", [contraction(layer)]),
            ("Relu", [f"v{layer}.Add"], "fused", [contraction(layer)]),
            ("Softmax", [f"v{layer}.Relu"], "alone", [rows(layer)]),
        ]
        found += [
            {
                "name": name_of(layer, operator),
                "operator": operator,
                "inputs": inputs,
                "outputs": [f"v{layer}.{operator}"],
                "source": f"model.py:{10 + layer}" if operator == "MatMul" else "",
                "body": "",
                "called": [name_of(layer, operator)],
                "outcome": outcome,
                "kernels": [{"variant": "main", "name": kernel} for kernel in owners],
            }
            for operator, inputs, outcome, owners in steps
        ]
    return found


def contraction(layer: int) -> str:
    return f"k{2 * layer + 1}_contraction"


def rows(layer: int) -> str:
    return f"k{2 * layer + 2}_rows"


def kernels_of(layers: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for layer in range(layers):
        first = [name_of(layer, operator) for operator in ("MatMul", "Add", "Relu")]
        for place, (name, nodes, flops) in enumerate(
            [(contraction(layer), first, 4_000_000), (rows(layer), [name_of(layer, "Softmax")], 0 if layer else 9000)]
        ):
            found.append(
                {
                    "variant": "main",
                    "name": name,
                    "region": f"{nodes[-1]} 0",
                    "phase": 2 * layer + place,
                    "nodes": nodes,
                    "seconds": 2e-5 / (1 + 3 * place),
                    "bytes": 60_000,
                    "flops": flops,
                    "schedule": "contraction lane=i1 vectors=2 row=i0 height=6; loop unroll=4",
                }
            )
    return found


def decisions_of(layers: int) -> list[dict[str, Any]]:
    def one(layer: int, rule: str, taken: str, failed: dict[str, Any], site: list[str]) -> dict[str, Any]:
        names = ("separate", "fused")
        costs = [
            {"name": name, "bytes": 4096 * (1 - i), "flops": None, "seconds": 2e-6 / (i + 1), "measured": None}
            for i, name in enumerate(names)
        ]
        return {
            "id": f"{layer:06x}{len(rule):04x}",
            "rule": rule,
            "site": site,
            "alternatives": costs,
            "taken": taken,
            "preferred": taken,
            "reason": "one user, elementwise" if taken == "fused" else "needs its operand in memory",
            "failed": failed,
            "subject": f"{site[0]} 0",
            "pinned": False,
            "variant": "main",
            "region": "",
            "part": "",
            "level": "",
            "crossovers": [],
        }

    found: list[dict[str, Any]] = []
    for layer in range(layers):
        found.append(one(layer, "fuse.epilogue", "fused", {}, [name_of(layer, "MatMul"), name_of(layer, "Add")]))
        ends = [name_of(layer, "Relu"), name_of(layer, "Softmax")]
        found.append(one(layer, "fuse.rows", "separate", {"user": "contraction"}, ends))
    return found


def account(
    nodes: list[dict[str, Any]], kernels: list[dict[str, Any]], decisions: list[dict[str, Any]]
) -> dict[str, Any]:
    missed = [decision for decision in decisions if decision["failed"]]
    outcomes = [node["outcome"] for node in nodes]
    return {
        "format": 1,
        "model": "layers.onnx",
        "summary": {
            "nodes": len(nodes),
            "constants": 0,
            "kernels": len(kernels),
            "outcomes": {outcome: outcomes.count(outcome) for outcome in dict.fromkeys(outcomes)},
            "fused_nodes": 0.75,
            "fused_time": 0.8,
            "sizes": {"batch": 4},
            "predicted_seconds": sum(kernel["seconds"] for kernel in kernels),
            "moved_bytes": sum(kernel["bytes"] for kernel in kernels),
            "rules": [],
        },
        "near_misses": [
            {
                "rule": "fuse.rows",
                "reason": "needs its operand in memory",
                "failed": {"user": "contraction"},
                "operators": ["Relu", "Softmax"],
                "bytes": 4096 * len(missed),
                "seconds": None,
                "fix": "",
                "places": [{"id": miss["id"], "nodes": miss["site"], "sources": ["", ""]} for miss in missed],
            }
        ],
        "nodes": nodes,
        "kernels": kernels,
        "decisions": decisions,
    }


def bound(kernel: dict[str, Any]) -> dict[str, Any]:
    kind = "compute" if kernel["flops"] > 1_000_000 else "memory"
    return {
        "kind": kind,
        "level": "" if kind == "compute" else "L2",
        "cause": "",
        "compute": 0.6,
        "bandwidth": 0.3,
        "floor_seconds": 1e-6,
        "reason": "its arithmetic takes longest",
        "try": "a lower precision",
    }


def counted(value: int) -> dict[str, Any]:
    return {"value": value, "formula": f"{value // 4}*batch"}


def analysis(nodes: list[dict[str, Any]], kernels: list[dict[str, Any]]) -> dict[str, Any]:
    def totals(launches: int, scale: int) -> dict[str, Any]:
        flops = sum(kernel["flops"] for kernel in kernels)
        moved = scale * sum(kernel["bytes"] for kernel in kernels)
        work = {"launches": launches, "flops": flops, "macs": flops // 2, "integer": 0, "special": 0}
        return work | {"read": moved * 2 // 3, "written": moved // 3, "intensity": flops / max(1, moved)}

    def work(flops: int, moved: int) -> dict[str, Any]:
        return {
            "launches": 1,
            "flops": counted(flops),
            "macs": counted(flops // 2),
            "integer": counted(0),
            "special": counted(0),
            "read": counted(moved * 2 // 3),
            "written": counted(moved // 3),
            "intensity": flops / moved,
        }

    return {
        "format": 1,
        "model": "layers.onnx",
        "target": "x86-64-v3",
        "sizes": {"batch": 4},
        "parameters": {"count": 1000, "bytes": 4000, "file_bytes": 4200},
        "before": totals(len(nodes), 3),
        "after": totals(len(kernels), 1),
        "memory": {"arena": 70_000, "live": 60_000, "tensors": 400_000, "weights": 4000},
        "training": {
            "weights": 4000,
            "gradients": 4000,
            "optimizer": 8000,
            "activations": 400_000,
            "total": 416_000,
            "formula": "16*P + A",
        },
        "nodes": [
            {"name": node["name"], "operator": node["operator"], "source": node["source"], "variant": "main"}
            | {"parameters": 500, "parameter_bytes": 2000, "kernels": [kernel["name"] for kernel in node["kernels"]]}
            | work(1000, 600)
            for node in nodes
        ],
        "kernels": [
            {key: kernel[key] for key in ("variant", "name", "region", "phase", "nodes", "schedule")}
            | work(kernel["flops"], kernel["bytes"])
            | {
                "predicted": {"seconds": kernel["seconds"], "arithmetic": 1e-5, "dependency": 0, "traffic": 2e-6}
                | {"launch": 1e-7, "threads": 1},
                "bound": bound(kernel),
            }
            for kernel in kernels
        ],
        "buffers": [
            {"variant": "main", "name": f"t{i}", "kind": "arena", "bytes": 20_000 + 10_000 * (i % 3)}
            | {"first": kernel["phase"], "last": kernel["phase"] + 1, "nodes": kernel["nodes"][-1:]}
            for i, kernel in enumerate(kernels)
        ],
    }


def profile(kernels: list[dict[str, Any]]) -> dict[str, Any]:
    step = 20_000
    wall = step * len(kernels) + 2000
    latency = {"median": wall * 1e-9, "best": wall * 0.9e-9, "mean": wall * 1e-9, "runs": 40, "per_second": 1e9 / wall}
    return {
        "format": 2,
        "model": "layers.onnx",
        "target": "x86-64-v3",
        "threads": 2,
        "runs": 10,
        "inputs": {"x": [4, 8]},
        "variant": "main",
        "latency": latency | dict.fromkeys(("p50", "p90", "p95", "p99"), wall * 1.1e-9),
        "timed": {"median": wall * 1e-9, "best": wall * 0.9e-9},
        "overhead": 0.01,
        "overhead_noise": 0.002,
        "disturbance": {"steal": 0, "others": 0, "switches": 2, "spread": 1.1, "busy": False}
        | {"reasons": [], "warning": ""},
        "accounted": 0.98,
        "idle": {"between": 1e-6, "before": 1e-6, "after": 1e-6},
        "counters": {"available": False, "reason": "the kernel lets nobody count", "values": {}},
        "kernels": [
            {key: kernel[key] for key in ("name", "variant", "phase", "region", "nodes", "schedule", "flops", "bytes")}
            | {
                "sources": [],
                "threads": 2,
                "seconds": {"median": 1.8e-5, "best": 1.7e-5, "p90": 2e-5},
                "wall": 1.8e-5,
                "busy": 3e-5,
                "waiting": 6e-6,
                "share": 1 / len(kernels),
                "flops_per_s": kernel["flops"] / 1.8e-5,
                "bytes_per_s": kernel["bytes"] / 1.8e-5,
                "predicted_seconds": kernel["seconds"],
                "bound": bound(kernel),
                "predicted_bound": bound(kernel),
                "disagreement": "",
            }
            for kernel in kernels
        ],
        "timeline": {
            "wall_ns": wall,
            "parts": [
                {"thread": thread, "step": i, "begin": 1000 + step * i + 500 * thread, "end": step * (i + 1) - 1000}
                | {"busy": step - 4000, "pieces": 3}
                for i in range(len(kernels))
                for thread in range(2)
            ],
        },
    }


def machine() -> dict[str, Any]:
    def pair(one: float) -> dict[str, Any]:
        return {
            key: {"value": value, "spread": 0.02, "samples": 9} for key, value in (("one", one), ("all", 1.9 * one))
        }

    levels = [("L1", 32768, 3e11), ("L2", 1 << 20, 1e11), ("L3", 1 << 25, 3e10), ("DRAM", 0, 1e10)]
    latency = {"value": 1e-8, "spread": 0.02, "samples": 9}
    return {
        "processor": "a processor",
        "target": "x86-64-v3",
        "threads": 2,
        "measured": "2026-11-23",
        "opweld": "0.1.0",
        "compute": {"fp32": pair(1e11), "bf16": pair(1e11), "int8": pair(4e11)},
        "levels": [
            {"name": name, "bytes": size, "read": pair(speed), "write": pair(speed / 2), "latency": latency}
            for name, size, speed in levels
        ],
        "barrier": {"value": 1e-6, "spread": 0.1, "samples": 9},
        "sure": "high",
    }


def numerics(layers: int) -> dict[str, Any]:
    return {
        "outputs": [
            {
                "name": "y",
                "shape": [4, 8],
                "scale": 2.0,
                "error": 3e-7,
                "tolerance": 1e-5,
                "peer_error": None,
                "passed": True,
                "verdict": "right",
            }
        ],
        "source": "float64",
        "values": [
            {"name": f"v{layer}.{operator}", "node": name_of(layer, operator), "shape": [4, 8], "scale": 2.0}
            | {
                "error": 1e-8 * (layer + 1),
                "before": 1e-8 * layer,
                "tolerated": 1e-5,
                "wrong": False,
                "verdict": "right",
            }
            for layer in range(layers)
            for operator in ("Relu", "Softmax")
        ],
    }


def source(name: str) -> str:
    body = f"    const int64_t n0 = 4; /* {HOSTILE} */\n    opw_use(n0);\n"
    return f"// {name}\nvoid k_0(void *const *buffers) {{\n{body}}}\n"

"""Models that keep something from one run to the next: a counter, a ring buffer, a cache of keys; and what they say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from tests.unit.frontend.models import model_of, node

Array = np.ndarray[Any, Any]

WEIGHT = np.random.default_rng(7).standard_normal((3, 6)).astype(np.float32)


@dataclass(frozen=True)
class Kept:
    """A model, its states, and what it answers: `answer` gives y for everything that was fed so far."""

    model: onnx.ModelProto
    states: dict[str, str]
    answer: Callable[[list[Array]], Array]


def counter() -> Kept:
    """y = x times how many runs there were."""
    nodes = [node("Add", ["count", "one"], "next"), node("Mul", ["x", "next"], "y")]
    model = model_of(nodes, {"x": ["n"], "count": []}, ["y", "next"], {"one": np.array(1, np.float32)})
    return Kept(model, {"count": "next"}, lambda fed: fed[-1] * np.float32(len(fed)))


def ring(size: int = 5) -> Kept:
    """The sum of the last `size` rows that were fed, in a buffer that is written at a place which wraps around."""
    nodes = [
        node("TensorScatter", ["window", "x", "cursor"], "filled", axis=1, mode="circular"),
        node("Add", ["cursor", "one"], "after"),
        node("Mod", ["after", "size"], "moved"),
        node("ReduceSum", ["filled", "axes"], "y", keepdims=0),
    ]
    weights = {"one": np.array([1]), "size": np.array([size]), "axes": np.array([1])}
    kinds = {"cursor": TensorProto.INT64, "moved": TensorProto.INT64}
    inputs = {"x": [1, 1, 2], "window": [1, size, 2], "cursor": [1]}
    model = model_of(nodes, inputs, ["y", "filled", "moved"], weights, opset=24, kinds=kinds, ir_version=11)
    states = {"window": "filled", "cursor": "moved"}
    return Kept(model, states, lambda fed: np.sum(fed[-size:], axis=(0, 2), dtype=np.float32))


def cache(checked: bool = False) -> Kept:
    """What each row that was fed finds in all rows so far, through two heads of keys: a softmax over their products.
    `checked`: also y = y[index], which fails where there is no such row."""
    nodes = [
        node("MatMul", ["x", "w"], "made"),
        node("Reshape", ["made", "heads"], "apart"),
        node("Transpose", ["apart"], "new", perm=[1, 0, 2]),
        node("Concat", ["keys", "new"], "all", axis=1),
        node("Transpose", ["all"], "across", perm=[0, 2, 1]),
        node("MatMul", ["x", "across"], "scores"),
        node("Softmax", ["scores"], "seen", axis=-1),
        node("MatMul", ["seen", "all"], "y" if not checked else "found"),
    ]
    inputs: dict[str, Any] = {"x": ["n", 3], "keys": [2, "past", 3]}
    if checked:
        nodes.append(node("Gather", ["found", "index"], "y", axis=1))
        inputs["index"] = ["k"]
    weights = {"w": WEIGHT, "heads": np.array([-1, 2, 3])}
    model = model_of(nodes, inputs, ["y", "all"], weights, kinds={"index": TensorProto.INT64})
    return Kept(model, {"keys": "all"}, _attended)


def _attended(fed: list[Array]) -> Array:
    keys = (np.concatenate(fed).astype(np.float64) @ WEIGHT).reshape(-1, 2, 3).transpose(1, 0, 2)
    scores = fed[-1] @ keys.transpose(0, 2, 1)
    seen = np.exp(scores - scores.max(-1, keepdims=True))
    return (seen / seen.sum(-1, keepdims=True) @ keys).astype(np.float32)


def failing_counter() -> onnx.ModelProto:
    """The counter, and a row of x which may not be there."""
    nodes = [
        node("Add", ["count", "one"], "next"),
        node("Gather", ["x", "index"], "row"),
        node("Mul", ["row", "next"], "y"),
    ]
    weights, kinds = {"one": np.array(1, np.float32)}, {"index": TensorProto.INT64}
    return model_of(nodes, {"x": ["n"], "index": ["k"], "count": []}, ["y", "next"], weights, kinds=kinds)


MODELS: dict[str, tuple[Callable[[], Kept], tuple[int, ...]]] = {
    "counter": (counter, (3,)),
    "ring": (ring, (1, 1, 2)),
    "cache": (cache, (2, 3)),
}
"""Each with the shape of x."""

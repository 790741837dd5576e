"""A decoder in NumPy and float64, as `Config` defines it: what tests compare files and runtimes with."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from opweld.llm.config import Config, Rope
from opweld.llm.weights import Blocked, Weights

Array = NDArray[np.float64]


class Decoder:
    """All weights in float64."""

    def __init__(self, config: Config, weights: Weights) -> None:
        self.config = config
        self.weights: dict[str, Array] = {}
        for name, read in weights.items():
            found = read()
            self.weights[name] = np.asarray(found.values() if isinstance(found, Blocked) else found, np.float64)

    def logits(self, tokens: Sequence[int]) -> Array:
        """[tokens, vocabulary]: what follows each token."""
        config, weights = self.config, self.weights
        x = weights["embedding"][list(tokens)] * config.embedding_scale
        if "positions" in weights:
            x = x + weights["positions"][: len(tokens)]
        for n in range(config.layers):
            layer = f"layers.{n}."
            y = self.attention(self.norm(x, layer + "attention_norm"), n)
            x = x + (self.norm(y, layer + "post_attention_norm") if layer + "post_attention_norm" in weights else y)
            y = self.feed_forward(self.norm(x, layer + "feed_norm"), layer)
            x = x + (self.norm(y, layer + "post_feed_norm") if layer + "post_feed_norm" in weights else y)
        found = self.norm(x, "norm") @ weights["embedding" if config.tied else "head"].T
        return found if config.logit_cap is None else config.logit_cap * np.tanh(found / config.logit_cap)

    def norm(self, x: Array, name: str) -> Array:
        """Over the last dimension."""
        weight = self.weights[name] + self.config.norm_offset
        if self.config.norm == "layer":
            centred = x - x.mean(-1, keepdims=True)
            scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self.config.epsilon)
            return scaled * weight + self.weights[name + ".bias"]
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + self.config.epsilon) * weight

    def linear(self, x: Array, name: str) -> Array:
        """With its bias, if it has one."""
        found = x @ self.weights[name].T
        return found + self.weights[name + ".bias"] if name + ".bias" in self.weights else found

    def attention(self, x: Array, n: int) -> Array:
        """Of layer n."""
        config, layer, length = self.config, f"layers.{n}.", len(x)
        heads = {}
        for name, count in (("query", config.heads), ("key", config.kv_heads), ("value", config.kv_heads)):
            found = self.linear(x, layer + name).reshape(length, count, config.head_size)
            if name != "value":
                if f"{layer}{name}_norm" in self.weights:
                    found = self.norm(found, f"{layer}{name}_norm")
                found = turned(found, config.ropes[n])
            heads[name] = found if name == "query" else np.repeat(found, config.heads // config.kv_heads, 1)
        scores = np.einsum("qhs,khs->hqk", heads["query"], heads["key"]) * config.scale
        if config.score_cap is not None:
            scores = config.score_cap * np.tanh(scores / config.score_cap)
        distance = np.arange(length)[:, None] - np.arange(length)[None, :]
        seen = (distance >= 0) & (distance < (config.windows[n] or length))
        probabilities = softmax(np.where(seen, scores, -np.inf))
        mixed = np.einsum("hqk,khs->qhs", probabilities, heads["value"])
        return self.linear(mixed.reshape(length, -1), layer + "output")

    def feed_forward(self, x: Array, layer: str) -> Array:
        """Of one layer: dense, or of experts."""
        experts = self.config.experts
        if experts is None or layer + "router" not in self.weights:
            return self.dense(x, layer)
        probabilities = softmax(self.linear(x, layer + "router"))
        found = np.zeros_like(x)
        for t, row in enumerate(probabilities):
            chosen = np.argsort(-row, kind="stable")[: experts.chosen]
            total = row[chosen].sum() if experts.normalized else 1.0
            for e in chosen:
                found[t] += row[e] / total * self.dense(x[t], f"{layer}experts.{e}.")
        if layer + "shared_router" in self.weights:
            gate = 1 / (1 + np.exp(-self.linear(x, layer + "shared_router")))
            found += gate * self.dense(x, layer + "shared.")
        return found

    def dense(self, x: Array, layer: str) -> Array:
        """Of one feed-forward layer or expert."""
        up = self.linear(x, layer + "up")
        inner = (
            activated(self.linear(x, layer + "gate"), self.config) * up
            if self.config.gated
            else activated(up, self.config)
        )
        return self.linear(inner, layer + "down")


def softmax(x: Array) -> Array:
    """Over the last dimension."""
    found = np.exp(x - x.max(-1, keepdims=True))
    return found / found.sum(-1, keepdims=True)


def activated(x: Array, config: Config) -> Array:
    """What the feed-forward layer applies."""
    match config.activation:
        case "silu":
            return x / (1 + np.exp(-x))
        case "gelu_tanh":
            return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        case "gelu":
            return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
        case _:
            return np.maximum(x, 0)


def turned(x: Array, rope: Rope | None) -> Array:
    """Heads [tokens, heads, size] at positions 0, 1, ..."""
    if rope is None:
        return x
    angles = np.arange(len(x))[:, None, None] * rope.frequencies
    cosine, sine = np.cos(angles) * rope.scale, np.sin(angles) * rope.scale
    pairs = len(rope.frequencies)
    found = x.copy()
    first, second = (
        (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2))
        if rope.interleaved
        else (slice(0, pairs), slice(pairs, 2 * pairs))
    )
    found[..., first] = x[..., first] * cosine - x[..., second] * sine
    found[..., second] = x[..., second] * cosine + x[..., first] * sine
    return found

"""Tiny decoders of random weights, and what they compute, in NumPy and float64, one sequence at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import erf
from typing import Any

import numpy as np

import opweld
from opweld.llm.compiled import CompiledRunner
from opweld.llm.config import Config, Rope
from opweld.llm.graph import STATES
from opweld.llm.source import DecoderSource
from opweld.llm.weights import Blocked, Weight, Weights

Array = np.ndarray[Any, Any]
BLOCK = 32

ROPE = Rope(10000.0 ** -np.linspace(0, 1, 4))
PLAIN = Config("llama", 97, 32, 2, 4, 2, 8, 64, 2048, 1e-5, (ROPE, ROPE), (None, None), 8**-0.5)

CONFIGS: dict[str, Config] = {
    "llama": replace(PLAIN, ropes=(replace(ROPE, interleaved=True),) * 2, tied=True),
    "gemma": replace(
        PLAIN,
        architecture="gemma",
        ropes=(replace(ROPE, scale=1.25), Rope(ROPE.frequencies[:3])),
        windows=(5, None),
        norm_offset=1.0,
        activation="gelu_tanh",
        embedding_scale=32**0.5,
        score_cap=2.0,
        logit_cap=3.0,
    ),
    "gpt2": replace(
        PLAIN, architecture="gpt2", kv_heads=4, ropes=(None, None), norm="layer", activation="gelu", gated=False
    ),
}
"""What tells decoders apart: pairs of rotary embedding, of all features or some; windows; caps; norms; biases."""


def weights_of(config: Config, blocked: bool = False) -> Weights:
    """Random weights; matrices of integers if `blocked`, of all numbers of bits."""
    rng = np.random.default_rng(len(config.architecture))
    made: dict[str, Weight] = {}
    bits = iter([4, 8, 5, 4, 6, 8] * 100)

    def matrix(name: str, rows: int, columns: int) -> None:
        made[name] = _blocked(rng, rows, columns, next(bits)) if blocked else _floats(rng, (rows, columns))
        if config.norm == "layer" and name.startswith("layers"):
            made[f"{name}.bias"] = _floats(rng, (rows,))

    def norm(name: str, size: int) -> None:
        made[name] = 1 - config.norm_offset + 0.1 * _floats(rng, (size,))
        if config.norm == "layer":
            made[f"{name}.bias"] = _floats(rng, (size,))

    matrix("embedding", config.vocabulary, config.hidden)
    if config.norm == "layer":
        made["positions"] = _floats(rng, (config.context, config.hidden))
    if not config.tied:
        matrix("head", config.vocabulary, config.hidden)
    norm("norm", config.hidden)
    own, shared = config.heads * config.head_size, config.kv_heads * config.head_size
    for n in range(config.layers):
        for name in ("attention_norm", "feed_norm"):
            norm(f"layers.{n}.{name}", config.hidden)
        if config.architecture == "gemma":
            for name, size in (("query_norm", config.head_size), ("key_norm", config.head_size)):
                norm(f"layers.{n}.{name}", size)
            for name in ("post_attention_norm", "post_feed_norm"):
                norm(f"layers.{n}.{name}", config.hidden)
        for name, rows in (("query", own), ("key", shared), ("value", shared)):
            matrix(f"layers.{n}.{name}", rows, config.hidden)
        matrix(f"layers.{n}.output", config.hidden, own)
        for name in ("gate", "up") if config.gated else ("up",):
            matrix(f"layers.{n}.{name}", config.inner, config.hidden)
        matrix(f"layers.{n}.down", config.hidden, config.inner)
    return {name: partial(_same, weight) for name, weight in made.items()}


def _same(weight: Weight) -> Weight:
    return weight


def _floats(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape).astype(np.float32) / np.float32(shape[-1] ** 0.5)


def _blocked(rng: np.random.Generator, rows: int, columns: int, bits: int) -> Blocked:
    block = 16 if bits == 6 else 32
    scales = (rng.random((rows, columns // block)) + 0.5).astype(np.float16).astype(np.float32) / 2 ** (bits + 2)
    if bits in (6, 8):
        codes = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (rows, columns)).astype(np.int8)
        return Blocked(codes, scales, None, bits, block)
    codes = rng.integers(0, 2**bits, (rows, columns)).astype(np.uint8)
    return Blocked(codes, scales, -scales * np.float32(2 ** (bits - 1) - 0.3), bits, block)


def runner_of(config: Config, weights: Weights, blocks: int = 64, **options: Any) -> CompiledRunner:
    """The compiled decoder."""
    source = DecoderSource(config, weights, BLOCK, lambda cache: repr((config.identity(), digest(weights))))
    model = opweld.compile(source, states=STATES, dim_hints={"T": 1}, **options)
    return CompiledRunner(model, config, BLOCK, blocks, config.context)


def digest(weights: Weights) -> int:
    """Of the content of weights."""
    read = (weight() for weight in weights.values())
    return hash(tuple((w.values() if isinstance(w, Blocked) else w).tobytes() for w in read))


def reference(config: Config, weights: Weights, tokens: Sequence[int]) -> Array:
    """float64 [tokens, vocabulary]: the logits after each token of a sequence."""

    def read(name: str) -> Array:
        weight = weights[name]()
        return (weight.values() if isinstance(weight, Blocked) else weight).astype(np.float64)

    def linear(name: str, x: Array) -> Array:
        found = x @ read(name).T
        return found + read(f"{name}.bias") if f"{name}.bias" in weights else found

    def norm(name: str, x: Array) -> Array:
        if config.norm == "layer":
            x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + config.epsilon) * (read(name) + config.norm_offset)
        return x + read(f"{name}.bias") if f"{name}.bias" in weights else x

    count, size = len(tokens), config.head_size
    positions = np.arange(count)
    x = read("embedding")[list(tokens)] * config.embedding_scale
    if "positions" in weights:
        x = x + read("positions")[:count]
    for n in range(config.layers):
        name = f"layers.{n}"
        given = norm(f"{name}.attention_norm", x)
        q, k, v = (linear(f"{name}.{part}", given).reshape(count, -1, size) for part in ("query", "key", "value"))
        if f"{name}.query_norm" in weights:
            q, k = norm(f"{name}.query_norm", q), norm(f"{name}.key_norm", k)
        rope = config.ropes[n]
        if rope is not None:
            q, k = _turned(q, rope, positions), _turned(k, rope, positions)
        k, v = (np.repeat(part, config.heads // config.kv_heads, 1) for part in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) * config.scale
        if config.score_cap:
            scores = np.tanh(scores / config.score_cap) * config.score_cap
        distance = positions[:, None] - positions
        seen = (distance >= 0) & (distance < (config.windows[n] or count))
        scores = np.where(seen, scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        mixed = linear(f"{name}.output", np.einsum("hqk,khd->qhd", shares, v).reshape(count, -1))
        x = x + (norm(f"{name}.post_attention_norm", mixed) if f"{name}.post_attention_norm" in weights else mixed)
        given = norm(f"{name}.feed_norm", x)
        inner = linear(f"{name}.up", given)
        activation = _ACTIVATIONS[config.activation]
        inner = activation(linear(f"{name}.gate", given)) * inner if config.gated else activation(inner)
        fed = linear(f"{name}.down", inner)
        x = x + (norm(f"{name}.post_feed_norm", fed) if f"{name}.post_feed_norm" in weights else fed)
    logits = norm("norm", x) @ read("embedding" if config.tied else "head").T
    return np.tanh(logits / config.logit_cap) * config.logit_cap if config.logit_cap else logits


def _turned(x: Array, rope: Rope, positions: Array) -> Array:
    pairs = len(rope.frequencies)
    angles = positions[:, None, None] * rope.frequencies
    c, s = np.cos(angles) * rope.scale, np.sin(angles) * rope.scale
    apart = (
        (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2))
        if rope.interleaved
        else (slice(0, pairs), slice(pairs, 2 * pairs))
    )
    low, high = x[..., apart[0]], x[..., apart[1]]
    made = x.copy()
    made[..., apart[0]], made[..., apart[1]] = low * c - high * s, high * c + low * s
    return made


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(erf)(x / 2**0.5)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
}

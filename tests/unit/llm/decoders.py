"""Tiny decoders of random weights, compiled."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import opweld
from opweld.llm.compiled import CompiledRunner
from opweld.llm.config import Config, Experts, Rope
from opweld.llm.source import STATES, DecoderSource
from opweld.llm.weights import Blocked, Weight, Weights
from opweld.tensor.dtype import DType

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
    "mixture": replace(PLAIN, architecture="mixture", experts=Experts(4, 2, 32), inner=32),
    "gpt2": replace(
        PLAIN, architecture="gpt2", kv_heads=4, ropes=(None, None), norm="layer", activation="gelu", gated=False
    ),
}
"""What tells decoders apart: pairs of rotary embedding, of all features or some; windows; caps; norms; experts."""


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
        layers = [f"layers.{n}."]
        if config.experts is not None:
            layers = [f"layers.{n}.experts.{e}." for e in range(config.experts.count)] + [f"layers.{n}.shared."]
            matrix(f"layers.{n}.router", config.experts.count, config.hidden)
            matrix(f"layers.{n}.shared_router", 1, config.hidden)
        for layer in layers:
            for name in ("gate", "up") if config.gated else ("up",):
                matrix(f"{layer}{name}", config.inner, config.hidden)
            matrix(f"{layer}down", config.hidden, config.inner)
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


def runner_of(
    config: Config,
    weights: Weights,
    blocks: int = 64,
    pool: DType = DType.F32,
    for_gpu: bool = False,
    rounded: bool = False,
    paired: bool = False,
    **options: Any,
) -> CompiledRunner:
    """The compiled decoder."""
    identity = repr((config.identity(), digest(weights)))
    source = DecoderSource(config, weights, BLOCK, lambda cache: identity, pool, for_gpu, rounded, paired)
    model = opweld.compile(source, states=STATES, dim_hints={"T": 1}, **options)
    return CompiledRunner(model, config, BLOCK, blocks, config.context)


def digest(weights: Weights) -> int:
    """Of the content of weights."""
    read = (weight() for weight in weights.values())
    return hash(tuple((w.values() if isinstance(w, Blocked) else w).tobytes() for w in read))

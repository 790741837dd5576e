"""What a GGUF file's metadata says of the model: its configuration.

The meaning of an architecture's name is that of llama.cpp's src/models and llama-model.cpp. What differs from
transformers: rows of queries and keys of "llama" are permuted for pairs that are neighbours, Gemma's weights of norms
have their 1 added already, and some numbers are not in the file but known by the architecture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from opweld.errors import ModelError, UnsupportedError
from opweld.llm import rope as rotary
from opweld.llm.config import Config, Experts, Rope
from opweld.llm.fields import MOST_FEATURES, MOST_LAYERS, Fields
from opweld.llm.gguf.blocks import FORMATS, unpacked
from opweld.llm.gguf.header import Header


@dataclass(frozen=True)
class Architecture:
    """What llama.cpp knows of an architecture.

    Attributes:
        interleaved: pairs of rotary embeddings are neighbours.
        every: each `every`-th layer sees all keys where the file has a sliding window; 1: none does.
        normalized: weights of the chosen experts are divided by their sum.
        scaled: embeddings are multiplied by the square root of their size.
        wide: the number of layers of the one model whose scores are scaled by hidden / heads, not by a head's size.
        learned: positions have embeddings, norms have means and biases, the feed-forward layer has no gate.
    """

    interleaved: bool = False
    every: int = 1
    normalized: bool = True
    activation: str = "silu"
    scaled: bool = False
    wide: int = 0
    learned: bool = False


ARCHITECTURES = {
    "llama": Architecture(interleaved=True),
    "qwen2": Architecture(),
    "qwen2moe": Architecture(normalized=False),
    "qwen3": Architecture(),
    "qwen3moe": Architecture(),
    "gemma2": Architecture(every=2, activation="gelu_tanh", scaled=True, wide=46),
    "gemma3": Architecture(every=6, activation="gelu_tanh", scaled=True, wide=62),
    "phi3": Architecture(),
    "gpt2": Architecture(activation="gelu_tanh", learned=True),
}
"""By `general.architecture`. Llama, SmolLM, Mistral and Mixtral are all "llama"."""


def read_config(header: Header, context: int | None = None) -> Config:
    """The configuration of a model.

    Args:
        header: of its file.
        context: the most tokens that are wanted: where the model has factors of LongRoPE for short and for long
            contexts, those for it, and None means short. Of other models it changes nothing.

    Raises:
        UnsupportedError: the architecture, or something that it asks for, is none of opweld's.
        ModelError: a key is missing, or its value makes no sense.
    """
    name = Fields(header.metadata, header.file).text("general.architecture")
    if name not in ARCHITECTURES:
        raise UnsupportedError(
            f"{header.file}: the architecture {name} is not supported; opweld reads {', '.join(ARCHITECTURES)}"
        )
    known, fields = ARCHITECTURES[name], Fields(header.metadata, header.file, name + ".")
    layers = fields.integer("block_count", most=MOST_LAYERS)
    hidden, heads = fields.integer("embedding_length"), fields.integer("attention.head_count")
    size = fields.integer("attention.key_length", hidden // heads, most=MOST_FEATURES)
    if fields.integer("attention.value_length", size) != size:
        raise UnsupportedError(f"{header.file}: {name}.attention.value_length is not that of keys, {size}")
    inner = fields.integer("feed_forward_length")
    windows = _windows(fields, known, layers)
    original = fields.integer("rope.scaling.original_context_length", fields.integer("context_length"))
    longrope = "rope_factors_short.weight" in header.tensors
    wide = context is not None and context > original
    whole, local = _ropes(header, fields, known, size, wide)
    default_scale = 1 / math.sqrt(hidden / heads if layers == known.wide else size)
    return Config(
        architecture=name,
        vocabulary=_vocabulary(header, fields),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=fields.integer("attention.head_count_kv", heads),
        head_size=size,
        inner=inner,
        context=original if longrope and not wide else fields.integer("context_length"),
        epsilon=fields.positive(
            "attention.layer_norm_epsilon" if known.learned else "attention.layer_norm_rms_epsilon"
        ),
        ropes=tuple(whole if window is None or known.every == 1 else local for window in windows),
        windows=windows,
        scale=fields.number("attention.scale", 0.0) or default_scale,
        norm="layer" if known.learned else "rms",
        activation=known.activation,
        gated=not known.learned,
        embedding_scale=math.sqrt(hidden) if known.scaled else 1.0,
        tied="output.weight" not in header.tensors,
        score_cap=fields.cap("attn_logit_softcapping") if name.startswith("gemma") else None,
        logit_cap=fields.cap("final_logit_softcapping") if name.startswith("gemma") else None,
        experts=_experts(fields, known, inner),
    )


def _vocabulary(header: Header, fields: Fields) -> int:
    """Rows of the embedding: vocabularies are padded, and `vocab_size` is not always there."""
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelError(f"{fields.file}: there is no matrix token_embd.weight; the file is incomplete")
    return embedding.shape[0]


def _windows(fields: Fields, known: Architecture, layers: int) -> tuple[int | None, ...]:
    if not fields.get("attention.sliding_window"):
        return (None,) * layers
    window, key = fields.integer("attention.sliding_window"), "attention.sliding_window_pattern"
    if isinstance(fields.get(key), list):
        sliding = fields.sequence(key)
        if len(sliding) != layers:
            raise ModelError(f"{fields.file}: {fields.prefix}{key} has {len(sliding)} layers of {layers}")
        return tuple(window if one else None for one in sliding)
    every = fields.integer(key, known.every)
    return tuple(window if every == 1 or (n + 1) % every else None for n in range(layers))


def _experts(fields: Fields, known: Architecture, inner: int) -> Experts | None:
    count = fields.integer("expert_count", 0, least=0, most=MOST_LAYERS)
    if count == 0:
        return None
    if fields.integer("expert_gating_func", 1, least=0) != 1 or "expert_weights_scale" in fields:
        raise UnsupportedError(f"{fields.file}: experts are chosen in another way than by softmax")
    return Experts(
        count,
        fields.integer("expert_used_count", most=count),
        fields.integer("expert_feed_forward_length", inner),
        fields.flag("expert_weights_norm", known.normalized),
    )


def _ropes(
    header: Header, fields: Fields, known: Architecture, size: int, wide: bool
) -> tuple[Rope | None, Rope | None]:
    """Rotary embeddings of layers that see all keys, and of those that see a window; `wide`: beyond the original
    context."""
    if known.learned:
        return None, None
    theta = fields.positive("rope.freq_base", 10000.0)
    rotated = fields.integer("rope.dimension_count", size, least=2, most=size)
    if rotated % 2:
        raise ModelError(f"{fields.file}: {fields.prefix}rope.dimension_count is {rotated}, it should be even")
    original = fields.integer("rope.scaling.original_context_length", fields.integer("context_length"))
    kind = fields.text("rope.scaling.type", "linear")
    factor = fields.positive("rope.scaling.factor", fields.positive("rope.scale_linear", 1.0))
    plain, scale = rotary.frequencies(theta, rotated), fields.positive("rope.scaling.attn_factor", 1.0)
    if kind == "yarn":
        fast, slow = (
            fields.positive("rope.scaling.yarn_beta_fast", 32),
            fields.positive("rope.scaling.yarn_beta_slow", 1),
        )
        plain, scale = rotary.yarn(theta, rotated, factor, original, fast, slow), scale * rotary.yarn_scale(factor)
    elif kind == "linear":
        plain = plain / factor
    elif kind not in ("none", "longrope"):
        raise UnsupportedError(
            f"{fields.file}: {fields.prefix}rope.scaling.type is {kind}; opweld knows none, linear, yarn and longrope"
        )
    names = ("rope_freqs.weight", f"rope_factors_{'long' if wide else 'short'}.weight")
    for tensor in (header.tensors[one] for one in names if one in header.tensors):
        form = FORMATS[tensor.kind]
        length = math.prod(tensor.shape) // form.elements * form.bytes
        factors = unpacked(form, header.bytes[tensor.start : tensor.start + length], (math.prod(tensor.shape),))
        plain = rotary.divided(plain, np.asarray(factors), f"{fields.file}, {tensor.name}")
    local = rotary.frequencies(fields.positive("rope.freq_base_swa", 10000.0), rotated)
    if known.every == 2:  # Gemma 2: all layers turn alike
        local = plain
    return Rope(plain, scale, known.interleaved), Rope(local, 1.0 if local is not plain else scale, known.interleaved)

"""What a decoder computes, whatever file it came from.

Weights by name, matrices [out, in]; those in parentheses depend on the configuration:

    embedding [vocabulary, hidden], (positions [context, hidden]), norm [hidden], (norm.bias),
    (head [vocabulary, hidden])
    layers.N.attention_norm, (.bias), query, key, value, output, each with a (.bias), (query_norm), (key_norm), (sinks)
    layers.N.feed_norm, (.bias), (gate), up, down, each with a (.bias), (post_attention_norm), (post_feed_norm)
    layers.N.router [experts, hidden], layers.N.experts.E.gate, up, down in place of the feed-forward layer's; with
    (shared_router [1, hidden]) and shared.gate, up, down: sigmoid(shared_router x) times that layer is added
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Rope:
    """Rotary position embedding of the first features of a head.

    Attributes:
        frequencies: float64 [pairs]: radians per position of each pair of features, scaling included.
        scale: multiplies sine and cosine (the attention factor of YaRN and longrope).
        interleaved: pairs are neighbours; else they are half of the rotated features apart.
    """

    frequencies: NDArray[np.float64]
    scale: float = 1.0
    interleaved: bool = False


@dataclass(frozen=True)
class Experts:
    """A mixture of experts: `count` feed-forward layers, of which `chosen` compute a token. normalized: their weights
    are divided by their sum. inner: rows of an expert's gate and up."""

    count: int
    chosen: int
    inner: int
    normalized: bool = True


@dataclass(frozen=True)
class Config:
    """A decoder of the family that Llama began.

    Attributes:
        architecture: as the file names it (llama, qwen2, gemma3, ...).
        vocabulary, hidden, layers, heads, kv_heads, head_size, inner: sizes; inner is that of the feed-forward layer.
        context: the most tokens that it was made for.
        epsilon: of its normalisations.
        ropes: the rotary embedding of each layer; None where it has none.
        windows: of each layer, how many of the last keys a query sees, its own included; None where it sees all.
        scale: multiplies scores of queries and keys.
        norm: "rms", or "layer" (with mean and bias). norm_offset: added to the weights of norms (Gemma: 1).
        activation: of the feed-forward layer: "silu", "gelu" (erf), "gelu_tanh", "relu".
        gated: whether the feed-forward layer is down(activation(gate x) * up x), or down(activation(up x)).
        embedding_scale: multiplies embeddings. tied: logits are computed with the embedding.
        score_cap, logit_cap: c tanh(x / c) of scores and of logits; None where there is none.
        experts: of the layers whose weights have them; None where no layer has.
    """

    architecture: str
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    context: int
    epsilon: float
    ropes: tuple[Rope | None, ...]
    windows: tuple[int | None, ...]
    scale: float
    norm: str = "rms"
    norm_offset: float = 0.0
    activation: str = "silu"
    gated: bool = True
    embedding_scale: float = 1.0
    tied: bool = False
    score_cap: float | None = None
    logit_cap: float | None = None
    experts: Experts | None = None

    @property
    def different_ropes(self) -> tuple[Rope, ...]:
        """Its rotary embeddings, each once, in the order of the layers that use them first."""
        return tuple(dict.fromkeys(rope for rope in self.ropes if rope is not None))

    def identity(self) -> bytes:
        """What it computes, as bytes: of equal configurations the same."""
        ropes = [
            None if rope is None else (rope.frequencies.tobytes(), rope.scale, rope.interleaved) for rope in self.ropes
        ]
        return repr((ropes, replace(self, ropes=()))).encode()

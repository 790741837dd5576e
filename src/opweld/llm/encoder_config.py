"""What an encoder computes, whatever file it came from: the vectors of a text's tokens, and what is made of them.

Weights by name, matrices [out, in]; each norm and each matrix but the embeddings has a .bias:

    embedding [vocabulary, hidden], positions [rows, hidden], (types [types, hidden]), norm [hidden]
    layers.N.query, key, value, output, attention_norm, up, down, feed_norm
    (head.inner [hidden, hidden], head.outer [1, hidden])    of a model that scores pairs of texts
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pooling:
    """How vectors of tokens become the vector of a text.

    Attributes:
        kind: "mean", "cls" (that of the first token), "max" (of each feature).
        normalized: whether it is divided by its length.
    """

    kind: str = "mean"
    normalized: bool = False


@dataclass(frozen=True)
class Head:
    """What scores a pair of texts: outer(activation(inner(vector of the first token))).

    Attributes:
        activation: "tanh" or "relu".
        sigmoid: whether the score is brought into 0 to 1.
    """

    activation: str
    sigmoid: bool


@dataclass(frozen=True)
class EncoderConfig:
    """An encoder of the family that BERT began.

    Attributes:
        architecture: as the file names it (bert, roberta, ...).
        vocabulary, hidden, layers, heads, inner: sizes; inner is that of the feed-forward layer.
        types: rows of the embedding that tells a pair's texts apart; 0 where there is none.
        offset: the row of `positions` that a text's first token has.
        context: the most tokens of a text.
        rows: of `positions`.
        epsilon: of its normalisations.
        activation: of the feed-forward layer: "silu", "gelu" (erf), "gelu_tanh", "relu".
        pooling: what makes vectors of texts. head: what scores pairs instead; None where nothing does.
    """

    architecture: str
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    inner: int
    types: int
    offset: int
    context: int
    rows: int
    epsilon: float
    activation: str
    pooling: Pooling = Pooling()
    head: Head | None = None

    @property
    def head_size(self) -> int:
        """Features of a head of attention."""
        return self.hidden // self.heads

    @property
    def whole(self) -> bool:
        """Whether vectors of all tokens are wanted, or of the first one of each text alone."""
        return self.head is None and self.pooling.kind != "cls"

    def identity(self) -> bytes:
        """What its graph computes, as bytes: of equal configurations the same."""
        return repr(self).encode()

"""Tensors of transformers' encoders under opweld's names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from opweld.errors import UnsupportedError
from opweld.llm.completeness import Stored, checked
from opweld.llm.encoder_config import EncoderConfig
from opweld.llm.folder.safetensors import FileTensor
from opweld.llm.weights import Weights

_WHOLE = {
    "embeddings.word_embeddings": "embedding",
    "embeddings.position_embeddings": "positions",
    "embeddings.token_type_embeddings": "types",
    "embeddings.LayerNorm": "norm",
}
_HEADS = {
    "bert": {"pooler.dense": "head.inner", "classifier": "head.outer"},
    "roberta": {"classifier.dense": "head.inner", "classifier.out_proj": "head.outer"},
    "xlm-roberta": {"classifier.dense": "head.inner", "classifier.out_proj": "head.outer"},
    "distilbert": {"pre_classifier": "head.inner", "classifier": "head.outer"},
}
_LAYER = {
    "attention.self.query": "query",
    "attention.self.key": "key",
    "attention.self.value": "value",
    "attention.output.dense": "output",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "feed_norm",
    "attention.q_lin": "query",
    "attention.k_lin": "key",
    "attention.v_lin": "value",
    "attention.out_lin": "output",
    "sa_layer_norm": "attention_norm",
    "ffn.lin1": "up",
    "ffn.lin2": "down",
    "output_layer_norm": "feed_norm",
}
_NUMBERED = re.compile(r"(?:encoder|transformer)\.layer\.(\d+)\.(.+)")
_PREFIXES = ("bert.", "roberta.", "distilbert.")
_ENDS = {"weight": "", "gamma": "", "bias": ".bias", "beta": ".bias"}
_IGNORED = re.compile(r"embeddings\.position_ids$|^cls\.|^lm_head\.|^vocab_\w+\.|^pooler\.dense\.")
"""A table that is computed, and what the model was trained with: it guesses words that are left out."""


def read_encoder_weights(tensors: Mapping[str, FileTensor], config: EncoderConfig, file: str) -> Weights:
    """The weights of an encoder.

    Raises:
        ModelError: a tensor is missing, or of another shape than the configuration says.
        UnsupportedError: there are tensors that the architecture does not have.
    """
    stored: dict[str, Stored] = {}
    for tensor in tensors.values():
        inner = next((tensor.name.removeprefix(p) for p in _PREFIXES if tensor.name.startswith(p)), tensor.name)
        name = _name(config, inner)
        if name is not None:
            stored[name] = Stored(tensor.name, tensor.shape, tensor.read)
        elif not _IGNORED.search(inner):
            raise UnsupportedError(f"{file}: {config.architecture} has no tensor {tensor.name} that opweld knows")
    shapes = _shapes(config)
    return checked(stored, shapes.get, shapes, file)


def _name(config: EncoderConfig, tensor: str) -> str | None:
    """opweld's name of a tensor; None where it has none."""
    stem, _, kind = tensor.rpartition(".")
    if kind not in _ENDS:
        return None
    match = _NUMBERED.fullmatch(stem)
    if match is not None:
        own = _LAYER.get(match[2])
        return None if own is None or int(match[1]) >= config.layers else f"layers.{int(match[1])}.{own}{_ENDS[kind]}"
    names = _WHOLE if config.head is None else _WHOLE | _HEADS[config.architecture]
    return None if stem not in names else names[stem] + _ENDS[kind]


def _shapes(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every weight."""
    hidden, inner = config.hidden, config.inner
    linear = {"query": (hidden, hidden), "key": (hidden, hidden), "value": (hidden, hidden), "output": (hidden, hidden)}
    linear |= {"up": (inner, hidden), "down": (hidden, inner), "attention_norm": (hidden,), "feed_norm": (hidden,)}
    shapes = {f"layers.{n}.{name}": shape for n in range(config.layers) for name, shape in linear.items()}
    shapes["norm"] = (hidden,)
    if config.head is not None:
        shapes |= {"head.inner": (hidden, hidden), "head.outer": (1, hidden)}
    shapes |= {f"{name}.bias": shape[:1] for name, shape in shapes.items()}
    shapes |= {"embedding": (config.vocabulary, hidden), "positions": (config.rows, hidden)}
    return shapes | ({"types": (config.types, hidden)} if config.types else {})

"""What a config.json of Hugging Face says of an encoder, with the defaults of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from opweld.errors import ModelError, UnsupportedError
from opweld.llm.encoder_config import EncoderConfig, Head
from opweld.llm.fields import MOST_LAYERS, Fields
from opweld.llm.folder.architectures import activation, refuse
from opweld.llm.folder.sentences import read_sentences


@dataclass(frozen=True)
class Family:
    """What transformers knows of a type of model.

    Attributes:
        defaults: of keys that a config.json lacks. renamed: keys of its own for those of BERT.
        padded: whether positions begin behind the id of the padding token.
        head: the activation of what scores pairs.
    """

    defaults: Mapping[str, object]
    renamed: Mapping[str, str]
    padded: bool = False
    head: str = "tanh"


_BERT: dict[str, object] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
_DISTIL = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "activation": "hidden_act",
}

ENCODERS = {
    "bert": Family(_BERT, {}),
    "roberta": Family(_BERT | {"vocab_size": 50265, "pad_token_id": 1}, {}, padded=True),
    "xlm-roberta": Family(_BERT | {"pad_token_id": 1}, {}, padded=True),
    "distilbert": Family(_BERT | {"num_hidden_layers": 6, "type_vocab_size": 0}, _DISTIL, head="relu"),
}
"""By `model_type`."""


def read_encoder(folder: Path, fields: Fields) -> EncoderConfig:
    """The configuration of an encoder. fields: of its config.json.

    Raises:
        UnsupportedError: something that a file asks for is none of opweld's.
        ModelError: a key is missing, or its value makes no sense.
    """
    config = _network(fields)
    if _scores(fields):
        return config
    pooling, longest = read_sentences(folder)
    return replace(config, pooling=pooling, context=min(config.context, longest or config.context))


def _network(fields: Fields) -> EncoderConfig:
    kind = fields.text("model_type")
    family = ENCODERS[kind]
    own = {family.renamed.get(key, key): value for key, value in fields.values.items()}
    fields = Fields({**family.defaults, **own}, fields.file)
    refuse(fields)
    for key, plain in (("is_decoder", False), ("position_embedding_type", "absolute")):
        if fields.get(key) not in (None, plain):
            raise UnsupportedError(f"{fields.file}: {key} {fields.get(key)} is not supported")
    hidden, rows = fields.integer("hidden_size"), fields.integer("max_position_embeddings")
    heads = fields.integer("num_attention_heads", most=hidden)
    if hidden % heads:
        raise ModelError(f"{fields.file}: {hidden} features are not divided evenly by {heads} heads")
    offset = fields.integer("pad_token_id", least=0, most=rows - 2) + 1 if family.padded else 0
    return EncoderConfig(
        architecture=kind,
        vocabulary=fields.integer("vocab_size"),
        hidden=hidden,
        layers=fields.integer("num_hidden_layers", most=MOST_LAYERS),
        heads=heads,
        inner=fields.integer("intermediate_size"),
        types=0 if kind == "distilbert" else fields.integer("type_vocab_size"),
        offset=offset,
        context=rows - offset,
        rows=rows,
        epsilon=fields.positive("layer_norm_eps"),
        activation=activation(fields, "hidden_act"),
        head=Head(family.head, _sigmoid(fields)) if _scores(fields) else None,
    )


def _scores(fields: Fields) -> bool:
    """Whether it is a model that scores pairs. Raises UnsupportedError where it classifies texts."""
    names = fields.texts("architectures") if "architectures" in fields else []
    if not any(name.endswith("ForSequenceClassification") for name in names):
        return False
    labels = len(fields.inner("id2label").values) or fields.integer("num_labels", 2)
    if labels != 1:
        raise UnsupportedError(
            f"{fields.file}: {names[0]} with {labels} labels classifies texts; opweld takes encoders that make "
            "vectors, and those with one label, which score pairs"
        )
    return True


def _sigmoid(fields: Fields) -> bool:
    """Whether scores are brought into 0 to 1, as sentence-transformers does with one label unless told otherwise."""
    told = fields.inner("sentence_transformers").text("activation_fn", "")
    kind = told or fields.text("sbert_ce_default_activation_function", "Sigmoid")
    name = kind.rpartition(".")[2]
    if name not in ("Sigmoid", "Identity"):
        raise UnsupportedError(f"{fields.file}: scores go through {kind}; opweld knows Sigmoid and Identity")
    return name == "Sigmoid"

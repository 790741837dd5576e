"""Folders of encoders: what is told of those that opweld cannot compute; and the real model of a wheel."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from benchmarks.zoo import fetch
from opweld.errors import DamagedModelError, MissingModelError, ModelError, OpweldError, UnsupportedError
from opweld.llm.encoder import Encoder
from opweld.llm.encoder_config import Head, Pooling
from opweld.llm.files import is_encoder, open_encoder, open_model
from tests.unit.llm.encoders import CONTEXT, KINDS, saved, write_sentences
from tests.unit.llm.test_folder import saved as saved_decoder


def changed(file: Path, **changes: Any) -> None:
    """Changes a JSON file; a key that is changed to None is left out."""
    found = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in found.items() if value is not None}))


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_folder_says(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "tiny"
    saved(kind, folder)
    opened = open_encoder(folder)
    config = opened.config
    assert is_encoder(folder) and opened.name == "tiny"
    assert (config.architecture, config.vocabulary, config.hidden, config.layers) == (kind, 97, 32, 2)
    assert (config.heads, config.inner, config.context, config.activation) == (4, 48, CONTEXT, "gelu")
    assert config.types == {"bert": 2, "distilbert": 0}.get(kind, 1)
    assert config.offset == (2 if "roberta" in kind else 0)
    assert (config.pooling, config.head) == (Pooling("mean"), None)


@pytest.mark.parametrize(
    ("told", "sigmoid"),
    [
        ({}, True),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, False),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, False),
    ],
)
def test_how_scores_end(tmp_path: Path, told: dict[str, Any], sigmoid: bool) -> None:
    saved("bert", tmp_path, num_labels=1)
    changed(tmp_path / "config.json", **told)
    assert open_encoder(tmp_path).config.head == Head("tanh", sigmoid)


def test_weights_that_only_training_needs_are_left_out(tmp_path: Path) -> None:
    saved("bert", tmp_path)
    file = tmp_path / "model.safetensors"
    weights = {f"bert.{name}": tensor for name, tensor in load_file(file).items()}
    weights["cls.predictions.bias"] = torch.zeros(97)
    weights["bert.embeddings.position_ids"] = torch.zeros(1)
    # As the first converters of TensorFlow's models named them.
    weights["bert.embeddings.LayerNorm.gamma"] = weights.pop("bert.embeddings.LayerNorm.weight")
    weights["bert.embeddings.LayerNorm.beta"] = weights.pop("bert.embeddings.LayerNorm.bias")
    save_file(weights, file)
    assert {"norm", "norm.bias", "types"} <= set(open_encoder(tmp_path).weights)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"architectures": ["BertForSequenceClassification"]}, UnsupportedError, "with 2 labels classifies texts"),
        ({"position_embedding_type": "relative_key"}, UnsupportedError, "position_embedding_type relative_key"),
        ({"is_decoder": True}, UnsupportedError, "is_decoder True"),
        ({"hidden_act": "mish"}, UnsupportedError, "hidden_act is mish"),
        ({"quantization_config": {"bits": 4}}, UnsupportedError, "quantization_config"),
        ({"num_attention_heads": 5}, ModelError, "32 features are not divided evenly by 5 heads"),
        ({"hidden_size": 36}, ModelError, "the configuration says"),
        ({"num_hidden_layers": 3}, ModelError, "no tensor for layers.2"),
        ({"num_hidden_layers": 1}, UnsupportedError, "no tensor encoder.layer.1"),
        ({"type_vocab_size": 3}, ModelError, "token_type_embeddings"),
        ({"num_hidden_layers": "2"}, ModelError, "should be an integer"),
    ],
)
def test_what_opweld_cannot_compute_is_told(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], said: str
) -> None:
    saved("bert", tmp_path)
    changed(tmp_path / "config.json", **changes)
    with pytest.raises(error, match=said):
        open_encoder(tmp_path)


def test_what_sentence_transformers_says_and_opweld_does_not_know(tmp_path: Path) -> None:
    saved("bert", tmp_path)
    for pooling, said in (
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "pooling by cls, mean"),
        ({"pooling_mode_lasttoken": True}, "pooling by pooling_mode_lasttoken"),
        ({"pooling_mode": "weightedmean"}, "pooling by weightedmean"),
        ({}, "pooling by nothing"),
    ):
        write_sentences(tmp_path, pooling, normalized=True)
        with pytest.raises(UnsupportedError, match=said):
            open_encoder(tmp_path)
    write_sentences(tmp_path, {"pooling_mode": "cls"}, normalized=True, longest=20)
    assert open_encoder(tmp_path).config.context == 20
    assert open_encoder(tmp_path).config.pooling == Pooling("cls", True)
    changed(tmp_path / "sentence_bert_config.json", do_lower_case=True)
    with pytest.raises(UnsupportedError, match="do_lower_case"):
        open_encoder(tmp_path)
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[1]["path"] = "../elsewhere"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match="folders in it are read, no others"):
        open_encoder(tmp_path)
    modules[1] |= {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(UnsupportedError, match="the modules Transformer, Dense, Normalize"):
        open_encoder(tmp_path)
    (tmp_path / "modules.json").write_text("{}")
    with pytest.raises(DamagedModelError, match="a list of JSON objects"):
        open_encoder(tmp_path)


def test_encoders_and_decoders_are_told_apart(tmp_path: Path) -> None:
    saved("bert", tmp_path / "encoder")
    saved_decoder("llama", tmp_path / "decoder")
    with pytest.raises(UnsupportedError, match=r"is an encoder \(bert\), which writes no text.*opweld serve"):
        open_model(tmp_path / "encoder")
    with pytest.raises(UnsupportedError, match="is no encoder that opweld knows; it reads bert, roberta"):
        open_encoder(tmp_path / "decoder")
    saved("bert", tmp_path / "other", vocab_size=90)
    with pytest.raises(ModelError, match="the tokenizer has 94 tokens, the embedding 90 rows"):
        open_encoder(tmp_path / "other")
    assert not is_encoder(tmp_path / "decoder") and not is_encoder(tmp_path)
    with pytest.raises(MissingModelError):
        open_encoder(tmp_path / "nowhere")


def test_damaged_descriptions_raise_no_other_errors(tmp_path: Path) -> None:
    saved("bert", tmp_path)
    write_sentences(tmp_path, {"pooling_mode_mean_tokens": True}, normalized=True, longest=20)
    values = [
        None,
        -1,
        0,
        2**40,
        1.5,
        float("nan"),
        "x",
        [],
        {},
        [1],
        {"a": 1},
        True,
        ["BertForSequenceClassification"],
    ]
    extra = ["id2label", "pad_token_id", "architectures", "sentence_transformers", "pooling_mode", "is_decoder"]
    rng = random.Random(1)
    for name in ("config.json", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"):
        whole = (tmp_path / name).read_text()
        for _ in range(150):
            found = json.loads(whole)
            damaged = rng.choice(found) if isinstance(found, list) else found
            damaged[rng.choice([*damaged, *extra])] = rng.choice(values)
            (tmp_path / name).write_text(json.dumps(found))
            with suppress(OpweldError):
                open_encoder(tmp_path)
        for value in values:
            (tmp_path / name).write_text(json.dumps(value))
            with suppress(OpweldError):
                open_encoder(tmp_path)
        (tmp_path / name).write_text(whole)


TEXTS = [
    "Hi",
    "A cache keeps what was computed.",
    "Der Hund läuft über die Straße — and the cat doesn't.",
    "東京は日本の首都です。",
    *(" ".join(["the quick brown fox jumps over the lazy dog while the rain falls"] * n) for n in range(1, 17)),
]


@pytest.mark.models
def test_minilm_from_its_wheel_makes_the_vectors_of_transformers() -> None:
    folder = fetch.folder("all-minilm-l6-v2")
    encoder = Encoder(folder)
    assert (encoder.context, encoder.dimensions, encoder.config.pooling) == (256, 384, Pooling("mean", True))
    tokenizer, model = (
        transformers.AutoTokenizer.from_pretrained(folder),
        transformers.AutoModel.from_pretrained(folder),
    )
    found = encoder.embed(TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        with torch.no_grad():
            mean = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0).numpy()
        # Features of a vector of length 1; float32 on both sides, measured 3e-7 at most.
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=2e-6, rtol=0)
        np.testing.assert_array_equal(encoder.embed([text])[0], vector)
    near, far = encoder.embed(["A dog barks.", "The stock market fell."]) @ encoder.embed(["A puppy is barking."])[0]
    assert near > 0.7 > 0.3 > far

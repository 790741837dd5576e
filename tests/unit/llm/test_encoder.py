"""Encoders of transformers' folders, compiled: right by transformers in float64, the same bits whatever is beside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from opweld.errors import InputError, OptionError, ShortageError
from opweld.llm.encoder import STEP, Encoder, Pair
from tests.unit.llm.encoders import CONTEXT, KINDS, WORDS, saved, write_sentences

Array = np.ndarray[Any, Any]

LENGTHS = (1, 2, 5, 31, 32, 33, 64, 90, 255, 256, 257, 598)
"""Words of texts: blocks, and chunks of keys, that are full, not full, and just begun."""


def texts_of(lengths: tuple[int, ...] = LENGTHS) -> list[str]:
    rng = np.random.default_rng(7)
    return [" ".join(rng.choice(WORDS, length)) for length in lengths]


def states_of(model: Any, tokens: list[int]) -> Array:
    """What transformers computes of a text: [tokens, hidden]."""
    with torch.no_grad():
        return model(torch.tensor([tokens])).last_hidden_state[0].numpy()


def close(found: Array, right: Array) -> None:
    """Sums of up to 48 products in float32, two layers of post-normed features around 1: measured 3e-7 at most."""
    np.testing.assert_allclose(found, right, atol=1.5e-6 * np.abs(right).max(), rtol=0)


@pytest.fixture(scope="module", params=KINDS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Encoder, Any]:
    """An encoder, and the model of transformers that it is."""
    folder = tmp_path_factory.mktemp(request.param)
    model = saved(request.param, folder)
    return Encoder(folder, threads=2), model


def test_the_mean_where_nothing_says_how_tokens_are_pooled(both: tuple[Encoder, Any]) -> None:
    encoder, model = both
    assert (encoder.context, encoder.dimensions, encoder.scores) == (CONTEXT, 32, False)
    texts = texts_of()
    right = np.stack([states_of(model, encoder.tokenizer.encode(text)).mean(axis=0) for text in texts])
    close(encoder.embed(texts), right)


def test_company_and_threads_change_no_bit(both: tuple[Encoder, Any], tmp_path: Path) -> None:
    encoder, _ = both
    texts = texts_of()
    whole = encoder.embed(texts)
    for text, vector in zip(texts, whole, strict=True):
        np.testing.assert_array_equal(encoder.embed([text])[0], vector)
    shuffled = np.random.default_rng(3).permutation(len(texts) * 4) % len(texts)
    np.testing.assert_array_equal(encoder.embed([texts[at] for at in shuffled]), whole[shuffled])
    saved(encoder.config.architecture, tmp_path)
    alone = Encoder(tmp_path, threads=1)
    np.testing.assert_array_equal(alone.embed(texts[::-1]), whole[::-1])


def test_many_texts_of_one_token_and_none(both: tuple[Encoder, Any]) -> None:
    encoder, _ = both
    found = encoder.embed([[5]] * (STEP + 3))
    assert found.shape == (STEP + 3, 32) and (found == found[0]).all()
    assert encoder.embed([]).shape == (0, 32)


@pytest.mark.parametrize(
    ("pooling", "normalized", "pool"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, True, lambda states: states[0]),
        ({"pooling_mode": "max"}, False, lambda states: states.max(axis=0)),
        ({"pooling_mode_mean_tokens": True}, True, lambda states: states.mean(axis=0)),
    ],
)
def test_pooling_as_sentence_transformers_says(tmp_path: Path, pooling: Any, normalized: bool, pool: Any) -> None:
    model = saved("bert", tmp_path)
    write_sentences(tmp_path, pooling, normalized, 300)
    encoder = Encoder(tmp_path)
    texts = texts_of((3, 40, 298))
    right = np.stack([pool(states_of(model, encoder.tokenizer.encode(text))) for text in texts])
    right /= np.linalg.norm(right, axis=1, keepdims=True) if normalized else 1
    found = encoder.embed(texts)
    close(found, right)
    np.testing.assert_array_equal(encoder.embed(texts[1:2])[0], found[1])
    assert encoder.context == 300


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("identity", [False, True])
def test_pairs_are_scored(tmp_path: Path, kind: str, identity: bool) -> None:
    told: dict[str, Any] = {"activation_fn": "torch.nn.modules.linear.Identity"} if identity else {}
    model = saved(kind, tmp_path, num_labels=1, sentence_transformers=told)
    encoder = Encoder(tmp_path)
    assert encoder.scores
    pairs = [encoder.pair("w1 w2 w3", text) for text in texts_of((1, 7, 200, 590))]
    right: list[float] = []
    for pair in pairs:
        types = {"token_type_ids": torch.tensor([pair.types])} if kind == "bert" else {}
        with torch.no_grad():
            right.append(float(model(torch.tensor([pair.tokens]), **types).logits[0, 0]))
    found = encoder.score(pairs)
    close(found, np.array(right) if identity else 1 / (1 + np.exp(-np.array(right))))
    np.testing.assert_array_equal(np.concatenate([encoder.score([pair]) for pair in pairs]), found)
    with pytest.raises(OptionError, match="use `score`"):
        encoder.embed(["w1"])


def test_pairs_are_read_as_the_tokenizer_says(both: tuple[Encoder, Any]) -> None:
    encoder, _ = both
    right = encoder.tokenizer.inner.encode("w1 w2", "w3 w4 w5")
    assert encoder.pair("w1 w2", "w3 w4 w5") == Pair(right.ids, right.type_ids)
    with pytest.raises(OptionError, match="use `embed`"):
        encoder.score([encoder.pair("w1", "w2")])


def test_what_is_too_long_is_truncated_only_if_asked(both: tuple[Encoder, Any]) -> None:
    encoder, _ = both
    (text,) = texts_of((CONTEXT - 1,))
    with pytest.raises(InputError, match=f"a text of {CONTEXT + 1} tokens, where the model takes {CONTEXT}"):
        encoder.embed(["w1", text])
    cut = " ".join(text.split()[:-1])
    np.testing.assert_array_equal(encoder.embed([text], truncate=True), encoder.embed([cut]))
    whole = encoder.pair("w1", cut, truncate=True)
    assert len(whole.tokens) == CONTEXT and whole.tokens[-1] == 2
    with pytest.raises(InputError, match="leaves no room"):
        encoder.pair(cut, "w1", truncate=True)


@pytest.mark.parametrize("tokens", [[], [97], [-1]])
def test_tokens_that_are_not_there_are_refused(both: tuple[Encoder, Any], tokens: list[int]) -> None:
    with pytest.raises(InputError, match="token"):
        both[0].embed([[5], tokens])


def test_limits(tmp_path: Path) -> None:
    saved("bert", tmp_path)
    assert Encoder(tmp_path, context=40).context == 40
    with pytest.raises(OptionError, match=f"1 to {CONTEXT}"):
        Encoder(tmp_path, context=CONTEXT + 1)
    with pytest.raises(ShortageError, match="more than the 1000 that"):
        Encoder(tmp_path, memory=1000)

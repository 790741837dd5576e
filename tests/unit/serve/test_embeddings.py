"""POST /v1/embeddings, by OpenAI's client, and /v1/rerank."""

from __future__ import annotations

import math
from typing import Any

import openai
import pytest

from tests.unit.serve.fakes import Running
from tests.unit.serve.raw import ask, post


@pytest.mark.parametrize("encoding", ["float", "base64", openai.omit])
def test_vectors(client: openai.OpenAI, encoding: Any) -> None:
    answer = client.embeddings.create(model="embedder", input=["aab", "b"], encoding_format=encoding)
    assert [one.index for one in answer.data] == [0, 1]
    if encoding != "base64":
        first = answer.data[0].embedding
        assert len(first) == 26 and first[:2] == pytest.approx([2 / math.sqrt(5), 1 / math.sqrt(5)])
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (4, 4)


def test_fewer_dimensions_have_length_one(client: openai.OpenAI) -> None:
    (one,) = client.embeddings.create(model="embedder", input="aabbc", dimensions=2).data
    assert one.embedding == pytest.approx([math.sqrt(0.5), math.sqrt(0.5)])


def test_tokens(client: openai.OpenAI) -> None:
    (one,) = client.embeddings.create(model="embedder", input=[97, 97]).data
    assert one.embedding[0] == 1


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"dimensions": 27}, "dimensions", "integer_above_max_value"),
        ({"input": "x" * 513}, "input", "context_length_exceeded"),
        ({"input": ["x"] * 2049}, "input", "array_above_max_length"),
        ({"input": ""}, "input", "invalid_value"),
        ({"input": []}, "input", "empty_array"),
        ({"encoding_format": "hex"}, "encoding_format", "invalid_value"),
    ],
)
def test_what_is_refused(client: openai.OpenAI, fields: Any, param: str, code: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(**({"model": "embedder", "input": "x", "encoding_format": "float"} | fields))
    assert (caught.value.param, caught.value.code) == (param, code)


def test_as_many_tokens_as_the_context_has(client: openai.OpenAI) -> None:
    assert client.embeddings.create(model="embedder", input="a" * 512).usage.prompt_tokens == 512


def test_a_model_that_makes_none(client: openai.OpenAI) -> None:
    with pytest.raises(openai.PermissionDeniedError, match="not allowed to generate embeddings from this model"):
        client.embeddings.create(model="talker", input="x")


def test_documents_by_nearness(running: Running) -> None:
    body = {"model": "embedder", "query": "ab", "documents": ["xyz", "abc", {"text": "ba"}], "return_documents": True}
    status, _, answer = ask(running, post("/v1/rerank", body))
    assert status == 200 and answer["usage"]["total_tokens"] == 10
    assert [(one["index"], one["document"]["text"]) for one in answer["results"]] == [(2, "ba"), (1, "abc"), (0, "xyz")]
    scores = [one["relevance_score"] for one in answer["results"]]
    assert scores == pytest.approx([1, math.sqrt(2 / 3), 0], abs=1e-6)
    _, _, answer = ask(running, post("/v1/rerank", body | {"top_n": 1, "return_documents": False}))
    assert [(one["index"], set(one)) for one in answer["results"]] == [(2, {"index", "relevance_score"})]


def test_documents_by_the_scores_of_a_model_that_reads_pairs(running: Running) -> None:
    body = {"model": "ranker", "query": "abc", "documents": ["xyz", "cab", {"text": "bb"}], "return_documents": True}
    status, _, answer = ask(running, post("/v1/rerank", body))
    assert status == 200 and answer["usage"]["total_tokens"] == 3 * 6 + 8
    found = [(one["index"], one["document"]["text"], one["relevance_score"]) for one in answer["results"]]
    assert found == [(1, "cab", 3), (2, "bb", 1), (0, "xyz", 0)]
    _, _, answer = ask(running, post("/v1/rerank", body | {"top_n": 1, "return_documents": False}))
    assert [(one["index"], set(one)) for one in answer["results"]] == [(1, {"index", "relevance_score"})]


def test_pairs_that_are_too_long_or_too_many_are_refused(running: Running) -> None:
    body = {"model": "ranker", "query": "a" * 31, "documents": ["b" * 30]}
    assert ask(running, post("/v1/rerank", body))[0] == 200
    status, _, answer = ask(running, post("/v1/rerank", body | {"documents": ["b", "b" * 31]}))
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    status, _, answer = ask(running, post("/v1/rerank", body | {"documents": ["b"] * 2049}))
    assert (status, answer["error"]["code"]) == (400, "array_above_max_length")


def test_a_model_that_scores_pairs_makes_no_vectors_and_writes_no_text(client: openai.OpenAI) -> None:
    with pytest.raises(openai.PermissionDeniedError, match="not allowed to generate embeddings from this model"):
        client.embeddings.create(model="ranker", input="x")
    with pytest.raises(openai.NotFoundError, match="It serves v1/rerank"):
        client.completions.create(model="ranker", prompt="x")


def test_what_is_too_long_is_cut_where_that_is_asked_for(running: Running) -> None:
    body = {"model": "embedder", "input": ["a" * 512 + "b", "b"], "truncate": True}
    status, _, answer = ask(running, post("/v1/embeddings", body))
    assert status == 200 and answer["usage"]["prompt_tokens"] == 513
    assert answer["data"][0]["embedding"][:2] == [1, 0]
    _, _, answer = ask(running, post("/v1/embeddings", body | {"input": [97] * 513}))
    assert answer["usage"]["prompt_tokens"] == 512
    for model, room in (("embedder", 1 + 512), ("ranker", 64)):
        ranked = {"model": model, "query": "a", "documents": ["c" * 600]}
        assert ask(running, post("/v1/rerank", ranked | {"truncate": False}))[0] == 400
        status, _, answer = ask(running, post("/v1/rerank", ranked | {"truncate": True}))
        assert status == 200 and answer["usage"]["total_tokens"] == room

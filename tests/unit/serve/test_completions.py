"""POST /v1/completions, by OpenAI's client."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.unit.serve.fakes import Running


def test_a_completion(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="talker", prompt="hello", max_tokens=4)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("hell", "length")
    assert answer.object == "text_completion" and answer.usage is not None and answer.usage.total_tokens == 9


def test_sixteen_tokens_if_nothing_is_said(client: openai.OpenAI) -> None:
    assert len(client.completions.create(model="talker", prompt="x" * 100).choices[0].text) == 16


@pytest.mark.parametrize("prompt", [["ab", "cd"], [[97, 98], [99, 100]]])
def test_several_prompts(client: openai.OpenAI, prompt: Any) -> None:
    answer = client.completions.create(model="talker", prompt=prompt, n=2)
    assert [(choice.index, choice.text) for choice in answer.choices] == [(0, "ab"), (1, "ab"), (2, "cd"), (3, "cd")]
    with client.completions.create(model="talker", prompt=prompt, stream=True, echo=True) as stream:
        texts = {0: "", 1: ""}
        for chunk in stream:
            texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == {0: "abab", 1: "cdcd"}


def test_tokens_as_prompt_and_its_echo(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="talker", prompt=[104, 105], echo=True)
    assert answer.choices[0].text == "hihi"


def test_logprobs(client: openai.OpenAI) -> None:
    logprobs = client.completions.create(model="talker", prompt="ab", logprobs=2).choices[0].logprobs
    assert logprobs is not None
    assert (logprobs.tokens, logprobs.token_logprobs, logprobs.text_offset) == (["a", "b"], [-0.5, -0.5], [0, 1])
    assert logprobs.top_logprobs == [{"a": -0.5, " ": -2.0}, {"b": -0.5, " ": -2.0}]
    chosen_alone = client.completions.create(model="talker", prompt="ab", logprobs=0).choices[0].logprobs
    assert chosen_alone is not None and chosen_alone.top_logprobs is None
    with client.completions.create(model="talker", prompt="ab", logprobs=0, stream=True) as stream:
        parts = [chunk.choices[0].logprobs for chunk in stream]
    assert [part.text_offset for part in parts if part] == [[0], [1]]


def test_the_best_of_several(client: openai.OpenAI, running: Running) -> None:
    before = len(running.engine.requests)
    answer = client.completions.create(model="talker", prompt="ab", best_of=3)
    assert len(answer.choices) == 1 and answer.choices[0].logprobs is None
    assert len(running.engine.requests) - before == 3
    assert answer.usage is not None and answer.usage.completion_tokens == 6


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": "end"}, "suffix"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": [256]}, "prompt"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": {}}, "prompt"),
    ],
)
def test_what_is_refused(client: openai.OpenAI, fields: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**({"model": "talker", "prompt": "hello"} | fields))
    assert caught.value.param == param

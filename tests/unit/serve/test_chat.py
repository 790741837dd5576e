"""POST /v1/chat/completions, by OpenAI's client."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.unit.serve.fakes import Running

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "of a place",
        "parameters": {"type": "object", "properties": {"place": {"$ref": "#/$defs/place"}}, "required": ["place"],
                       "$defs": {"place": {"type": "string"}}},
    },
}  # fmt: skip


def said(text: str) -> Any:
    return [{"role": "system", "content": "be kind"}, {"role": "user", "content": text}]


def test_an_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="talker", messages=said("Grüße, 世界"))
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason, choice.message.role) == ("Grüße, 世界", "stop", "assistant")
    assert answer.object == "chat.completion" and answer.model == "talker" and answer.id.startswith("chatcmpl-")
    assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
    prompt = len("system: be kind\nuser: Grüße, 世界".encode())
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (prompt, len("Grüße, 世界".encode()))
    assert answer.usage.prompt_tokens_details.cached_tokens == 3
    assert answer._request_id is not None and answer._request_id.startswith("req_")


def test_a_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.create(model="talker", messages=said("hello"), stream=True) as stream:
        chunks = list(stream)
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", *"hello", None]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 6 + ["stop"]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1 and all(chunk.usage is None for chunk in chunks)


def test_usage_at_the_end_of_a_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.create(
        model="talker", messages=said("hello"), stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)
    assert chunks[-1].choices == [] and chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 5
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_fields_become_sampling(client: openai.OpenAI, running: Running) -> None:
    client.chat.completions.create(
        model="talker",
        messages=[
            {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "user", "content": "hello"},
        ],
        temperature=0.5, top_p=0.9, presence_penalty=1, frequency_penalty=-1, logit_bias={"17": -100, "18": 2},
        seed=4, stop=["x", "y"], max_completion_tokens=3, user="me", n=2,
        extra_body={"top_k": 7, "min_p": 0.1, "repetition_penalty": 1.1},
    )  # fmt: skip
    first, second = running.engine.requests[-2:]
    assert bytes(first.prompt) == b"system: a\nb\nuser: hello"
    s = first.sampling
    assert (s.temperature, s.top_p, s.top_k, s.min_p, s.repetition_penalty) == (0.5, 0.9, 7, 0.1, 1.1)
    assert (s.presence_penalty, s.frequency_penalty, s.bias) == (1, -1, {17: -100, 18: 2})
    assert (s.seed, second.sampling.seed, s.stop, s.limit, s.logprobs) == (4, 5, ("x", "y"), 3, None)
    assert first.id != second.id


def test_several_answers(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="talker", messages=said("hello"), n=3, max_tokens=4)
    assert [(choice.index, choice.message.content) for choice in answer.choices] == [(i, "hell") for i in range(3)]
    assert {choice.finish_reason for choice in answer.choices} == {"length"}
    assert answer.usage is not None and answer.usage.completion_tokens == 12
    with client.chat.completions.create(model="talker", messages=said("hello"), n=3, stream=True) as stream:
        texts = ["", "", ""]
        for chunk in stream:
            texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == ["hello"] * 3


def test_logprobs(client: openai.OpenAI) -> None:
    ask: dict[str, Any] = {"model": "talker", "messages": said("ab"), "logprobs": True, "top_logprobs": 3}
    answer = client.chat.completions.create(**ask)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert [(one.token, one.logprob, one.bytes) for one in logprobs.content] == [("a", -0.5, [97]), ("b", -0.5, [98])]
    assert [(one.token, one.logprob) for one in logprobs.content[0].top_logprobs] == [
        ("a", -0.5),
        (" ", -2.0),
        ("!", -9999.0),
    ]
    with client.chat.completions.create(**ask, stream=True) as stream:
        told = [chunk.choices[0].logprobs for chunk in stream]
    assert [one.token for part in told if part and part.content for one in part.content] == ["a", "b"]


def test_a_call_of_a_tool(client: openai.OpenAI, running: Running) -> None:
    text = 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"place": "Köln"}}\n</tool_call>'
    answer = client.chat.completions.create(model="talker", messages=said(text), tools=[WEATHER])
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("Let me see.", "tool_calls")
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function" and call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"place": "Köln"}
    assert bytes(running.engine.requests[-1].prompt).startswith(b'tools: [{"type": "function"')

    with client.chat.completions.create(model="talker", messages=said(text), tools=[WEATHER], stream=True) as stream:
        chunks = [chunk.choices[0] for chunk in stream]
    assert "".join(chunk.delta.content or "" for chunk in chunks) == "Let me see."
    ((call,),) = [chunk.delta.tool_calls for chunk in chunks if chunk.delta.tool_calls]
    assert call.index == 0 and call.id and call.function and call.function.name == "weather"
    assert chunks[-1].finish_reason == "tool_calls"


def test_an_answer_after_a_call(client: openai.OpenAI, running: Running) -> None:
    client.chat.completions.create(
        model="talker",
        messages=[
            {"role": "user", "content": "how is it?"},
            {"role": "assistant", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"place": "Ulm"}'}}]},
            {"role": "tool", "tool_call_id": "c", "content": "rain"},
        ],
        tools=[WEATHER],
    )  # fmt: skip
    prompt = bytes(running.engine.requests[-1].prompt).decode()
    assert '"arguments": {"place": "Ulm"}' in prompt and prompt.endswith("tool: rain")


@pytest.mark.parametrize(
    ("choice", "text", "reason"),
    [
        ("required", '[{"name": "weather", "arguments": {"place": "Ulm"}}]', "tool_calls"),
        (
            {"type": "function", "function": {"name": "weather"}},
            '{"name": "weather", "arguments": {"place": "Ulm"}}',
            "stop",
        ),
    ],
)
def test_a_call_can_be_required(client: openai.OpenAI, running: Running, choice: Any, text: str, reason: str) -> None:
    answer = client.chat.completions.create(
        model="talker", messages=said(text), tools=[WEATHER], tool_choice=choice
    ).choices[0]
    assert answer.message.tool_calls is not None and answer.message.content is None
    assert answer.finish_reason == reason
    grammar = running.engine.requests[-1].sampling.grammar
    assert grammar is not None and grammar.kind == "json_schema"
    schema = json.loads(grammar.text)
    call = schema["items"]["anyOf"][0] if choice == "required" else schema
    assert call["properties"]["name"] == {"const": "weather"}
    assert call["properties"]["arguments"]["required"] == ["place"]
    assert schema["$defs"] == {"place": {"type": "string"}}  # where #/$defs/place looks


def test_tools_can_be_forbidden(client: openai.OpenAI, running: Running) -> None:
    text = '<tool_call>{"name": "weather", "arguments": {}}</tool_call>'
    answer = client.chat.completions.create(
        model="talker", messages=said(text), tools=[WEATHER], tool_choice="none"
    ).choices[0]
    assert answer.message.content == text and answer.message.tool_calls is None
    assert not bytes(running.engine.requests[-1].prompt).startswith(b"tools")


@pytest.mark.parametrize(
    ("form", "kind", "schema"),
    [
        ({"type": "text"}, None, None),
        ({"type": "json_object"}, "json", None),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer"}, "strict": True}},
            "json_schema",
            {"type": "integer"},
        ),
    ],
)
def test_the_form_of_an_answer(client: openai.OpenAI, running: Running, form: Any, kind: str, schema: Any) -> None:
    client.chat.completions.create(model="talker", messages=said("1"), response_format=form)
    grammar = running.engine.requests[-1].sampling.grammar
    assert (grammar and grammar.kind) == kind
    assert schema is None or (grammar is not None and json.loads(grammar.text) == schema)

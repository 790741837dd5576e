"""POST /v1/responses, by OpenAI's client."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.unit.serve.fakes import FAIL, Running

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "of a place",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    "strict": True,
}
CALL = 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"place": "Köln"}}\n</tool_call>'


def prompt_of(running: Running) -> str:
    return bytes(running.engine.requests[-1].prompt).decode()


def test_an_answer(client: openai.OpenAI, running: Running) -> None:
    answer = client.responses.create(model="talker", input="Grüße, 世界", instructions="be kind", temperature=0.5)
    assert prompt_of(running) == "system: be kind\nuser: Grüße, 世界"
    assert running.engine.requests[-1].sampling.temperature == 0.5
    assert (answer.output_text, answer.status, answer.model) == ("Grüße, 世界", "completed", "talker")
    assert answer.id.startswith("resp_") and answer.object == "response" and answer.instructions == "be kind"
    (message,) = answer.output
    assert message.type == "message" and message.role == "assistant" and message.status == "completed"
    assert answer.usage is not None
    told = (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens)
    assert told == (len(prompt_of(running).encode()), len("Grüße, 世界".encode()), sum(told[:2]))
    assert answer.usage.input_tokens_details.cached_tokens == 3


def test_a_stream_tells_how_the_answer_grows(client: openai.OpenAI) -> None:
    events: list[Any] = list(client.responses.create(model="talker", input="hello", stream=True))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds == [
        "created", "in_progress", "output_item.added", "content_part.added", *["output_text.delta"] * 5,
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type.endswith("delta")) == "hello" == events[9].text
    whole = events[-1].response
    assert whole.output_text == "hello" and whole.usage.output_tokens == 5 and events[0].response.output == []
    assert {event.item_id for event in events if hasattr(event, "item_id")} == {whole.output[0].id}


def test_the_helper_of_the_client_assembles_it(client: openai.OpenAI) -> None:
    with client.responses.stream(model="talker", input=CALL, tools=[WEATHER]) as stream:
        answer = stream.get_final_response()
    assert answer.output_text == "Let me see." and answer.output[1].type == "function_call"


def test_an_answer_that_the_limit_cuts_is_incomplete(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="talker", input="hello", max_output_tokens=4)
    assert (answer.output_text, answer.status, answer.output[0].status) == ("hell", "incomplete", "incomplete")  # pyright: ignore[reportAttributeAccessIssue]
    assert answer.incomplete_details is not None and answer.incomplete_details.reason == "max_output_tokens"
    *_, last = client.responses.create(model="talker", input="hello", max_output_tokens=4, stream=True)
    assert last.type == "response.incomplete"


def test_turns_become_messages(client: openai.OpenAI, running: Running) -> None:
    client.responses.create(
        model="talker",
        instructions="be kind",
        input=[
            {"role": "developer", "content": "be brief"},
            {"role": "user",
             "content": [{"type": "input_text", "text": "how is"}, {"type": "input_text", "text": "it?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
             "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
            {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "weather", "arguments": '{"place": "Ulm"}'},
            {"type": "function_call", "call_id": "d", "name": "weather", "arguments": '{"place": "Bonn"}'},
            {"type": "function_call_output", "call_id": "c", "output": "rain"},
            {"type": "function_call_output", "call_id": "d", "output": [{"type": "input_text", "text": "sun"}]},
        ],
        tools=[WEATHER],
    )  # fmt: skip
    tools, *lines = prompt_of(running).split("\n")
    assert json.loads(tools.removeprefix("tools: "))[0]["function"]["name"] == "weather"
    assert lines[:4] == ["system: be kind", "system: be brief", "user: how is", "it?"]
    assert lines[4].startswith("assistant: I look.") and lines[4].count('"name": "weather"') == 2
    assert lines[5:] == ["tool: rain", "tool: sun"]


def test_a_call_of_a_function(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="talker", input=CALL, tools=[WEATHER])
    text, call = answer.output
    assert text.type == "message" and answer.output_text == "Let me see." and answer.tools[0].type == "function"
    assert call.type == "function_call" and call.name == "weather" and call.status == "completed"
    assert json.loads(call.arguments) == {"place": "Köln"} and call.call_id.startswith("call_")
    events: list[Any] = list(client.responses.create(model="talker", input=CALL, tools=[WEATHER], stream=True))
    items = [event for event in events if event.type == "response.output_item.done"]
    assert [event.output_index for event in items] == [0, 1] and items[1].item.name == "weather"
    (done,) = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert json.loads(done.arguments) == {"place": "Köln"} and done.item_id == items[1].item.id


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "weather"}])
def test_a_call_can_be_required(client: openai.OpenAI, running: Running, choice: Any) -> None:
    call = '{"name": "weather", "arguments": {"place": "Ulm"}}'
    text = f"[{call}]" if choice == "required" else call
    answer = client.responses.create(model="talker", input=text, tools=[WEATHER], tool_choice=choice)
    assert [item.type for item in answer.output] == ["function_call"] and running.engine.requests[-1].sampling.grammar


def test_the_form_of_an_answer(client: openai.OpenAI, running: Running) -> None:
    form: Any = {"type": "json_schema", "name": "n", "schema": {"type": "integer"}, "strict": True}
    answer = client.responses.create(model="talker", input="1", text={"format": form})
    grammar = running.engine.requests[-1].sampling.grammar
    assert grammar is not None and json.loads(grammar.text) == {"type": "integer"} and answer.text is not None
    client.responses.create(model="talker", input="1", text={"format": {"type": "json_object"}, "verbosity": "low"})
    grammar = running.engine.requests[-1].sampling.grammar
    assert grammar is not None and grammar.kind == "json"


def test_logprobs(client: openai.OpenAI) -> None:
    asked: Any = {"model": "talker", "input": "ab", "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    part: Any = client.responses.create(**asked).output[0].content[0]  # pyright: ignore[reportAttributeAccessIssue, reportOptionalSubscript]
    assert [(one.token, one.logprob, len(one.top_logprobs)) for one in part.logprobs] == [
        ("a", -0.5, 2),
        ("b", -0.5, 2),
    ]
    events: list[Any] = list(client.responses.create(**asked, stream=True))
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert [event.logprobs[0].token for event in deltas] == ["a", "b"]


@pytest.mark.parametrize(
    ("fields", "param", "part"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "send the whole conversation as 'input'"),
        ({"conversation": "conv_1"}, "conversation", "keeps no answers"),
        ({"background": True}, "background", "Supported values"),
        ({"truncation": "auto"}, "truncation", "Supported values"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "'function'"),
        ({"input": []}, "input", "empty array"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input", "holds no message"),
        ({"input": [{"role": "user"}]}, "input[0].content", "Missing required parameter"),
        ({"input": [{"content": "x"}]}, "input[0].role", "Missing required parameter"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id", "Missing"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "[", "call_id": "c"}]},
         "input[0].tool_calls[0].function.arguments", "JSON object"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
         "input[0].content[0].type", "text alone"),
        ({"input": "x" * 5000}, "input", "maximum context length"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema", "Missing"),
        ({"text": {"format": {"type": "json_object"}}, "tools": [WEATHER]}, "text.format", "leaves no room"),
        ({"max_tokens": 3}, "max_tokens", "Unknown parameter"),
        ({"top_logprobs": 21}, "top_logprobs", "<= 20"),
    ],
)  # fmt: skip
def test_what_is_not_served_is_told(client: openai.OpenAI, fields: Any, param: str, part: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="talker", input="hello", extra_body=fields)
    assert part in str(caught.value) and caught.value.param == param


def test_what_fails_in_a_stream_ends_it(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIError) as caught:
        list(client.responses.create(model="talker", input=f"ab{FAIL}", stream=True))
    assert "secret" not in str(caught.value)

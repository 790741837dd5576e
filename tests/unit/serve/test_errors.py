"""Errors have the shape and the words of OpenAI's."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.unit.serve.fakes import CONTEXT, FAIL, Running, eventually
from tests.unit.serve.raw import ask, head, post

MESSAGES = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "f"}}


def refusal(running: Running, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    status, headers, answer = ask(running, post(path, body))
    assert headers["x-request-id"].startswith("req_") and headers["content-type"] == "application/json"
    assert set(answer) == {"error"} and set(answer["error"]) == {"message", "type", "param", "code"}
    return status, answer["error"]


@pytest.mark.parametrize(
    "body", [b"{", b"", b"[1]", b'"x"', b"null", b"\xff", b"[" * 100_000, b'{"model": NaN}', rb'{"\ud800": 1}']
)
def test_what_is_no_object_of_json(running: Running, body: bytes) -> None:
    status, error = refusal(running, "/v1/chat/completions", body)
    assert status == 400 and error["type"] == "invalid_request_error"


def test_a_body_must_say_that_it_is_json(running: Running) -> None:
    request = post("/v1/chat/completions", {"model": "talker", "messages": MESSAGES}, **{"Content-Type": "text/plain"})
    status, _, answer = ask(running, request)
    assert status == 400 and "Content-Type: application/json" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "param", "code", "message"),
    [
        ({"messages": None}, "messages", "invalid_type",
         "Invalid type for 'messages': expected an array, but got null instead."),
        ({"messages": []}, "messages", "empty_array",
         "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."),
        ({"messages": ["x"]}, "messages[0]", "invalid_type",
         "Invalid type for 'messages[0]': expected an object, but got a string instead."),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "invalid_type",
         "Invalid value for 'messages[0].content': expected a string, got null."),
        ({"messages": [{"content": "x"}]}, "messages[0].role", "missing_required_parameter",
         "Missing required parameter: 'messages[0].role'."),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "invalid_value",
         "Invalid value: 'robot'. Supported values are: 'system', 'developer', 'user', 'assistant' or 'tool'."),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content", "invalid_type",
         "Invalid type for 'messages[0].content': got an integer."),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
         "messages[0].content[0].type", "invalid_value", "image_url is not served"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]},
         "messages[0].content[0].text", "missing_required_parameter", "Missing required parameter"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id", "missing_required_parameter",
         "Missing required parameter"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, None, "invalid_value",
         "a conversation begins with no tool"),
        ({"messages": [{"role": "assistant", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "["}}]}]},
         "messages[0].tool_calls[0].function.arguments", "invalid_value", "expected a JSON object in a string"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages", "invalid_value",
         "half of a surrogate pair"),
        ({"temperature": "hot"}, "temperature", "invalid_type",
         "Invalid type for 'temperature': expected a decimal, but got a string instead."),
        ({"temperature": 3}, "temperature", "decimal_above_max_value",
         "Invalid 'temperature': decimal above maximum value. Expected a value <= 2.0, but got 3 instead."),
        ({"top_p": -1}, "top_p", "decimal_below_min_value", "Expected a value >= 0.0, but got -1 instead."),
        ({"n": 0}, "n", "integer_below_min_value",
         "Invalid 'n': integer below minimum value. Expected a value >= 1, but got 0 instead."),
        ({"n": True}, "n", "invalid_type", "Invalid type for 'n': expected an integer, but got a boolean instead."),
        ({"n": 1.5}, "n", "invalid_type", "Invalid type for 'n': expected an integer, but got a decimal instead."),
        ({"n": 129}, "n", "integer_above_max_value", "128 answers to a request at most, but 129 were asked for"),
        ({"seed": 1 << 63}, "seed", "invalid_value", "Invalid 'seed'"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop", "array_above_max_length",
         "Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length 5 "
         "instead."),
        ({"stop": ""}, "stop", "invalid_value", "a stop string is empty"),
        ({"stop": ["a", "\ud800"]}, "stop", "invalid_value", "a stop string holds half of a surrogate pair"),
        ({"stop": 5}, "stop", "invalid_type", "Invalid type for 'stop': got an integer."),
        ({"logit_bias": {"x": 1}}, "logit_bias", "invalid_value", "Invalid key in 'logit_bias': 'x'"),
        ({"logit_bias": {"256": 1}}, "logit_bias", "invalid_value", "Expected the id of a token, 0 to 255"),
        ({"logit_bias": {"9" * 5000: 1}}, "logit_bias", "invalid_value", "Expected the id of a token, 0 to 255"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1", "decimal_above_max_value", "Expected a value <= 100.0"),
        ({"top_logprobs": 2}, "top_logprobs", "invalid_value", "it takes 'logprobs' to be true"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "integer_above_max_value", "Expected a value <= 20"),
        ({"temprature": 1}, "temprature", "unknown_parameter", "Unknown parameter: 'temprature'."),
        ({"stream_options": {"x": 1}}, "stream_options.x", "unknown_parameter",
         "Unknown parameter: 'stream_options.x'."),
        ({"tool_choice": "required"}, "tool_choice", None, "only allowed when 'tools' are specified"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice",
         "invalid_value", "Tool choice 'g' not found in 'tools' parameter."),
        ({"tools": [TOOL], "tool_choice": "perhaps"}, "tool_choice", "invalid_value", "Invalid value: 'perhaps'"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "invalid_value",
         "Invalid 'tools[0].function.name'"),
        ({"tools": [TOOL], "response_format": {"type": "json_object"}}, "response_format", "invalid_value",
         "send 'tool_choice': 'none'"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing_required_parameter",
         "Missing required parameter: 'response_format.json_schema'."),
        ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value", "Supported values are"),
        ({"max_tokens": CONTEXT}, "messages", "context_length_exceeded",
         f"This model's maximum context length is {CONTEXT} tokens. However, you requested {CONTEXT + 11} tokens "
         f"(11 in the messages, {CONTEXT} in the completion). Please reduce the length of the messages or completion."),
        ({"messages": [{"role": "user", "content": "x" * CONTEXT}]}, "messages", "context_length_exceeded",
         f"your messages resulted in {CONTEXT + 6} tokens"),
    ],
)  # fmt: skip
def test_a_wrong_field(running: Running, fields: dict[str, Any], param: str, code: str, message: str) -> None:
    before = len(running.engine.requests)
    status, error = refusal(running, "/v1/chat/completions", {"model": "talker", "messages": MESSAGES, **fields})
    assert message in error["message"]
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert (error["param"], error["code"]) == (param, code)
    assert len(running.engine.requests) == before


def test_a_missing_field(running: Running) -> None:
    status, error = refusal(running, "/v1/chat/completions", {"model": "talker"})
    assert (status, error["code"], error["param"]) == (400, "missing_required_parameter", "messages")


def test_models(client: openai.OpenAI) -> None:
    models = client.models.list().data
    assert [(model.id, model.object, model.owned_by) for model in models] == [
        ("talker", "model", "opweld"),
        ("embedder", "model", "opweld"),
        ("ranker", "model", "opweld"),
    ]
    assert client.models.retrieve("talker").id == "talker"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("someone/else")


def test_an_unknown_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="parrot", messages=[{"role": "user", "content": "hello"}])
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    assert "The model `parrot` does not exist or you do not have access to it." in str(caught.value)


def test_a_model_that_does_not_write(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="writes no text"):
        client.completions.create(model="embedder", prompt="x")


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("POST", "/v1/nothing", 404, "Invalid URL (POST /v1/nothing)"),
        ("GET", "/v1/chat/completions", 405, "Not allowed to GET on /v1/chat/completions."),
        ("GET", "/", 404, "Invalid URL (GET /)"),
    ],
)
def test_a_wrong_address(running: Running, method: str, path: str, status: int, message: str) -> None:
    got, _, answer = ask(running, head(path, 0, method))
    assert (got, answer["error"]["message"]) == (status, message)


def test_a_fault_of_the_server_tells_nothing(client: openai.OpenAI, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model="talker", messages=[{"role": "user", "content": FAIL}])
    assert caught.value.status_code == 500 and "secret" not in str(caught.value)
    assert caught.value.type == "server_error"
    eventually(lambda: "a secret of the server" in caplog.text)  # the log says it


def test_a_stream_that_fails_says_so(client: openai.OpenAI) -> None:
    got = ""
    with (
        client.chat.completions.create(
            model="talker", messages=[{"role": "user", "content": f"so{FAIL}"}], stream=True
        ) as stream,
        pytest.raises(openai.APIError, match="The server had an error"),
    ):
        for chunk in stream:
            got += chunk.choices[0].delta.content or ""
    assert got == "so"

"""Keys, limits, and clients that go away."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

import openai
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from opweld.errors import OptionError
from opweld.serve.limits import Keys, Limits, keys_of_file
from tests.unit.serve.fakes import STALL, Running, eventually, serving
from tests.unit.serve.raw import ask, connect, head, post, until_closed


def talk(content: str, **fields: Any) -> dict[str, Any]:
    return {"model": "talker", "messages": [{"role": "user", "content": content}], **fields}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Running]:
    limits = Limits(body=1000, prompt=100, answers=4, seconds=600.0, drain=0.0)
    with serving(limits, keys=["first", "zweit"], most=2) as running:
        yield running


@pytest.fixture(scope="module")
def paged() -> Iterator[Running]:
    with serving(origins=["https://page.example"]) as running:
        yield running


def asking(running: Running, body: Any, key: str | None = "first", path: str = "/v1/chat/completions") -> Any:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return ask(running, post(path, body, **headers))


@pytest.mark.parametrize("key", ["first", "zweit"])
def test_who_knows_a_key_is_answered(guarded: Running, key: str) -> None:
    assert asking(guarded, talk("hello"), key)[0] == 200


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ({}, None),
        ({"Authorization": "Bearer"}, None),
        ({"Authorization": "Basic first"}, None),
        ({"Authorization": "Bearer firs"}, "invalid_api_key"),
        ({"Authorization": "Bearer firstt"}, "invalid_api_key"),
        ({"Authorization": "Bearer first zweit"}, "invalid_api_key"),
        ({"Authorization": "Bearer s\xfc\xdf"}, "invalid_api_key"),
    ],
)
def test_who_knows_none_is_not(guarded: Running, header: dict[str, str], code: str | None) -> None:
    request = head("/v1/models", 0, "GET").replace(b"\r\n\r\n", b"\r\n")
    request += b"".join(f"{k}: {v}\r\n".encode("latin-1") for k, v in header.items()) + b"\r\n"
    status, _, answer = ask(guarded, request)
    assert (status, answer["error"]["type"], answer["error"]["code"]) == (401, "invalid_request_error", code)


def test_the_client_raises_its_error_of_a_wrong_key(guarded: Running) -> None:
    with (
        openai.OpenAI(base_url=f"{guarded.url}/v1", api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError, match="Incorrect API key"),
    ):
        client.models.list()


def test_keys_come_from_a_file(tmp_path: Any) -> None:
    file = tmp_path / "keys"
    file.write_text("# of the team\nfirst\n\n  second \n")
    assert keys_of_file(file) == ["first", "second"]
    file.write_text("# none\n")
    with pytest.raises(OptionError, match="holds no key"):
        keys_of_file(file)
    with pytest.raises(OptionError, match="cannot read keys"):
        keys_of_file(tmp_path / "none")
    with pytest.raises(OptionError, match="an API key is empty"):
        Keys([" "])


def test_a_body_that_is_too_large(guarded: Running) -> None:
    for size in (1001, 3000, 100_000):
        status, _, answer = asking(guarded, b" " * size)
        assert (status, answer["error"]["code"]) == (413, "request_too_large")
    assert asking(guarded, b" " * 1000)[0] == 400


def test_a_body_in_chunks_that_is_too_large(guarded: Running) -> None:
    chunk = b"1f4\r\n" + b" " * 500 + b"\r\n"
    begin = head("/v1/completions", 0, Authorization="Bearer first").replace(
        b"Content-Length: 0", b"Transfer-Encoding: chunked"
    )
    status, _, _ = ask(guarded, begin + chunk * 3 + b"0\r\n\r\n")
    assert status == 413


def test_a_prompt_of_too_many_tokens(guarded: Running) -> None:
    _, _, answer = asking(guarded, talk("x" * 100))
    assert answer["error"]["code"] == "context_length_exceeded" and "takes prompts of 100" in answer["error"]["message"]


def test_too_many_answers(guarded: Running) -> None:
    assert asking(guarded, talk("x", n=5))[2]["error"]["param"] == "n"
    body = {"model": "talker", "prompt": ["a", "b", "c"], "n": 2}
    assert asking(guarded, body, path="/v1/completions")[2]["error"]["param"] == "n"


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue(guarded: Running, stream: bool) -> None:
    before = guarded.engine.aborted
    with connect(guarded) as one, connect(guarded) as two:
        for connection in (one, two):
            connection.sendall(post("/v1/chat/completions", talk(STALL), Authorization="Bearer first"))
        eventually(lambda: guarded.engine.statistics.running == 2)
        status, headers, answer = asking(guarded, talk("hello", stream=stream))
        assert (status, answer["error"]["code"], answer["error"]["type"]) == (429, "queue_full", "rate_limit_error")
        assert int(headers["retry-after"]) > 0
        assert asking(guarded, talk("hello", n=2))[0] == 429
    eventually(lambda: guarded.engine.aborted == before + 2)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_who_goes_away_is_answered_no_more(running: Running, stream: bool, reset: bool, n: int) -> None:
    engine = running.engine
    aborted, finished = engine.aborted, engine.finished
    with connect(running) as connection:
        connection.sendall(post("/v1/chat/completions", talk(f"so {STALL}", stream=stream, n=n)))
        if stream:
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        eventually(lambda: engine.statistics.running == n)
        if reset:
            connection.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    eventually(lambda: engine.aborted == aborted + n)
    assert (engine.statistics.running, engine.finished) == (0, finished)


def test_who_closes_a_stream_of_the_client_is_answered_no_more(client: openai.OpenAI, running: Running) -> None:
    aborted = running.engine.aborted
    with client.chat.completions.create(
        model="talker", messages=[{"role": "user", "content": f"so {STALL}"}], stream=True
    ) as stream:
        next(iter(stream))
    eventually(lambda: running.engine.aborted == aborted + 1)


def test_who_goes_away_before_the_body_is_complete(running: Running) -> None:
    before = len(running.engine.requests)
    with connect(running) as connection:
        connection.sendall(post("/v1/chat/completions", talk("hello"))[:-1])
    with connect(running) as connection:
        connection.sendall(b"\x00\xff nonsense\r\n\r\n")
        assert until_closed(connection).startswith(b"HTTP/1.1 400")
    assert ask(running, head("/health/ready", 0, "GET"))[0] == 200
    assert len(running.engine.requests) == before


def test_what_takes_too_long_is_cut_short() -> None:
    with serving(Limits(seconds=0.05, drain=0.0)) as running:
        status, headers, answer = asking(running, talk(STALL))
        assert (status, answer["error"]["code"]) == (503, "timeout") and "retry-after" in headers
        with connect(running) as connection:
            request = post("/v1/chat/completions", talk(f"so {STALL}", stream=True), Connection="close")
            connection.sendall(request)
            got = until_closed(connection)
        assert got.startswith(b"HTTP/1.1 200") and b'"code": "timeout"' in got and b"[DONE]" not in got
        with connect(running) as connection:  # its body never comes
            connection.sendall(head("/v1/chat/completions", 10, Connection="close"))
            assert until_closed(connection).startswith(b"HTTP/1.1 503")
        eventually(lambda: running.engine.aborted == 2)


def test_sixty_four_at_once_get_their_own_answers(client: openai.OpenAI, running: Running) -> None:
    def one(number: int) -> bool:
        text = f"{number} " * (1 + number % 7)
        ask: Any = {"model": "talker", "messages": [{"role": "user", "content": text}]}
        if number % 2:
            return client.chat.completions.create(**ask).choices[0].message.content == text
        with client.chat.completions.create(**ask, stream=True) as stream:
            return "".join(chunk.choices[0].delta.content or "" for chunk in stream) == text

    with ThreadPoolExecutor(64) as pool:
        assert all(pool.map(one, range(64)))
    assert running.engine.statistics.running == 0


def test_a_line_of_the_log_for_each_request(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "opweld.serve.access")
    asking(running, talk("a confidence", max_tokens=3))
    asking(running, {}, path="/v1/%0Aforged")
    eventually(lambda: len(caplog.records) == 2)
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith('127.0.0.1 "POST /v1/chat/completions" 200 model=talker prompt=18 answer=3 ')
    assert "confidence" not in caplog.text
    assert second.startswith('127.0.0.1 "POST /v1/\\nforged" 404 ') and "\n" not in second


def test_pages_of_others_may_call_only_where_it_is_said(running: Running) -> None:
    preflight = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
    request = head("/v1/chat/completions", 0, "OPTIONS", **preflight)
    assert "access-control-allow-origin" not in ask(running, request)[1]
    with serving(keys=["k"], origins=["https://page.example"]) as open_to_page:
        with connect(open_to_page) as connection:
            connection.sendall(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            assert b"access-control-allow-origin: https://page.example" in until_closed(connection)
        other = head("/v1/models", 0, "GET", Origin="https://other.example", Authorization="Bearer k")
        status, headers, _ = ask(open_to_page, other)
        assert status == 200 and "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://other.example"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://here:3000"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "null"}, 403),
        ({"Origin": "http://other.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://page.example"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://before.a.proxy"}, 200),
        ({"Origin": "http://here"}, 200),
    ],
)
def test_pages_of_others_send_nothing(headers: dict[str, str], status: int, paged: Running) -> None:
    found, _, answer = ask(paged, post("/v1/chat/completions", talk("hello"), **headers))
    assert found == status
    if status == 403:
        said = answer["error"]["message"]
        assert "that --cors can name" in said if headers["Origin"] == "null" else f"--cors {headers['Origin']}." in said


def test_an_application_below_a_path_is_guarded_as_elsewhere() -> None:
    """As Ray Serve mounts it: the path has the prefix, which `root_path` names."""

    def below(app: ASGIApp, covers: Any) -> ASGIApp:
        async def mounting(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "root_path": "/m", "path": f"/m{scope['path']}"}, receive, send)

        return mounting

    with serving(keys=["k"], around=below) as running:
        key = {"Authorization": "Bearer k"}
        assert ask(running, head("/v1/models", 0, "GET"))[0] == 401
        assert ask(running, head("/v1/models", 0, "GET", **key))[0] == 200
        assert ask(running, post("/v1/chat/completions", talk("hello"), **key))[0] == 200
        assert ask(running, head("/v1/nothing", 0, "GET", **key))[0] == 404

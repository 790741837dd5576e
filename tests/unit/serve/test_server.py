"""Health, metrics, and how a server stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from opweld.errors import OptionError
from opweld.serve.limits import Limits
from opweld.serve.openai.models import Models, Served
from opweld.serve.server import reserve
from tests.patience import PATIENCE_S
from tests.unit.serve.fakes import STALL, FakeEngine, FakeTokenizer, Running, eventually, server_of, serving
from tests.unit.serve.raw import ask, connect, head, post, ready, until_closed


def talk(content: str, **fields: Any) -> bytes:
    body = {"model": "talker", "messages": [{"role": "user", "content": content}], **fields}
    return post("/v1/chat/completions", body, Connection="close")


def metrics(running: Running) -> dict[tuple[str, tuple[str, ...]], float]:
    """Value by name and values of labels."""
    with connect(running) as connection:
        connection.sendall(head("/metrics", 0, "GET", Connection="close"))
        got = until_closed(connection).partition(b"\r\n\r\n")[2].decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(got)
        for sample in family.samples
    }


def test_metrics() -> None:
    with serving() as running, connect(running) as waiting:
        ask(running, talk("hello"))
        ask(running, post("/v1/embeddings", {"model": "embedder", "input": "abc"}))
        ask(running, post("/v1/chat/completions", {}))
        ask(running, head("/v1/nothing", 0, "GET"))
        ask(running, head("/v1/nothing", 0, "PURGE"))
        waiting.sendall(talk(STALL))
        eventually(lambda: running.engine.statistics.running == 1)
        running.engine.statistics.blocks_in_use = 25
        found = metrics(running)
        chat = ("POST", "/v1/chat/completions")
        assert found["opweld_requests_total", (*chat, "200")] == 1
        assert found["opweld_requests_total", (*chat, "400")] == 1
        assert found["opweld_requests_total", ("GET", "other", "404")] == 1
        assert found["opweld_requests_total", ("other", "other", "404")] == 1
        assert found["opweld_prompt_tokens_total", ("talker",)] == len("user: hello") + len(f"user: {STALL}")
        assert found["opweld_prompt_tokens_total", ("embedder",)] == 3
        assert found["opweld_generated_tokens_total", ("talker",)] == 5
        assert found["opweld_cached_prompt_tokens_total", ("talker",)] == 3
        assert found["opweld_time_to_first_token_seconds_count", ("talker",)] == 1
        assert found["opweld_time_between_tokens_seconds_count", ("talker",)] == 4
        assert found["opweld_requests_running", ("talker",)] == 1
        assert found["opweld_requests_waiting", ("talker",)] == 0
        assert found["opweld_cache_used_ratio", ("talker",)] == 0.25
        waiting.close()
        eventually(lambda: metrics(running).get(("opweld_requests_total", (*chat, "499"))) == 1)


def test_a_server_whose_engine_has_failed_is_neither_ready_nor_live() -> None:
    with serving() as running:
        running.engine.closing = True
        for path in ("/health/ready", "/health/live"):
            status, _, answer = ask(running, head(path, 0, "GET"))
            assert (status, answer) == (503, {"status": "failed", path.rpartition("/")[2]: False, "models": ["talker"]})


def test_a_server_that_stops_lets_answers_finish() -> None:
    with serving(Limits(drain=PATIENCE_S)) as running, connect(running) as connection:
        connection.sendall(talk(f"so {STALL}", stream=True))
        eventually(lambda: running.engine.statistics.running == 1)
        assert ask(running, head("/health/ready", 0, "GET"))[0] == 200
        running.server.stop()
        eventually(lambda: ask(running, head("/health/ready", 0, "GET"))[0] == 503)
        assert ask(running, head("/health/live", 0, "GET"))[0] == 200
        status, headers, answer = ask(running, talk("hello"))
        assert (status, answer["error"]["code"]) == (503, "server_stopping") and "retry-after" in headers
        running.engine.release()
        assert until_closed(connection).rstrip().endswith(b"data: [DONE]\n\n\r\n0")
        running.thread.join(PATIENCE_S)
        assert not running.thread.is_alive() and running.engine.closing
        assert (running.engine.finished, running.engine.aborted) == (1, 0)


def test_it_does_not_wait_for_ever() -> None:
    with serving(Limits(drain=0.05)) as running, connect(running) as whole, connect(running) as stream:
        whole.sendall(talk(STALL))
        stream.sendall(talk(f"so {STALL}", stream=True))
        eventually(lambda: running.engine.statistics.running == 2)
        running.server.stop()
        got = until_closed(whole)
        assert got.startswith(b"HTTP/1.1 503") and b"server_stopping" in got
        got = until_closed(stream)
        assert got.startswith(b"HTTP/1.1 200") and b"server_stopping" in got and b"[DONE]" not in got
        running.thread.join(PATIENCE_S)
        assert not running.thread.is_alive() and running.engine.aborted == 2


_PROGRAM = """
import sys
from tests.unit.serve.fakes import CONTEXT, FakeEngine, FakeTokenizer, server_of
from opweld.serve.limits import Limits
from opweld.serve.openai.models import Served
from opweld.serve.server import reserve
socket = reserve("127.0.0.1", 0)
print(socket.getsockname()[1], flush=True)
engine = FakeEngine()
server_of([Served("talker", FakeTokenizer(), CONTEXT, engine=engine)], Limits(drain=1800.0)).run([socket])
print("closed" if engine.closing else "open", engine.finished, engine.aborted)
"""


def test_signals() -> None:
    """The first lets answers finish, the second does not; the process ends as one that has done its work."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _PROGRAM]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=root) as process:
        try:
            assert process.stdout is not None
            running: Any = SimpleNamespace(host="127.0.0.1", port=int(process.stdout.readline()))
            eventually(lambda: ready(running))
            with connect(running) as connection:
                connection.sendall(talk(f"so {STALL}", stream=True))
                assert connection.recv(1)
                process.send_signal(signal.SIGTERM)
                eventually(lambda: not ready(running))
                process.send_signal(signal.SIGTERM)
                until_closed(connection)
            assert process.stdout.read() == "closed 0 1\n"
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


def test_a_port_that_is_taken(running: Running) -> None:
    with pytest.raises(OptionError, match=f"cannot listen on 127.0.0.1:{running.port}: .*; choose another --port"):
        reserve("127.0.0.1", running.port)


def test_a_port_that_is_taken_meanwhile() -> None:
    engine = FakeEngine()
    server = server_of([Served("talker", FakeTokenizer(), 16, engine=engine)], Limits())
    with reserve("127.0.0.1", 0) as first, reserve("127.0.0.1", first.getsockname()[1]) as second:
        first.listen()
        with pytest.raises(OptionError, match="cannot listen: Address already in use"):
            server.run([second])
    assert engine.closing


def test_models_have_names_of_their_own() -> None:
    one = Served("one", FakeTokenizer(), 16)
    with pytest.raises(OptionError, match="two models are named 'one'"):
        Models([one, one])
    with pytest.raises(OptionError, match="no model to serve"):
        Models([])


def test_the_interface_describes_itself(running: Running) -> None:
    status, _, answer = ask(running, head("/openapi.json", 0, "GET"))
    assert status == 200 and "/v1/chat/completions" in answer["paths"] and "ChatBody" in json.dumps(answer)


def test_who_knows_no_key_does_not_see_the_schema() -> None:
    with serving(keys=["k"]) as running:
        assert ask(running, head("/openapi.json", 0, "GET"))[0] == 401
        status, _, answer = ask(running, head("/openapi.json", 0, "GET", Authorization="Bearer k"))
        assert status == 200 and "/v1/models" in answer["paths"]

"""`opweld generate`, `opweld chat` and `opweld serve`, with a model that says what it is told to."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opweld.cli import language, main, serve
from opweld.cli.conversation import Conversation
from opweld.cli.language import LanguageModel, named
from opweld.cli.speed import Speed
from opweld.errors import OptionError, UnsupportedError
from opweld.llm.encoder import Encoder
from opweld.llm.requests import Sampling
from opweld.serve import supervisor
from tests.patience import PATIENCE_S
from tests.unit.llm.encoders import saved
from tests.unit.serve.fakes import CONTEXT, STALL, FakeEngine, FakeTokenizer, eventually
from tests.unit.serve.raw import ask, head, post, ready

ROOT = Path(__file__).parents[3]

_PROGRAM = """
import sys
from dataclasses import replace
from opweld.cli import generate, language, main, serve
from tests.unit.serve.test_commands import model
def load(path, **options):
    print("load", path, sorted(options.items()), file=sys.stderr)
    return replace(model(), name=path.stem)
language.load = serve.load = load
sys.argv[0] = "opweld"
main.main()
"""


def model() -> LanguageModel:
    return LanguageModel("fake", FakeTokenizer(), FakeEngine(), CONTEXT, Sampling(), 1_000_000, 100, 8192)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", _PROGRAM, *arguments]


def environment(**variables: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables


@pytest.fixture
def opweld(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Runs a command in this process: what it writes to standard output and standard error."""

    def load(path: Path, **options: Any) -> LanguageModel:
        sys.stderr.write(f"load {path} {sorted(options.items())}\n")
        return replace(model(), name=path.stem)

    def run(*arguments: str, typed: str = "") -> tuple[str, str]:
        monkeypatch.setattr(language, "load", load)
        monkeypatch.setattr(serve, "load", load)
        monkeypatch.setattr(supervisor, "supervised", lambda *_: None)  # it would fork this process
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        main.application(arguments[:1])(list(arguments), standalone_mode=False)
        output, errors = capsys.readouterr()
        return output, errors

    return run


def test_generate(opweld: Callable[..., tuple[str, str]]) -> None:
    options = ("--max-tokens", "4", "--memory", "8G", "--threads", "2", "--precision", "int8")
    output, errors = opweld("generate", "a.gguf", "Grüße", *options)
    assert output == "Grü\n"
    asked = [("cache", None), ("context", None), ("memory", "8G"), ("precision", "int8")]
    asked += [("target", "native"), ("threads", 2)]
    assert f"load a.gguf {asked}" in errors
    assert "opweld: 7 tokens of prompt, the first of 4 after" in errors and "tokens/s" in errors


def test_generate_reads_standard_input_and_writes_json(opweld: Callable[..., tuple[str, str]]) -> None:
    output, _ = opweld("generate", "a.gguf", "-", "--chat", "--json", "-", typed="hello\x1b[2J")
    found = json.loads(output)
    assert found["text"] == "hello\x1b[2J" and found["finish"] == "stop" and found["model"] == "a"
    assert (found["prompt_tokens"], found["answer_tokens"], found["cached_tokens"]) == (15, 9, 3)
    assert found["bytes_per_token"] == 1_000_000 + 100 * (15 + 4.5)


@contextmanager
def started(*arguments: str, **variables: str) -> Generator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command(*arguments), env=environment(**variables), cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def test_ctrl_c_ends_what_is_generated() -> None:
    with started("generate", "a.gguf", f"so{STALL}") as process:
        assert process.stdout is not None and process.stdout.read(2) == "so"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130 and "the first of 2 after" in errors and "Traceback" not in errors


def test_chat_on_a_pipe(opweld: Callable[..., tuple[str, str]]) -> None:
    typed = "hello\n\n/reset\n/what\n" + "x" * CONTEXT + "\nagain\n/exit\nnever\n"
    output, errors = opweld("chat", "a.gguf", "--system", "be kind", "--max-tokens", "5", typed=typed)
    assert output == "hello\nxxxxx\nagain\n"
    assert errors.count("/reset begins anew") == 2 and "tokens of prompt" in errors


def test_ctrl_c_stops_an_answer_and_no_more() -> None:
    with started("chat", "a.gguf") as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"so{STALL}\n")
        process.stdin.flush()
        assert process.stdout.read(2) == "so"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read(1) == "\n"
        output, errors = process.communicate("then\n", timeout=PATIENCE_S)
        assert (process.returncode, output) == (0, "then\n") and "stopped" in errors


def test_a_conversation_remembers() -> None:
    fake, told = model(), list[str]()
    conversation = Conversation(fake, Sampling(limit=3), "be kind")
    asyncio.run(conversation.say("hello", told.append))
    speed = asyncio.run(conversation.say("again", told.append))
    assert "".join(told) == "helaga"
    engine = fake.engine
    assert isinstance(engine, FakeEngine)
    prompt = bytes(engine.requests[-1].prompt).decode()
    assert prompt == "system: be kind\nuser: hello\nassistant: hel\nuser: again"
    assert (speed.tokens, speed.prompt) == (3, len(prompt))
    conversation.reset()
    assert conversation.messages == [{"role": "system", "content": "be kind"}]


def test_speed_beside_bandwidth() -> None:
    times = iter([0.0, 1.0, 2.0, 3.0])
    speed = Speed(model(), 100, lambda: next(times))
    speed.count(1)
    assert speed.per_second is None and "the first of 1 after 1 s" in speed.line(None)
    speed.count(4)
    speed.count(4)
    assert speed.per_second == 4.0  # eight tokens in two seconds
    assert speed.bytes_per_token == 1_000_000 + 100 * 104.5
    assert "then 4 tokens/s, of 1.01 MB each: 50% of 0.00808 GB/s" in speed.line(8 * speed.bytes_per_token)
    assert speed.told(8 * speed.bytes_per_token)["part_of_bandwidth"] == 0.5
    assert "opweld machine" in speed.line(None)


def test_serve(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("filed\n")
    arguments = ("one.gguf", "two=other.gguf", "--port", "0", "--queue", "7", "--max-answers", "2", "--max-body", "1K")
    spans = tmp_path / "spans"
    more = ("--api-key-file", str(keys), "--trace", str(spans), "--precision", "int8")
    with started("serve", *arguments, *more, OPWELD_API_KEY="k1 k2") as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(5)]
        asked = [("cache", None), ("context", None), ("memory", None), ("precision", "int8")]
        assert f"load other.gguf {[*asked, ('queue', 7), ('threads', None)]}" in lines[2]
        assert lines[1] == ("opweld: one: weights 976.6 KiB, cache 800.0 KiB (8192 tokens), context 4096 tokens\n")
        port = int(lines[4].partition("127.0.0.1:")[2].partition("/")[0])
        running: Any = SimpleNamespace(host="127.0.0.1", port=port)
        eventually(lambda: ready(running))
        for key, status in (("k1", 200), ("k2", 200), ("filed", 200), ("k1 k2", 401)):
            assert ask(running, head("/v1/models", 0, "GET", Authorization=f"Bearer {key}"))[0] == status
        names = ask(running, head("/v1/models", 0, "GET", Authorization="Bearer k1"))[2]["data"]
        assert [one["id"] for one in names] == ["one", "two"]
        body = {"model": "two", "prompt": "hi"}
        assert ask(running, post("/v1/completions", body, Authorization="Bearer k1"))[2]["choices"][0]["text"] == "hi"
        assert ask(running, post("/v1/completions", body | {"n": 3}, Authorization="Bearer k1"))[0] == 400
        assert ask(running, post("/v1/completions", b" " * 1025, Authorization="Bearer k1"))[0] == 413
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert '"POST /v1/completions" 200 model=two prompt=2 answer=2 ' in log and "Traceback" not in log
        traced = [json.loads(line)["name"] for line in spans.read_text().splitlines()]
        assert traced.count("POST /v1/completions") == 2 and traced.count("GET /v1/models") == 4
        assert all(json.loads(line)["kind"] == "SpanKind.SERVER" for line in spans.read_text().splitlines())


def test_encoders_are_served_as_such(tmp_path: Path) -> None:
    maker, ranker = tmp_path / "maker", tmp_path / "ranker"
    saved("bert", maker)
    saved("bert", ranker, num_labels=1)
    with started("serve", str(maker), f"best={ranker}", "--port", "0", "--context", "50") as process:
        assert process.stderr is not None
        lines = [process.stderr.readline()]
        while lines[-1] and "Ctrl-C" not in lines[-1]:
            lines.append(process.stderr.readline())
        told = "".join(lines)
        assert re.search(r"opweld: maker: weights .* KiB, vectors of 32 numbers, context 50 tokens\n", told)
        assert re.search(r"opweld: best: weights .* KiB, scores pairs of texts, context 50 tokens\n", told)
        port = int(lines[-1].partition("127.0.0.1:")[2].partition("/")[0])
        running: Any = SimpleNamespace(host="127.0.0.1", port=port)
        eventually(lambda: ready(running))
        _, _, answer = ask(running, post("/v1/embeddings", {"model": "maker", "input": ["w1 w2", "w3"]}))
        right = Encoder(maker, context=50).embed(["w1 w2", "w3"])
        assert np.array_equal(np.array([one["embedding"] for one in answer["data"]], np.float32), right)
        body = {"model": "best", "query": "w1", "documents": ["w2 w3", "w4"]}
        _, _, answer = ask(running, post("/v1/rerank", body))
        encoder = Encoder(ranker, context=50)
        scores = encoder.score([encoder.pair("w1", text) for text in ("w2 w3", "w4")]).tolist()
        assert {one["index"]: one["relevance_score"] for one in answer["results"]} == dict(enumerate(scores))
        assert answer["usage"]["total_tokens"] == 6 + 5
    with pytest.raises(UnsupportedError, match=r"is an encoder \(bert\), which writes no text"):
        main.application(["generate"])(["generate", str(maker), "x"], standalone_mode=False)


def test_names_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a=b").mkdir()
    assert named(["x.gguf", "n=x.gguf", "a=b"]) == [
        (None, Path("x.gguf")),
        ("n", Path("x.gguf")),
        (None, Path("a=b")),
    ]
    for text in ("=x", "n="):
        with pytest.raises(OptionError, match="is not NAME=MODEL"):
            named([text])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serve", "m", "--max-body", "much"), "--max-body is 'much', expected a number of bytes"),
        (("serve", "m", "--api-key-file", "nowhere"), "nowhere: cannot read keys"),
        (("serve", "m", "--host", "256.0.0.1"), "cannot listen on 256.0.0.1:8000"),
        (("serve", "m.gguf", "--grpc-port", "0"), "--grpc-port is for models of tensors"),
        (("serve", "m.gguf", "m", "--workers", "2"), "--workers is 2, and m.gguf is a language model"),
        (("serve", "m", "--tls-cert", "c"), "--tls-cert and --tls-key go together"),
        (("serve", "m", "--tls-cert", "nowhere", "--tls-key", "k"), "nowhere: cannot be read"),
        (("serve", "m.gguf", "--port", "0", "m.gguf"), "two models are named 'm'"),
        (("generate", "m", "x", "--json", "nowhere/x.json"), "no such folder"),
    ],
)
def test_wrong_commands(arguments: tuple[str, ...], message: str, opweld: Callable[..., tuple[str, str]]) -> None:
    with pytest.raises(OptionError, match=re.escape(message)):
        opweld(*arguments)


@pytest.mark.parametrize(
    ("arguments", "package", "extras"),
    [
        (("serve", "m"), "fastapi", "serve"),
        (("serve", "m.gguf", "--port", "0"), "tokenizers", "llm,serve"),
        (("generate", "m", "x"), "tokenizers", "llm"),
        (("chat", "m"), "jinja2", "llm"),
    ],
)
def test_packages_that_are_missing_are_named(
    arguments: tuple[str, ...],
    package: str,
    extras: str,
    opweld: Callable[..., tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    with pytest.raises(UnsupportedError, match=re.escape(f"this needs {package}: pip install 'opweld[{extras}]'")):
        opweld(*arguments)


def test_help_loads_nothing_that_is_heavy() -> None:
    heavy = ("fastapi", "uvicorn", "torch", "tokenizers", "prometheus_client", "opweld.llm.requests", "opweld.serve")
    program = (
        "import sys, opweld.cli.main as m\n"
        "try: m.application(['serve'])(['serve', '--help'])\nexcept SystemExit: pass\n"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert answer.stderr.strip().splitlines()[-1] == "[]"

"""What the page asks of the server, and its files. tests/page has it in a browser."""

from __future__ import annotations

import asyncio
import os
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import opweld
from opweld.errors import OpweldError
from opweld.serve.inference.model import TensorSpec
from opweld.serve.limits import Limits
from opweld.serve.page import reports
from opweld.serve.page.files import POLICY
from opweld.serve.page.interface import page_interface
from opweld.serve.page.listing import listing
from opweld.serve.page.reports import Reports
from opweld.serve.refusal import Refusal
from tests.unit.serve.fakes import Running, serving
from tests.unit.serve.raw import ask, connect, head, post, until_closed
from tests.unit.serve.tensor_models import FakeRepository

STATIC = Path(opweld.__file__).parent / "serve" / "page" / "static"
KEY = {"Authorization": "Bearer k"}


def raw(running: Running, path: str) -> tuple[bytes, bytes]:
    """Head and body of an answer."""
    with connect(running) as connection:
        connection.sendall(head(path, 0, "GET", Connection="close"))
        first, _, body = until_closed(connection).partition(b"\r\n\r\n")
    return first, body


def test_files_need_no_key_and_what_they_ask_for_does() -> None:
    interface = partial(page_interface, FakeRepository(), None, Reports())
    with serving(Limits(drain=0.0), keys=["k"], interfaces=[interface]) as running:
        first, body = raw(running, "/")
        assert first.startswith(b"HTTP/1.1 200") and body == (STATIC / "index.html").read_bytes()
        assert f"content-security-policy: {POLICY}".encode() in first.lower()
        for file in STATIC.iterdir():
            first, body = raw(running, f"/static/{file.name}")
            assert first.startswith(b"HTTP/1.1 200") and body == file.read_bytes(), file.name
        for path in ("/static/none.js", "/static/..%2ffiles.py", "/static/"):
            assert raw(running, path)[0].startswith(b"HTTP/1.1 404"), path
        assert ask(running, head("/page/models", 0, "GET"))[0] == 401
        assert ask(running, post("/page/report", {"name": "simple"}))[0] == 401
        status, _, told = ask(running, head("/page/models", 0, "GET", **KEY))
        assert status == 200 and told["version"] == opweld.__version__
        assert {model["name"] for model in told["models"]} >= {"simple", "asleep", "slow"}


def test_models_are_listed_with_what_they_take_and_give() -> None:
    repository = FakeRepository()
    found = {(one["name"], one["version"]): one for one in listing(repository, None)}
    assert found["simple", "3"] == {
        "kind": "tensors", "name": "simple", "version": "3", "state": "READY", "reason": "",
        "inputs": [{"name": f"INPUT{i}", "dtype": "int32", "shape": ["batch", 16]} for i in (0, 1)],
        "outputs": [{"name": f"OUTPUT{i}", "dtype": "int32", "shape": ["batch", 16]} for i in (0, 1)],
        "max_batch": 8, "report": False,
    }  # fmt: skip
    assert found["same_BF16", "1"]["inputs"][0]["dtype"] == "bfloat16"
    assert found["same_BYTES", "1"]["inputs"][0]["dtype"] == "string"
    assert found["any_rank", "1"]["inputs"][0]["shape"] is None
    assert found["asleep", "1"]["state"] == "UNAVAILABLE" and "inputs" not in found["asleep", "1"]


def test_dims_without_a_name_have_one_each_on_the_page() -> None:
    given = [TensorSpec("a", np.dtype("f4"), ("", 3, "?")), TensorSpec("b", np.dtype("f4"), ("", "rows"))]
    model = SimpleNamespace(inputs=given, outputs=[], max_batch=0, artifact=None)
    entry = SimpleNamespace(name="m", version="1", state="READY", reason="")
    repository: Any = SimpleNamespace(index=lambda: [entry], get=lambda name, version: model)
    (told,) = listing(repository, None)
    assert [one["shape"] for one in told["inputs"]] == [["a_0", 3, "a_2"], ["b_0", "rows"]]


def test_a_model_that_goes_while_it_is_listed_is_listed_still() -> None:
    def gone(name: str, version: str = "") -> Any:
        raise Refusal(404, "gone")

    entry = SimpleNamespace(name="a", version="1", state="READY", reason="")
    repository: Any = SimpleNamespace(index=lambda: [entry], get=gone)
    (told,) = listing(repository, None)
    assert told["name"] == "a" and "inputs" not in told


def test_reports_are_made_once_and_found_by_their_tokens_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[Path] = []

    async def make(artifact: Path) -> bytes:
        await asyncio.sleep(0)
        made.append(artifact)
        return b"the report"

    monkeypatch.setattr(reports, "_report", make)
    repository = FakeRepository()
    repository.models["slow"]["1"].artifact = tmp_path
    interface = partial(page_interface, repository, None, Reports())
    with serving(Limits(drain=0.0), keys=["k"], interfaces=[interface]) as running:
        status, _, told = ask(running, post("/page/report", {"name": "slow", "version": "1"}, **KEY))
        assert status == 200 and told == ask(running, post("/page/report", {"name": "slow"}, **KEY))[2]
        assert made == [tmp_path]
        first, body = raw(running, told["path"])
        assert body == b"the report" and b"content-security-policy: sandbox allow-scripts" in first.lower()
        assert raw(running, f"{told['path']}x")[0].startswith(b"HTTP/1.1 404")
        status, _, told = ask(running, post("/page/report", {"name": "simple"}, **KEY))
        assert (status, told) == (422, {"error": "no report: simple has no artifact of its own, of which one is made"})
        assert ask(running, post("/page/report", {"name": "none"}, **KEY))[0] == 404
        assert ask(running, post("/page/report", {}, **KEY))[:3:2] == (400, {"error": "body.name: Field required"})


def test_a_report_is_made_again_of_what_has_changed_and_few_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def make(artifact: Path) -> bytes:
        await asyncio.sleep(0)
        return (artifact / "manifest.json").read_bytes()

    async def check() -> None:
        kept = Reports()
        folders = [tmp_path / str(number) for number in range(9)]
        for number, folder in enumerate(folders):
            folder.mkdir()
            (folder / "manifest.json").write_text(f"first {number}")
        first = await kept.token(folders[0])
        assert await kept.get(first) == b"first 0" and await kept.token(folders[0]) == first
        monkeypatch.setattr(reports, "_changed", lambda artifact: 7)
        assert await kept.token(folders[0]) != first
        tokens = [await kept.token(folder) for folder in folders]
        assert await kept.get(tokens[-1]) == b"first 8"
        for forgotten in (first, tokens[0]):
            with pytest.raises(Refusal, match="no such report any more"):
                await kept.get(forgotten)

    monkeypatch.setattr(reports, "_report", make)
    asyncio.run(check())


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """An artifact, and a program in the place of `opweld report`, which is given the name in $5 and the file in $7."""
    program = folder / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(reports, "sys", SimpleNamespace(executable=str(program)))
    (folder / "model.opweld").mkdir()
    return folder / "model.opweld"


def test_a_report_knows_the_name_of_its_artifact_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    artifact = stand_in(tmp_path, monkeypatch, 'echo "$5 $PWD" > "$7"')
    kept = Reports()
    assert asyncio.run(kept.get(asyncio.run(kept.token(artifact)))).decode() == f"./model.opweld {tmp_path}\n"


def test_nobody_waits_for_a_report_that_nobody_waits_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    artifact = stand_in(tmp_path, monkeypatch, f"echo $$ > {tmp_path / 'pid'}; exec sleep 1000")

    async def scenario() -> None:
        asked = asyncio.create_task(Reports().token(artifact))
        while not (pid := tmp_path / "pid").is_file() or not pid.read_text():
            await asyncio.sleep(0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)

    asyncio.run(scenario())


@pytest.mark.slow
def test_why_there_is_no_report_is_said(tmp_path: Path) -> None:
    """In a process of its own, which takes a second to begin."""
    with pytest.raises(OpweldError, match="no report: 'model' cannot be read"):
        asyncio.run(Reports().token(tmp_path / "model"))


def test_the_page_s_code_makes_no_markup_of_texts_and_asks_nobody_else() -> None:
    for path in STATIC.iterdir():
        code = path.read_text(encoding="utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert word not in code, f"{path.name}: {word}"
        asked = {url for url in re.findall(r"(?:https?:)?//[\w.-]+\.\w+", code) if "www.w3.org" not in url}
        assert not asked, f"{path.name}: {asked}"


def test_modules_of_the_page_are_there() -> None:
    for path in STATIC.glob("*.js"):
        for name in re.findall(r'from "\./(\w+\.js)"', path.read_text(encoding="utf-8")):
            assert (STATIC / name).is_file(), f"{path.name} imports {name}"

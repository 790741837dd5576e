"""Routes without a server: what their functions are given, and what is refused before."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from opweld.serve.routes import Answered, Router, UnfitError, schema_of


class Pair(BaseModel):
    first: int
    second: list[int] = []


def routes() -> list[Answered]:
    router = Router("/v9")

    @router.post("/{name}/sum")
    async def summed(name: str, body: Pair, request: Request) -> Response:
        return JSONResponse([name, body.first + sum(body.second), request.headers["content-type"]])

    @router.get("/{rest:path}", listed=False)
    async def other(rest: str) -> Response:
        return JSONResponse(rest)

    _ = summed, other
    return router.routes


def answered(path: str, body: bytes | None = None, kind: str = "application/json") -> tuple[int, Any]:
    """The status and the answer, or faults of a body that does not fit."""

    async def unfit(_: Request, error: Exception) -> Response:
        assert isinstance(error, UnfitError)
        return JSONResponse([[fault["type"], *fault["loc"]] for fault in error.faults], 422)

    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body or b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    method = "GET" if body is None else "POST"
    scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "query_string": b"", "root_path": ""}
    scope["headers"] = [(b"content-type", kind.encode())] if kind else []
    app = Starlette(routes=routes(), exception_handlers={UnfitError: unfit})
    asyncio.run(app(scope, receive, send))
    told = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], json.loads(told) if told[:1] in b'[{"' else told.decode()


def test_a_function_is_given_the_path_the_body_and_the_request() -> None:
    kind = "application/vnd.x+json; charset=utf-8"
    assert answered("/v9/n/sum", b'{"first": 1, "second": [2, 3]}', kind) == (200, ["n", 6, kind])
    assert answered("/v9/a/b/c") == (200, "a/b/c")
    assert answered("/v9/n/none", b"{}")[0] == 405
    assert answered("/v8/n")[0] == 404


@pytest.mark.parametrize(
    ("body", "kind", "faults"),
    [
        (b"{", "application/json", [["json_invalid", "body", 1]]),
        (b"", "application/json", [["missing", "body"]]),
        (b"null", "application/json", [["missing", "body"]]),
        (b"[]", "application/json", [["model_attributes_type", "body"]]),
        (b'{"first": 1}', "text/plain", [["model_attributes_type", "body"]]),
        (b'{"first": 1}', "", [["model_attributes_type", "body"]]),
        (
            b'{"second": [1, "x"]}',
            "application/json",
            [["missing", "body", "first"], ["int_parsing", "body", "second", 1]],
        ),
    ],
)
def test_bodies_that_do_not_fit(body: bytes, kind: str, faults: list[list[Any]]) -> None:
    assert answered("/v9/n/sum", body, kind) == (422, faults)


def test_a_body_that_is_no_text_is_refused() -> None:
    assert answered("/v9/n/sum", b'"\xff"') == (400, "There was an error parsing the body")
    assert answered("/v9/n/sum", b"[" * 100_000)[0] == 400


def test_a_parameter_that_nothing_gives_is_a_mistake() -> None:
    async def answer(other: str) -> Response:
        return JSONResponse(other)

    with pytest.raises(TypeError, match="other of its function"):
        Router().add("/{name}", answer)


def test_the_schema_tells_of_what_is_listed() -> None:
    told = schema_of(routes(), "title", "1")
    assert list(told["paths"]) == ["/v9/{name}/sum"] and "Pair" in told["components"]["schemas"]


def test_a_server_imports_no_fastapi() -> None:
    names = "opweld.serve.server, opweld.serve.openai.interface, opweld.serve.page.interface"
    program = f"import sys, {names}; print('fastapi' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

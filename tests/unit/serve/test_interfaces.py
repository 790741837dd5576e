"""Another protocol beside OpenAI's: its own routes and errors, the same guard."""

from __future__ import annotations

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from opweld.serve.interface import Interface
from opweld.serve.limits import Limits
from opweld.serve.metrics import Metrics
from opweld.serve.refusal import Refusal
from opweld.serve.routes import Router, UnfitError
from tests.unit.serve.fakes import serving
from tests.unit.serve.raw import ask, head, post


class Body(BaseModel):
    number: int


def refuse(refusal: Refusal) -> Response:
    return JSONResponse({"error": str(refusal)}, refusal.status)


def faults(error: UnfitError) -> Refusal:
    return Refusal(400, f"{error.faults[0]['loc'][-1]} is wrong")


def inference(limits: Limits, metrics: Metrics) -> Interface:
    router = Router(prefix="/v2")

    @router.post("/half")
    async def half(body: Body) -> Response:
        if body.number % 2:
            raise Refusal(400, "odd")
        return JSONResponse({"half": body.number // 2})

    _ = half
    return Interface("/v2", router, refuse, faults, lambda refusal: b"")


def test_two_protocols_beside_each_other() -> None:
    with serving(Limits(body=100, drain=0.0), keys=["k"], interfaces=[inference]) as running:
        key = {"Authorization": "Bearer k"}
        status, _, answer = ask(running, post("/v2/half", {"number": 8}, **key))
        assert (status, answer) == (200, {"half": 4})
        assert ask(running, post("/v2/half", {"number": 7}, **key))[2] == {"error": "odd"}
        assert ask(running, post("/v2/half", {"number": "x"}, **key))[2] == {"error": "number is wrong"}
        assert ask(running, post("/v2/half", {"number": 8}))[0] == 401
        assert ask(running, post("/v2/half", b" " * 101, **key))[2] == {
            "error": "The request is larger than 100 bytes."
        }
        assert ask(running, head("/v2/nothing", 0, "GET", **key))[2] == {"error": "Invalid URL (GET /v2/nothing)"}
        assert ask(running, head("/v1/nothing", 0, "GET", **key))[2]["error"]["type"] == "invalid_request_error"
        assert ask(running, head("/v1/models", 0, "GET", **key))[0] == 200

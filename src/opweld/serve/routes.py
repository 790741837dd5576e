"""Routes: a path, the function that answers it, and what of a request that function is given.

A function has parameters for parts of the path, of type str; for the request; and for its body, a class of pydantic's,
which is JSON. FastAPI has such routes, too, and takes a tenth of a second to import and half as long to look at them:
here it is asked for the schema alone.
"""

from __future__ import annotations

import email.message
import inspect
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

Endpoint: TypeAlias = Callable[..., Awaitable[Response]]
_E = TypeVar("_E", bound=Endpoint)


class UnfitError(Exception):
    """A request whose body does not fit. faults: as pydantic tells errors; places begin with "body"."""

    def __init__(self, faults: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(faults)
        self.faults = faults


class Router:
    """Routes below a prefix, in the order in which they are looked at."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self.routes: list[Answered] = []

    def add(self, path: str, endpoint: Endpoint, methods: Collection[str] = ("GET",), listed: bool = True) -> None:
        """Adds a route. listed: whether the schema tells of it."""
        self.routes.append(Answered(self._prefix + path, endpoint, methods, listed))

    def get(self, path: str, listed: bool = True) -> Callable[[_E], _E]:
        """Adds a function, as a decorator."""
        return self._adding(path, "GET", listed)

    def post(self, path: str, listed: bool = True) -> Callable[[_E], _E]:
        """Adds a function, as a decorator."""
        return self._adding(path, "POST", listed)

    def _adding(self, path: str, method: str, listed: bool) -> Callable[[_E], _E]:
        def add(endpoint: _E) -> _E:
            self.add(path, endpoint, [method], listed)
            return endpoint

        return add


class Answered(Route):
    """A route, whose function is given what it has parameters for.

    Attributes:
        answers: the function.
    """

    def __init__(self, path: str, endpoint: Endpoint, methods: Collection[str], listed: bool) -> None:
        super().__init__(path, self._answer, methods=methods, include_in_schema=listed)
        self.methods = {*methods}  # HEAD is no method of what answers GET
        self.answers = endpoint
        self._request = self._body = ""
        self._fields: type[BaseModel] | None = None
        for name, parameter in inspect.signature(endpoint, eval_str=True).parameters.items():
            if parameter.annotation is Request:
                self._request = name
            elif isinstance(parameter.annotation, type) and issubclass(parameter.annotation, BaseModel):
                self._body, self._fields = name, parameter.annotation
            elif name not in self.param_convertors:
                raise TypeError(f"{path}: {name} of its function is neither the request, its body, nor in the path")

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether it is a request's, and what becomes known of the request: its route, too."""
        match, known = super().matches(scope)
        return match, known if match == Match.NONE else {**known, "route": self}

    async def _answer(self, request: Request) -> Response:
        given: dict[str, Any] = dict(request.path_params)
        if self._request:
            given[self._request] = request
        if self._fields is not None:
            given[self._body] = _fitting(self._fields, await _body_of(request))
        return await self.answers(**given)


async def _body_of(request: Request) -> Any:
    """The value that a body of JSON is; the bytes of another one; None where there is none."""
    try:
        body = await request.body()
        return await request.json() if body and _is_json(request.headers.get("content-type", "")) else body or None
    except json.JSONDecodeError as error:
        place = ("body", error.pos)
        fault = {"type": "json_invalid", "loc": place, "msg": "JSON decode error", "ctx": {"error": error.msg}}
        raise UnfitError([fault]) from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "There was an error parsing the body") from error


def _is_json(content_type: str) -> bool:
    message = email.message.Message()
    message["content-type"] = content_type
    subtype = message.get_content_subtype()
    return message.get_content_maintype() == "application" and (subtype == "json" or subtype.endswith("+json"))


def _fitting(fields: type[BaseModel], body: object) -> BaseModel:
    if body is None:
        raise UnfitError([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}])
    try:
        return fields.model_validate(body, from_attributes=True)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        raise UnfitError([{**fault, "loc": ("body", *fault["loc"])} for fault in faults]) from error


def schema_of(routes: Sequence[Answered], title: str, version: str) -> dict[str, Any]:
    """What routes take, by the specification of OpenAPI."""
    from fastapi import FastAPI

    told = FastAPI(title=title, version=version)
    for route in routes:
        if route.include_in_schema:
            told.add_api_route(route.path, route.answers, methods=[*(route.methods or ())], response_model=None)
    return told.openapi()

"""Errors as OpenAI's API shapes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from opweld.serve.refusal import Refusal
from opweld.serve.routes import UnfitError

_KINDS = {429: "rate_limit_error", 500: "server_error", 503: "service_unavailable_error"}

_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a decimal",
    "bool_type": "a boolean",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "finite_number": "a finite number",
}
"""What pydantic expected, by its type of error."""

_BOUNDS = {
    "greater_than_equal": ("below", "min", ">=", "ge"),
    "less_than_equal": ("above", "max", "<=", "le"),
}


def refuse(refusal: Refusal) -> Response:
    """An error as an answer."""
    headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
    return Response(json.dumps(_body(refusal)), refusal.status, headers, "application/json")


def broken(refusal: Refusal) -> bytes:
    """An error as the last event of a stream."""
    return f"data: {json.dumps(_body(refusal))}\n\n".encode()


def _body(refusal: Refusal) -> dict[str, Any]:
    kind = _KINDS.get(refusal.status, "invalid_request_error")
    return {"error": {"message": str(refusal), "type": kind, "param": refusal.param, "code": refusal.code}}


def faults(error: UnfitError) -> Refusal:
    """What is wrong with the first field that is wrong."""
    fault: Mapping[str, Any] = error.faults[0]
    return fault_of(fault["type"], fault["loc"], fault.get("input"), fault.get("ctx") or {}, fault["msg"])


def fault_of(kind: str, loc: Sequence[str | int], given: Any, context: Mapping[str, Any], message: str) -> Refusal:
    """A fault that pydantic found, in OpenAI's words."""
    param = path_of(loc)
    if kind == "json_invalid" or not param:
        return Refusal(
            400,
            "We could not parse the JSON body of your request: it must be a JSON object, sent with the header "
            "Content-Type: application/json.",
        )

    def refused(message: str, code: str) -> Refusal:
        return Refusal(400, message, param=param, code=code)

    if kind == "missing":
        return missing(param)
    if kind == "extra_forbidden":
        return refused(f"Unknown parameter: '{param}'.", "unknown_parameter")
    if kind in _EXPECTED:
        expected = f"expected {_EXPECTED[kind]}, but got {spoken(given)} instead"
        return refused(f"Invalid type for '{param}': {expected}.", "invalid_type")
    if kind == "union_tag_not_found" or kind == "union_tag_invalid":
        return refused(f"Invalid type for '{param}': got {spoken(given)}.", "invalid_type")
    if kind == "literal_error":
        return refused(f"Invalid value: {given!r}. Supported values are: {context['expected']}.", "invalid_value")
    if kind in _BOUNDS:
        side, extreme, sign, key = _BOUNDS[kind]
        number = "integer" if isinstance(given, int) and isinstance(context[key], int) else "decimal"
        wanted = f"Expected a value {sign} {context[key]}, but got {given} instead"
        return refused(
            f"Invalid '{param}': {number} {side} {extreme}imum value. {wanted}.", f"{number}_{side}_{extreme}_value"
        )
    if kind == "too_short":
        wanted = f"Expected an array with minimum length {context['min_length']}"
        return refused(f"Invalid '{param}': empty array. {wanted}, but got an empty array instead.", "empty_array")
    if kind == "too_long":
        wanted = f"Expected an array with maximum length {context['max_length']}"
        got = f"but got an array with length {len(given)} instead"
        return refused(f"Invalid '{param}': array too long. {wanted}, {got}.", "array_above_max_length")
    return refused(f"Invalid '{param}': {message}.", "invalid_value")


def missing(param: str) -> Refusal:
    """What a request must have and has not."""
    return Refusal(400, f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")


def path_of(loc: Sequence[str | int]) -> str:
    """A place in a body as OpenAI writes it: messages[0].content. Tags of unions, in parentheses, are left out."""
    path = ""
    for part in loc[1:] if loc and loc[0] == "body" else loc:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not part.startswith("("):
            path += f".{part}" if path else part
    return path


def spoken(value: object) -> str:
    """What a value of JSON is."""
    if value is None:
        return "null"
    names = ((bool, "a boolean"), (int, "an integer"), (float, "a decimal"), (str, "a string"), (list, "an array"))
    return next((name for kind, name in names if isinstance(value, kind)), "an object")

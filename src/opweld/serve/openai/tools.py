"""Calls of tools: what a model must write to make one, and how they are found in what it writes."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from opweld.llm.requests import Grammar
from opweld.serve.openai.fields import ChatBody, Tool
from opweld.serve.refusal import Refusal

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_PYTHON = "<|python_tag|>"
_LIST = re.compile(r"^\[\s+")
_WHOLE = ("{", "[{", _PYTHON)
"""What an answer begins with that may be calls as a whole."""


@dataclass(frozen=True)
class ToolCall:
    """A call that a model made: arguments as JSON."""

    name: str
    arguments: str
    id: str = field(default_factory=lambda: f"call_{secrets.token_hex(12)}")

    def told(self) -> dict[str, Any]:
        """As OpenAI writes it."""
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


def offered(body: ChatBody) -> Sequence[Tool]:
    """The tools that the model may call."""
    tools = body.tools or ()
    if not tools and body.tool_choice not in (None, "none", "auto"):
        raise Refusal(
            400,
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
            param="tool_choice",
        )
    return () if body.tool_choice == "none" else tools


def forced(body: ChatBody, tools: Sequence[Tool]) -> Grammar | None:
    """What the answer must be where it must be a call: one of a named function, or a list of calls; None where it need
    not be."""
    choice = body.tool_choice
    if choice is None or isinstance(choice, str):
        if choice != "required":
            return None
        most = {"maxItems": 1} if body.parallel_tool_calls is False else {}
        definitions: dict[str, Any] = {}
        calls = [_call_schema(tool, definitions) for tool in tools]
        schema = {"type": "array", "minItems": 1, **most, "items": {"anyOf": calls}, "$defs": definitions}
        return Grammar("json_schema", json.dumps(schema))
    for tool in tools:
        if tool.function.name == choice.function.name:
            definitions = {}
            return Grammar("json_schema", json.dumps(_call_schema(tool, definitions) | {"$defs": definitions}))
    raise Refusal(
        400,
        f"Tool choice {choice.function.name!r} not found in 'tools' parameter.",
        param="tool_choice",
        code="invalid_value",
    )


def _call_schema(tool: Tool, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a call; what its parameters define moves to `definitions`, at the root, where references look."""
    parameters = dict(tool.function.parameters or {"type": "object", "properties": {}})
    for name, schema in parameters.pop("$defs", {}).items():
        if definitions.setdefault(name, schema) != schema:
            raise Refusal(400, f"Two tools define {name!r} differently.", param="tools", code="invalid_value")
    return {
        "type": "object",
        "properties": {"name": {"const": tool.function.name}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


class ToolReader:
    """Finds calls in an answer as it comes.

    1. `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as Hermes and Qwen write them, anywhere;
    2. `{"name": ..., "parameters": {...}}`, one or several with ; between, as Llama 3 does, as the whole answer, with
       <|python_tag|> before it or not;
    3. a list of such objects as the whole answer, which is what `forced` makes of it.

    Text is handed on as soon as it can be no part of a call. What looks like a call and is none is text.
    """

    def __init__(self, tools: Sequence[Tool], *, forced: bool = False) -> None:
        """forced: the whole answer is calls, as the grammar of `forced` says."""
        self._names = {tool.function.name for tool in tools}
        self._held = ""
        self._whole: bool | None = forced or None  # whether the whole answer may be calls: None until its first letter
        self._called = False  # whether a call came last

    def feed(self, text: str) -> Iterator[str | ToolCall]:
        """What a piece of the answer completes."""
        self._held += text
        if self._whole is None and (begun := _LIST.sub("[", self._held.lstrip())):
            if any(opening.startswith(begun) and opening != begun for opening in _WHOLE):
                return
            self._whole = begun.startswith(_WHOLE)
        if not self._whole:
            yield from self._tagged()

    def end(self) -> Iterator[str | ToolCall]:
        """What is left at the end of the answer."""
        rest, self._held = self._held, ""
        stripped = rest.strip()
        if self._whole:
            calls = self._calls(stripped.removeprefix(_PYTHON))
        elif stripped.startswith(_OPEN):  # models may end without the closing tag
            calls = self._calls(stripped.removeprefix(_OPEN), named=False)
        else:
            calls = []
        yield from calls or self._text(rest)

    def _tagged(self) -> Iterator[str | ToolCall]:
        while True:
            before, opening, rest = self._held.partition(_OPEN)
            if not opening:
                break
            inside, closing, after = rest.partition(_CLOSE)
            text = before.rstrip()
            yield from self._text(text)
            if not closing:
                self._held = before[len(text) :] + opening + rest
                return
            calls = self._calls(inside.strip(), named=False)
            if calls:
                self._called = True
                yield from calls
            else:
                yield from self._text(before[len(text) :] + opening + inside + closing)
            self._held = after
        certain = len(before) - _overlap(before.rstrip(), before)
        text, self._held = before[:certain], before[certain:]
        yield from self._text(text)

    def _text(self, text: str) -> Iterator[str]:
        """A text, without the white space that follows a call."""
        if self._called:
            text = text.lstrip()
        if text:
            self._called = False
            yield text

    def _calls(self, text: str, *, named: bool = True) -> list[ToolCall]:
        """The calls that a text consists of; none if it is anything else. named: of known functions alone."""
        calls: list[ToolCall] = []
        decoder = json.JSONDecoder()
        while text:
            try:
                value, end = decoder.raw_decode(text)
            except (ValueError, RecursionError):
                return []
            text = text[end:].lstrip().removeprefix(";").lstrip()
            values: list[object] = cast("list[object]", value) if isinstance(value, list) else [value]
            for one in values:
                call = _call_of(one)
                if call is None or (named and call.name not in self._names):
                    return []
                calls.append(call)
        return calls


def reader_of(tools: Sequence[Tool], chosen: object) -> ToolReader | None:
    """What finds calls in an answer; None where it may have none. chosen: the request's `tool_choice`."""
    return ToolReader(tools, forced=chosen not in (None, "auto")) if tools else None


def found_in(reader: ToolReader | None, text: str, *, ended: bool) -> list[str | ToolCall]:
    """The texts and calls that a piece of an answer completes; `ended`: it is the last one."""
    if reader is None:
        return [text] if text else []
    return [*reader.feed(text), *(reader.end() if ended else ())]


def _call_of(value: object) -> ToolCall | None:
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, object]", value)
    name, arguments = fields.get("name"), fields.get("arguments", fields.get("parameters", {}))
    if not isinstance(name, str) or not isinstance(arguments, (dict, str)):
        return None
    return ToolCall(name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False))


def _overlap(stripped: str, text: str) -> int:
    """How many of the last characters of a text may belong to the beginning of a call: white space, and what the
    opening tag begins with."""
    for length in range(min(len(_OPEN) - 1, len(text)), 0, -1):
        if text.endswith(_OPEN[:length]):
            return len(text) - len(text[:-length].rstrip())
    return len(text) - len(stripped)

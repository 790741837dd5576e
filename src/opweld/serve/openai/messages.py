"""Messages of a conversation as templates of models expect them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from opweld.serve.openai.errors import missing
from opweld.serve.openai.fields import Message, Tool
from opweld.serve.refusal import Refusal


def for_template(messages: Sequence[Message], field: str) -> list[dict[str, Any]]:
    """Each with its content as one text, and arguments of calls as objects. `field`: what a request calls them."""
    return [_message(message, f"{field}[{index}]") for index, message in enumerate(messages)]


def tools_for_template(tools: Sequence[Tool]) -> list[dict[str, Any]] | None:
    """Tools as templates expect them; None where there are none."""
    return [tool.model_dump(exclude_none=True) for tool in tools] or None


def _message(message: Message, param: str) -> dict[str, Any]:
    content = _content(message, param)
    if content is None and message.role != "assistant":
        raise Refusal(
            400,
            f"Invalid value for '{param}.content': expected a string, got null.",
            param=f"{param}.content",
            code="invalid_type",
        )
    if message.role == "tool" and message.tool_call_id is None:
        raise missing(f"{param}.tool_call_id")
    # Templates know no developers; OpenAI's older models take them for the system too.
    found: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": content or "",
    }
    if message.name is not None:
        found["name"] = message.name
    if message.tool_call_id is not None:
        found["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        found["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.function.name,
                    "arguments": _arguments(call.function.arguments, f"{param}.tool_calls[{index}].function.arguments"),
                },
            }
            for index, call in enumerate(message.tool_calls)
        ]
    return found


def _content(message: Message, param: str) -> str | None:
    if message.content is None:
        return message.refusal
    if isinstance(message.content, str):
        return message.content
    texts: list[str] = []
    for index, part in enumerate(message.content):
        text = {"text": part.text, "refusal": part.refusal}.get(part.type)
        if part.type not in ("text", "refusal"):
            raise Refusal(
                400,
                f"Invalid content type. {part.type} is not served: this model reads text alone.",
                param=f"{param}.content[{index}].type",
                code="invalid_value",
            )
        if text is None:
            raise missing(f"{param}.content[{index}].{part.type}")
        texts.append(text)
    return "\n".join(texts)


def _arguments(text: str, param: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Refusal(400, f"Invalid '{param}': expected a JSON object in a string.", param=param, code="invalid_value")
    return cast("dict[str, Any]", value)

"""The output of a response: messages and calls of functions, and the events by which it grows."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any

from opweld.serve.openai.tools import ToolCall

Event = dict[str, Any]


class Output:
    """Items as they come. Every method gives the events that tell of what it adds, without their numbers."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self._open = False
        """Whether the last item is a message that may go on."""

    def text(self, text: str, logprobs: Sequence[dict[str, Any]]) -> Iterator[Event]:
        """More of a message, a new one where none has begun."""
        if not self._open:
            self._open = True
            part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            item: dict[str, Any] = {
                "id": _id("msg"), "type": "message", "status": "in_progress", "role": "assistant", "content": [part],
            }  # fmt: skip
            self.items.append(item)
            yield self._event("output_item.added", item={**item, "content": []})
            yield self._of_part("content_part.added", part={**part})
        part = self.items[-1]["content"][0]
        part["text"] += text
        part["logprobs"] += logprobs
        yield self._of_part("output_text.delta", delta=text, logprobs=list(logprobs))

    def call(self, call: ToolCall) -> Iterator[Event]:
        """A call of a function, which is complete."""
        yield from self.end("completed")
        item = {
            "id": _id("fc"), "type": "function_call", "status": "completed",
            "call_id": call.id, "name": call.name, "arguments": call.arguments,
        }  # fmt: skip
        self.items.append(item)
        yield self._event("output_item.added", item={**item, "status": "in_progress", "arguments": ""})
        yield self._of_item("function_call_arguments.delta", delta=call.arguments)
        yield self._of_item("function_call_arguments.done", name=call.name, arguments=call.arguments)
        yield self._event("output_item.done", item=item)

    def end(self, status: str) -> Iterator[Event]:
        """The end of a message, if one is open."""
        if not self._open:
            return
        self._open = False
        item = self.items[-1]
        (part,) = item["content"]
        item["status"] = status
        yield self._of_part("output_text.done", text=part["text"], logprobs=part["logprobs"])
        yield self._of_part("content_part.done", part=part)
        yield self._event("output_item.done", item=item)

    def _of_part(self, kind: str, **fields: Any) -> Event:
        return self._of_item(kind, content_index=0, **fields)

    def _of_item(self, kind: str, **fields: Any) -> Event:
        return self._event(kind, item_id=self.items[-1]["id"], **fields)

    def _event(self, kind: str, **fields: Any) -> Event:
        return {"type": f"response.{kind}", "output_index": len(self.items) - 1, **fields}


def _id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(16)}"

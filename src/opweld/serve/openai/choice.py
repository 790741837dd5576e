"""One answer of a chat as OpenAI writes it: whole, or piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from opweld.llm.requests import Chosen, Delta
from opweld.serve.openai.answers import Answer
from opweld.serve.openai.fields import Tool, ToolChoice
from opweld.serve.openai.logprobs import of_chat
from opweld.serve.openai.protocols import Tokenizer
from opweld.serve.openai.tools import ToolCall, found_in, reader_of


class Choice:
    """The answer of a number: its text, and the calls of tools in it.

    A call is handed on when it is complete: who streams gets it in one piece."""

    def __init__(
        self,
        index: int,
        tokenizer: Tokenizer,
        tools: Sequence[Tool],
        *,
        chosen: ToolChoice | str | None,
        logprobs: bool,
    ) -> None:
        self._index, self._tokenizer, self._with_logprobs = index, tokenizer, logprobs
        self._reader = reader_of(tools, chosen)
        # The call of the one function that was asked for ends as any answer does.
        self._end_of_calls = "stop" if isinstance(chosen, ToolChoice) else "tool_calls"
        self._calls = 0
        self._begun = False

    def whole(self, answer: Answer) -> dict[str, Any]:
        """A complete answer."""
        found = found_in(self._reader, answer.text, ended=True)
        text = "".join(one for one in found if isinstance(one, str))
        calls = [one.told() for one in found if isinstance(one, ToolCall)]
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
        if calls:
            message["tool_calls"] = calls
        return self._choice("message", message, answer.chosen, answer.finish)

    def pieces(self, delta: Delta) -> Iterable[dict[str, Any]]:
        """What a piece of the answer adds; nothing while it may be a part of a call."""
        found = found_in(self._reader, delta.text, ended=delta.finish is not None)
        if not self._begun:
            self._begun = True
            yield self._choice("delta", {"role": "assistant", "content": "", "refusal": None}, (), None)
        chosen = delta.chosen
        for one in found:
            if isinstance(one, str):
                content = {"content": one}
            else:
                content = {"tool_calls": [{"index": self._calls, **one.told()}]}
                self._calls += 1
            yield self._choice("delta", content, chosen, None)
            chosen = ()
        if chosen and self._with_logprobs:
            yield self._choice("delta", {"content": ""}, chosen, None)
        if delta.finish is not None:
            yield self._choice("delta", {}, (), delta.finish)

    def _choice(
        self, kind: str, content: dict[str, Any], chosen: Sequence[Chosen], finish: str | None
    ) -> dict[str, Any]:
        logprobs = of_chat(chosen, self._tokenizer) if self._with_logprobs and (chosen or kind == "message") else None
        called = self._calls or "tool_calls" in content
        reason = self._end_of_calls if finish == "stop" and called else finish
        return {"index": self._index, kind: content, "logprobs": logprobs, "finish_reason": reason}

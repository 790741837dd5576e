"""A conversation with a language model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from opweld.cli.answering import answer
from opweld.cli.speed import Speed

if TYPE_CHECKING:
    from opweld.cli.language import LanguageModel
    from opweld.llm.requests import Sampling


class Conversation:
    """Messages so far. A message that has no answer is not one of them; of an answer that was stopped, what came is."""

    def __init__(self, model: LanguageModel, sampling: Sampling, system: str | None) -> None:
        self._model, self._sampling = model, sampling
        self._beginning = [] if system is None else [{"role": "system", "content": system}]
        self.messages = list(self._beginning)

    def reset(self) -> None:
        """Begins anew."""
        self.messages = list(self._beginning)

    async def say(self, text: str, tell: Callable[[str], None]) -> Speed:
        """Answers a message, telling each piece.

        Raises InputError where the conversation is longer than the model's context, or its template refuses it."""
        asked = {"role": "user", "content": text}
        tokens = self._model.tokenizer.chat([*self.messages, asked])
        speed, told = Speed(self._model, len(tokens)), list[str]()

        def heard(piece: str) -> None:
            told.append(piece)
            tell(piece)

        try:
            await answer(self._model, tokens, self._sampling, speed, heard)
        finally:
            if told:
                self.messages += [asked, {"role": "assistant", "content": "".join(told)}]
        return speed

"""Answers as they come, to a terminal or a pipe."""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opweld.cli.language import LanguageModel
    from opweld.cli.speed import Speed
    from opweld.llm.requests import Finish, Sampling

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def visible(text: str) -> str:
    """A text without what moves a terminal's cursor or changes its state: a model is untrusted."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def write(text: str) -> None:
    """Writes a piece of an answer at once: as it is to a pipe, visibly to a terminal."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


async def answer(
    model: LanguageModel, tokens: Sequence[int], sampling: Sampling, speed: Speed, tell: Callable[[str], None]
) -> Finish | None:
    """Continues a prompt, telling each piece; why it ended."""
    from opweld.llm.requests import Request

    finish = None
    async with aclosing(model.engine.generate(Request(uuid.uuid4().hex, tuple(tokens), sampling))) as pieces:
        async for delta in pieces:
            speed.count(len(delta.chosen), delta.cached)
            finish = delta.finish
            if delta.text:
                tell(delta.text)
    return finish

"""Language models: from files to a compiled model, an engine that serves many requests with it, and its interfaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opweld.llm.encoder import Encoder
    from opweld.llm.llm import LLM, Answer
    from opweld.llm.requests import Grammar, Sampling
    from opweld.llm.settings import Settings

_WHERE = {
    "LLM": "llm",
    "Answer": "llm",
    "Encoder": "encoder",
    "Grammar": "requests",
    "Sampling": "requests",
    "Settings": "settings",
}

__all__ = ["LLM", "Answer", "Encoder", "Grammar", "Sampling", "Settings"]


def __getattr__(name: str) -> Any:
    # Imported when they are asked for: what reads files of models needs no engine.
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]

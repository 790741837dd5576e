"""The models that the API has, by name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from opweld.errors import OptionError
from opweld.llm.requests import Sampling
from opweld.serve.openai.protocols import Embedder, Engine, Reranker, Tokenizer

_PLAIN = Sampling()


@dataclass(frozen=True)
class Served:
    """A model under its name.

    Attributes:
        context: the most tokens of a prompt and its answer, or of a text to embed.
        engine: continues prompts; None where the model does not.
        embedder: makes vectors; None where the model does not.
        reranker: scores pairs of a query and a text; None where the model does not.
        sampling: how tokens are chosen where a request does not say.
        created: when it was loaded, in seconds since 1970.
        embedding: held by who calls the embedder or the reranker.
    """

    name: str
    tokenizer: Tokenizer
    context: int
    engine: Engine | None = None
    embedder: Embedder | None = None
    reranker: Reranker[Any] | None = None
    sampling: Sampling = _PLAIN
    created: int = field(default_factory=lambda: int(time.time()))
    embedding: asyncio.Lock = field(default_factory=asyncio.Lock)


class Models:
    """Models by name. Raises OptionError if there is none, or two have the same."""

    def __init__(self, models: Iterable[Served]) -> None:
        self._models: dict[str, Served] = {}
        for model in models:
            if model.name in self._models:
                raise OptionError(f"two models are named {model.name!r}; name one of them with NAME=MODEL")
            self._models[model.name] = model
        if not self._models:
            raise OptionError("there is no model to serve")

    def __iter__(self) -> Iterator[Served]:
        return iter(self._models.values())

    def get(self, name: str) -> Served | None:
        """The model of this name."""
        return self._models.get(name)

    @property
    def failed(self) -> list[str]:
        """Names of models whose engine takes no requests any more."""
        return [model.name for model in self if model.engine is not None and model.engine.closing]

    async def close(self) -> None:
        """Ends all engines."""
        for model in self:
            if model.engine is not None:
                await model.engine.close(0)

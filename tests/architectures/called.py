"""A module with plain tensors in, in order, and plain tensors out, as exporters want it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import transformers

from tests.architectures import modules
from tests.architectures.architecture import Architecture


class Called(torch.nn.Module):
    """Passes its arguments by name, with those that are constants; past_key_... and past_value_... become a cache."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.names = [item.name for item in architecture.inputs]
        self.fixed = architecture.fixed
        self.by_name = bool(architecture.config)
        self.model = _build(architecture)

    def forward(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if not self.by_name:
            return tuple(_tensors(self.model(*arguments)))
        named: dict[str, Any] = dict(zip(self.names, arguments, strict=True))
        past = [named.pop(name) for name in self.names if name.startswith(("past_key_", "past_value_"))]
        if not past:
            return tuple(_tensors(self.model(**named, **self.fixed)))
        cache = transformers.DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        answer = self.model(**named, **self.fixed, past_key_values=cache, use_cache=True)
        present = [tensor for layer in answer.past_key_values.layers for tensor in (layer.keys, layer.values)]
        return (answer.logits, *present)


def _build(architecture: Architecture) -> torch.nn.Module:
    if not architecture.config:
        return getattr(modules, architecture.module)(**architecture.options)
    config = getattr(transformers, architecture.config)(**architecture.options)
    return getattr(transformers, architecture.module)(config)


def _tensors(answer: Any) -> Iterator[torch.Tensor]:
    """The tensors of an output, caches left out."""
    if isinstance(answer, torch.Tensor):
        yield answer
    elif isinstance(answer, Mapping):
        for item in answer.values():
            yield from _tensors(item)
    elif isinstance(answer, tuple | list):
        for item in answer:
            yield from _tensors(item)

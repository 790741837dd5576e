"""`Family`: a model of a library, how it is made, and what it is fed at two shapes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

Inputs = dict[str, Any]
"""Arguments of `forward` by name: tensors, or lists of tensors."""


@dataclass(frozen=True)
class Family:
    """A model. make: the module, in eval mode, and its inputs at two shapes; it raises where this library cannot."""

    source: str
    name: str
    make: Callable[[], tuple[torch.nn.Module, list[Inputs]]]


Source = Callable[[], Iterator[Family]]


def pictures(module: torch.nn.Module, shape: tuple[int, ...], batches: tuple[int, int] = (2, 3)) -> list[Inputs]:
    """Two batches of pictures, as the first argument of a module."""
    name = next(iter(inspect.signature(module.forward).parameters))
    return [{name: torch.randn(batch, *shape)} for batch in batches]

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


def shortened(module: torch.nn.Module) -> torch.nn.Module:
    """The module, in place, with the first two of blocks that follow one another and are equal but for their weights:
    every kind of block is there, and the second feeds on the first."""
    for own in list(module.modules()):
        if not isinstance(own, torch.nn.Sequential | torch.nn.ModuleList):
            continue
        made = [_kind(child) for child in own]
        for place in reversed(range(2, len(made))):
            if made[place] == made[place - 1] == made[place - 2]:
                del own[place]
    return module


def _kind(module: torch.nn.Module) -> tuple[object, ...]:
    """What two modules are equal in that differ in their weights alone."""
    return type(module), repr(module), [(name, own.shape) for name, own in module.state_dict().items()]

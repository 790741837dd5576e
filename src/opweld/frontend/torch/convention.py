"""How a compiled graph of AOTAutograd is called: which arguments feed its model, and what becomes of the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import fx

from opweld.frontend.torch.dtypes import as_array

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Literal:
    """An output that is no tensor: a number that is the same in every run, or None."""

    value: Any


@dataclass(frozen=True)
class ViewOutput:
    """An output that is a view of an argument, or of what is written to one: the index among those of `views`."""

    index: int


Returned: TypeAlias = "str | int | ViewOutput | Literal"
"""An output: the name of the model's, the position of the argument that it is, a view, or a literal."""


@dataclass(frozen=True)
class Layout:
    """The tensor that an output of the model becomes.

    Attributes:
        dtype: None for a number. order: its axes from the largest stride to the smallest; None where they are in order.
        strides: where there are holes between elements, as far as sizes are known; else None.
        moved: the device that it is on, where that is not the graph's; else None.
    """

    dtype: torch.dtype | None
    order: tuple[int, ...] | None
    strides: tuple[int, ...] | None = None
    moved: torch.device | None = None

    @classmethod
    def of(cls, meta: Any, device: torch.device = CPU) -> Layout:
        """That of a tensor without data, of a graph on a device; strides in the order that eager mode gives."""
        if not isinstance(meta, torch.Tensor):
            return cls(None, None)
        moved = None if meta.device == device else meta.device
        order = sorted(range(meta.dim()), key=lambda axis: (-hint(meta.stride(axis)), axis))
        if _has_holes(meta, order):
            return cls(meta.dtype, None, tuple(meta.stride()), moved)
        if order == sorted(order) or meta.is_contiguous():  # the former asks nothing of sizes that only data tells
            return cls(meta.dtype, None, None, moved)
        return cls(meta.dtype, tuple(order), None, moved)

    def give(self, made: np.ndarray[Any, Any] | torch.Tensor) -> Any:
        """The tensor over an array's memory, or of a dense one, with strides in order; or the number."""
        if self.dtype is None:
            return made.item()
        if isinstance(made, torch.Tensor):
            tensor = made
        elif self.dtype is torch.bfloat16:
            tensor = torch.from_numpy(made.view(np.int16)).view(self.dtype)
        else:
            tensor = torch.from_numpy(np.ascontiguousarray(made) if self.dtype.is_complex else made)
        if self.dtype.is_complex and not tensor.numel():  # PyTorch views no pairs where there are none
            tensor = torch.empty(tensor.shape[:-1], dtype=self.dtype, device=tensor.device)
        elif self.dtype.is_complex:
            tensor = torch.view_as_complex(tensor)
        if self.moved is not None:
            tensor = tensor.to(self.moved)
        if self.strides is not None:
            return torch.empty_strided(tensor.shape, self.strides, dtype=self.dtype, device=tensor.device).copy_(tensor)
        if self.order is None:
            return tensor
        return tensor.permute(self.order).contiguous().permute(self._back)

    @cached_property
    def _back(self) -> tuple[int, ...]:
        """Where each axis is in `order`: every run asks for it."""
        order = self.order or ()
        return tuple(order.index(axis) for axis in range(len(order)))


@dataclass(frozen=True, eq=False)
class CallingConvention:
    """How a graph is called as AOTAutograd calls it. It pickles.

    Attributes:
        fed: (name, position among the arguments) of the model's inputs.
        made: names of the model's outputs, in order, and the tensors that they become.
        returned: the outputs of the graph. single: whether it returns one value, not a list of values.
        mutated: (position of the argument, name of the output that is written to it).
        checks: (name of the output that has to be true, what is said where it is not).
        views: makes the outputs that are views of `bases`: names of the model's outputs, or positions of arguments.
        device: of the tensors.
    """

    fed: tuple[tuple[str, int], ...]
    made: tuple[tuple[str, Layout], ...]
    returned: tuple[Returned, ...]
    single: bool
    mutated: tuple[tuple[int, str], ...]
    checks: tuple[tuple[str, str], ...]
    views: fx.GraphModule | None
    bases: tuple[str | int, ...]
    device: torch.device = CPU

    def feeds(self, arguments: Sequence[Any]) -> dict[str, np.ndarray[Any, Any]]:
        """The model's inputs."""
        return {name: _array(arguments[position]) for name, position in self.fed}

    def tensors(self, arguments: Sequence[Any]) -> list[torch.Tensor | np.ndarray[Any, Any]]:
        """The model's inputs where they lie: numbers are arrays of the host."""
        given = (arguments[position] for _, position in self.fed)
        return [_real(value) if isinstance(value, torch.Tensor) else np.asarray(value) for value in given]

    def results(self, arguments: Sequence[Any], made: Sequence[Any]) -> list[Any]:
        """The graph's outputs, of those of the model, arrays or tensors of the device; writes to the arguments that the
        graph writes to.

        Raises RuntimeError, as PyTorch does, where the program asserts what is not true."""
        values = {name: layout.give(value) for (name, layout), value in zip(self.made, made, strict=True)}
        for name, message in self.checks:
            if not values[name]:
                raise RuntimeError(message)
        for position, name in self.mutated:
            arguments[position].copy_(values[name])
        bases = [values[base] if isinstance(base, str) else arguments[base] for base in self.bases]
        views = () if self.views is None else self.views(*bases)

        def value(item: Returned) -> Any:
            if isinstance(item, str):
                return values[item]
            if isinstance(item, int):
                return arguments[item]
            return views[item.index] if isinstance(item, ViewOutput) else item.value

        return [value(item) for item in self.returned]


def _array(value: Any) -> np.ndarray[Any, Any]:
    """A tensor as an array, over the same memory where it lies in order, complex numbers as pairs; a number as one of
    no axes."""
    return as_array(_real(value)) if isinstance(value, torch.Tensor) else np.asarray(value)


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, with pairs of numbers for complex ones."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def hint(size: Any) -> int:
    """A size, or what it was in the call that was traced."""
    return size if isinstance(size, int) else int(size.node.hint or 1)


def _has_holes(meta: torch.Tensor, order: Sequence[int]) -> bool:
    """Whether there is memory between elements, for certain: sizes and strides are numbers, and nothing overlaps.

    order: the axes from the largest stride to the smallest."""
    sizes: Sequence[int | torch.SymInt] = (*meta.shape, *meta.stride())
    if any(isinstance(size, torch.SymInt) for size in sizes):
        return False
    reached, holes = 1, False
    for axis in reversed(order):
        size, stride = meta.shape[axis], meta.stride(axis)
        if size == 1:
            continue
        if stride < reached:
            return False
        holes = holes or stride > reached
        reached = stride * size
    return holes and meta.numel() > 0

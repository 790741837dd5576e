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
    """

    dtype: torch.dtype | None
    order: tuple[int, ...] | None
    strides: tuple[int, ...] | None = None

    @classmethod
    def of(cls, meta: Any) -> Layout:
        """That of a tensor without data; strides in the order that eager mode gives."""
        if not isinstance(meta, torch.Tensor):
            return cls(None, None)
        order = sorted(range(meta.dim()), key=lambda axis: (-_size(meta.stride(axis)), axis))
        if _has_holes(meta, order):
            return cls(meta.dtype, None, tuple(meta.stride()))
        if order == sorted(order) or meta.is_contiguous():  # the former asks nothing of sizes that only data tells
            return cls(meta.dtype, None)
        return cls(meta.dtype, tuple(order))

    def give(self, array: np.ndarray[Any, Any]) -> Any:
        """The tensor over an array's memory, with strides in order; or the number."""
        if self.dtype is None:
            return array.item()
        if self.dtype is torch.bfloat16:
            tensor = torch.from_numpy(array.view(np.int16)).view(self.dtype)
        elif self.dtype.is_complex and not array.size:  # PyTorch views no pairs where there are none
            tensor = torch.empty(array.shape[:-1], dtype=self.dtype)
        elif self.dtype.is_complex:
            tensor = torch.view_as_complex(torch.from_numpy(np.ascontiguousarray(array)))
        else:
            tensor = torch.from_numpy(array)
        if self.strides is not None:
            return torch.empty_strided(tensor.shape, self.strides, dtype=self.dtype).copy_(tensor)
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
    """

    fed: tuple[tuple[str, int], ...]
    made: tuple[tuple[str, Layout], ...]
    returned: tuple[Returned, ...]
    single: bool
    mutated: tuple[tuple[int, str], ...]
    checks: tuple[tuple[str, str], ...]
    views: fx.GraphModule | None
    bases: tuple[str | int, ...]

    def feeds(self, arguments: Sequence[Any]) -> dict[str, np.ndarray[Any, Any]]:
        """The model's inputs."""
        return {name: _array(arguments[position]) for name, position in self.fed}

    def results(self, arguments: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
        """The graph's outputs, of those of the model; writes to the arguments that the graph writes to.

        Raises RuntimeError, as PyTorch does, where the program asserts what is not true."""
        values = {name: layout.give(array) for (name, layout), array in zip(self.made, arrays, strict=True)}
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
    if isinstance(value, torch.Tensor) and value.is_complex():
        value = torch.view_as_real(value.resolve_conj())
    return as_array(value) if isinstance(value, torch.Tensor) else np.asarray(value)


def _size(size: Any) -> int:
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

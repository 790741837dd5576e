"""`Compiled`: a compiled graph as AOTAutograd calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx

from opweld.compile import Model, compile
from opweld.frontend.torch.graphs import imported_graph
from opweld.frontend.torch.importer import as_array
from opweld.frontends.torch import TorchSource


class Compiled:
    """Runs a compiled graph on tensors.

    Parameters are packed into the artifact. At each call they are compared with what was packed, by identity, address
    and version; where one has changed, the graph is compiled again."""

    _boxed_call = True
    """AOTAutograd hands inputs in as one list, which the call empties."""

    def __init__(self, graph: fx.GraphModule, frozen: Mapping[int, torch.Tensor], options: Mapping[str, Any]) -> None:
        self._graph = graph
        (end,) = (node for node in graph.graph.nodes if node.op == "output")
        self.single = isinstance(end.args[0], fx.Node)
        """Whether the graph returns one value, not a list of values."""
        self._options: dict[str, Any] = {"threads": torch.get_num_threads(), **options}
        self._frozen = dict(frozen)
        self._build()

    def _build(self) -> None:
        made = imported_graph(self._graph, self._frozen)
        self._packed = [(i, t, t.data_ptr(), t._version) for i, t in self._frozen.items()]
        self._fed = made.fed
        self._returned = made.returned
        self._mutated = made.mutated
        self._views, self._bases = made.views, made.bases
        self.model: Model | None = compile(TorchSource(made.imported, None), **self._options) if made.names else None
        self._names = made.names
        self._given = [_giver(meta) for meta in made.metas]

    def __call__(self, arguments: list[Any]) -> list[Any]:
        """The outputs for a list of inputs."""
        self._check(arguments)
        values: dict[str, torch.Tensor] = {}
        if self.model is not None:
            feeds = {name: _array(arguments[position]) for name, position in self._fed}
            arrays = self.model.session.run(feeds)
            values = {name: give(array) for name, give, array in zip(self._names, self._given, arrays, strict=True)}
        for position, name in self._mutated:
            arguments[position].copy_(values[name])
        viewed: dict[fx.Node, torch.Tensor] = {}
        if self._views is not None:
            bases = [values[base] if isinstance(base, str) else arguments[base] for base in self._bases]
            viewed = dict(zip(self._views.outputs, self._views.module(*bases), strict=True))
        outputs = [
            values[item]
            if isinstance(item, str)
            else arguments[item]
            if isinstance(item, int)
            else viewed[item]
            if isinstance(item, fx.Node)
            else item.value
            for item in self._returned
        ]
        arguments.clear()
        return outputs

    def _check(self, arguments: Sequence[Any]) -> None:
        for position, packed, address, version in self._packed:
            now = arguments[position]
            if now is not packed or now.data_ptr() != address or now._version != version:
                self._frozen = {i: arguments[i] for i in self._frozen}
                self._build()
                return


def _array(value: Any) -> np.ndarray[Any, Any]:
    """A tensor as an array, over the same memory where it lies in order, complex numbers as pairs; a number as one of
    no axes."""
    if isinstance(value, torch.Tensor) and value.is_complex():
        value = torch.view_as_real(value.resolve_conj())
    return as_array(value) if isinstance(value, torch.Tensor) else np.asarray(value)


def _giver(meta: Any) -> Callable[[np.ndarray[Any, Any]], Any]:
    """Makes the tensor of an output, with strides in the order that eager mode gives; or the number that it is."""
    if not isinstance(meta, torch.Tensor):
        return lambda array: array.item()
    dtype = meta.dtype
    order = sorted(range(meta.dim()), key=lambda axis: (-_size(meta.stride(axis)), axis))

    def plain(array: np.ndarray[Any, Any]) -> torch.Tensor:
        if dtype is torch.bfloat16:
            return torch.from_numpy(array.view(np.int16)).view(dtype)
        if dtype.is_complex:
            return torch.view_as_complex(torch.from_numpy(array))
        return torch.from_numpy(array)

    if order == sorted(order) or meta.is_contiguous():  # the former asks nothing of sizes that only data tells
        return plain
    back = [order.index(axis) for axis in range(len(order))]
    return lambda array: plain(array).permute(order).contiguous().permute(back)


def _size(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint or 1)

"""`Compiled`: a compiled graph as AOTAutograd calls it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeAlias

import torch
from torch import fx
from torch._inductor.output_code import OutputCode

from opweld.compile import Model, compile
from opweld.frontend.torch.graphs import imported_graph
from opweld.frontend.torch.imported import Imported
from opweld.frontends.torch import TorchSource
from opweld.torch.saved import Saved, SavedArtifact, checksums, pickled, unpickled

Frozen: TypeAlias = Mapping[int, torch.Tensor]
"""The arguments that are parameters and buffers of modules, by position."""


class Runnable(OutputCode):
    """What AOTAutograd gets for a graph. It pickles: `aot_compile` saves nothing but an OutputCode."""

    def __init__(self) -> None:
        super().__init__()
        self._boxed_call = True  # inputs come as one list, which the call empties; wrappers look for it in the instance

    def prepare_for_serialization(self) -> None:
        """Nothing: what it pickles as says what is saved."""

    def post_compile(self, example_inputs: Sequence[Any], constants: Any, graph_kwargs: Any) -> None:
        """Nothing: what was loaded runs."""

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """Nothing: it has no Triton kernels."""

    def __copy__(self) -> Self:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return copy.copy(self)  # what it holds is replaced, never changed


def emptied(inputs: Sequence[Any]) -> list[Any]:
    """What is in a list that AOTAutograd hands in, which from now on keeps nothing alive."""
    assert isinstance(inputs, list)
    arguments = list(inputs)
    inputs.clear()
    return arguments


@dataclass(frozen=True)
class _Packed:
    """A parameter as it was packed into an artifact."""

    position: int
    tensor: torch.Tensor
    address: int
    version: int

    @classmethod
    def of(cls, position: int, tensor: torch.Tensor) -> _Packed:
        return cls(position, tensor, tensor.data_ptr(), tensor._version)

    def is_still(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is the one that was packed, with the data that it had."""
        same = tensor is self.tensor and tensor.data_ptr() == self.address
        return same and tensor._version == self.version


class Compiled(Runnable):
    """Runs a compiled graph on tensors.

    Parameters are packed into the artifact. At each call they are compared with what was packed, by identity, address
    and version; where one has changed, the graph is compiled again. One that was loaded from a file compares their
    content, at its first call: there they are other tensors."""

    def __init__(self, graph: fx.GraphModule, frozen: Frozen, options: Mapping[str, Any]) -> None:
        super().__init__()
        made = imported_graph(graph, frozen)
        self._convention = made.convention
        self._options: dict[str, Any] = {"threads": torch.get_num_threads(), **options}
        self._positions = tuple(frozen)
        self._import: Callable[[Frozen], Imported] = lambda now: imported_graph(graph, now).imported
        self._saved: Saved | None = None
        self._build(made.imported, frozen)

    @classmethod
    def _loaded(cls, saved: Saved) -> Compiled:
        made = object.__new__(cls)
        Runnable.__init__(made)
        made._convention, made._options = saved.convention, dict(saved.options)
        made._positions = tuple(saved.checksums)
        made._import = partial(unpickled, saved.graph)
        made._saved, made._packed = saved, None
        return made

    @property
    def single(self) -> bool:
        """Whether the graph returns one value, not a list of values."""
        return self._convention.single

    def _build(self, imported: Imported, frozen: Frozen) -> None:
        self._saved, self._imported = None, imported
        computes = bool(self._convention.made)
        self.model: Model | None = compile(TorchSource(imported, None), **self._options) if computes else None
        self._packed: tuple[_Packed, ...] | None = tuple(_Packed.of(i, tensor) for i, tensor in frozen.items())

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for a list of inputs."""
        arguments = emptied(inputs)
        if self._packed is None:
            self._open(arguments)
        elif not all(packed.is_still(arguments[packed.position]) for packed in self._packed):
            frozen = self._frozen(arguments)
            self._build(self._import(frozen), frozen)
        arrays = [] if self.model is None else self.model.session.run(self._convention.feeds(arguments))
        return self._convention.results(arguments, arrays)

    def _frozen(self, arguments: Sequence[Any]) -> Frozen:
        return {position: arguments[position] for position in self._positions}

    def _open(self, arguments: Sequence[Any]) -> None:
        """Opens the artifact that was saved, where it has these parameters and runs here; else compiles the graph."""
        assert self._saved is not None
        frozen, artifact = self._frozen(arguments), self._saved.artifact
        model = None if artifact is None else artifact.opened(self._options["threads"])
        if (model is None) != (artifact is None) or checksums(frozen) != self._saved.checksums:
            self._build(self._import(frozen), frozen)
            return
        self.model, self._packed = model, tuple(_Packed.of(i, tensor) for i, tensor in frozen.items())

    def __reduce__(self) -> tuple[Any, ...]:
        return Compiled._loaded, (self._saved or self._save(),)

    def _save(self) -> Saved:
        assert self._packed is not None
        frozen = {packed.position: packed.tensor for packed in self._packed}
        if not all(packed.is_still(packed.tensor) for packed in self._packed):
            self._build(self._import(frozen), frozen)
        artifact = None if self.model is None else SavedArtifact.of(self.model.path)
        graph = pickled(self._imported, frozen)
        return Saved(self._convention, self._options, artifact, graph, checksums(frozen))

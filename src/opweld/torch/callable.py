"""`Compiled`: a compiled graph as AOTAutograd calls it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Self, TypeAlias

import torch
from torch import fx
from torch._inductor.output_code import OutputCode

from opweld.compile import Model, compile
from opweld.errors import OptionError
from opweld.frontend.torch.imported import Imported
from opweld.frontends.torch import TorchSource
from opweld.options import GPUS
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


class _Packed(NamedTuple):
    """A parameter as it was packed into an artifact: its position among the arguments, the tensor, its address and
    version."""

    position: int
    tensor: torch.Tensor
    address: int
    version: int


def _packed(frozen: Frozen) -> tuple[_Packed, ...]:
    return tuple(_Packed(i, tensor, tensor.data_ptr(), tensor._version) for i, tensor in frozen.items())


def _are_still(packed: Iterable[_Packed], tensors: Sequence[Any] | Frozen) -> bool:
    """Whether tensors, by position, are those that were packed, with the data that they had: at every call."""
    for position, tensor, address, version in packed:
        now = tensors[position]
        if now is not tensor or now.data_ptr() != address or now._version != version:
            return False
    return True


def _set_target(options: dict[str, Any], device: torch.device) -> None:
    """Names the machine that tensors of a device are for. Raises OptionError where another kind is asked for."""
    if device.type != "cuda":
        return
    target = options.setdefault("target", "cuda")
    if target not in GPUS:
        raise OptionError(f"target={target!r}, but the tensors are on {device}; leave target away, or name a GPU")


class Compiled(Runnable):
    """Runs a compiled graph on tensors, of the CPU or of a GPU: that of its inputs and parameters.

    Parameters are packed into the artifact. At each call they are compared with what was packed, by identity, address
    and version; where one has changed, the graph is compiled again. One that was loaded from a file compares their
    content, at its first call: there they are other tensors."""

    def __init__(
        self,
        graph: fx.GraphModule,
        frozen: Frozen,
        options: Mapping[str, Any],
        sources: Mapping[int, str] | None = None,
    ) -> None:
        """`sources`: what inputs are called in the program, by position, where errors name them."""
        from opweld.frontend.torch.graphs import imported_graph  # the importer, which a loaded graph does not need

        super().__init__()
        made = imported_graph(graph, frozen, sources)
        self._convention = made.convention
        self._options: dict[str, Any] = {"threads": torch.get_num_threads(), **options}
        _set_target(self._options, made.convention.device)
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
        self._take(compile(TorchSource(imported, None), **self._options) if computes else None)
        self._packed: tuple[_Packed, ...] | None = _packed(frozen)

    def _take(self, model: Model | None) -> None:
        """From now on runs a model: on the GPU of its tensors, or with arrays over their memory."""
        self.model: Model | None = model
        self._on_gpu = None
        if model is not None and self._convention.device.type == "cuda":
            from opweld.torch.on_gpu import OnGpu  # the runtime of GPUs, which a graph of the CPU does not need

            self._on_gpu = OnGpu(model)

    def _run(self, arguments: Sequence[Any]) -> Sequence[Any]:
        if self._on_gpu is not None:
            return self._on_gpu.run(self._convention.tensors(arguments), self._convention.device)
        return [] if self.model is None else self.model.session.run(self._convention.feeds(arguments))

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for a list of inputs."""
        arguments = emptied(inputs)
        if self._packed is None:
            self._open(arguments)
        elif not _are_still(self._packed, arguments):
            frozen = self._frozen(arguments)
            self._build(self._import(frozen), frozen)
        return self._convention.results(arguments, self._run(arguments))

    def _frozen(self, arguments: Sequence[Any]) -> Frozen:
        return {position: arguments[position] for position in self._positions}

    def _open(self, arguments: Sequence[Any]) -> None:
        """Opens the artifact that was saved, where it has these parameters and runs here; else compiles the graph."""
        assert self._saved is not None
        frozen, artifact = self._frozen(arguments), self._saved.artifact
        model = None
        fits = checksums(frozen) == self._saved.checksums
        if fits and artifact is not None:
            model = artifact.opened(self._options["threads"])
            fits = model is not None
        if fits:
            self._take(model)
            self._packed = _packed(frozen)
        else:
            self._build(self._import(frozen), frozen)

    def __reduce__(self) -> tuple[Any, ...]:
        return Compiled._loaded, (self._saved or self._save(),)

    def _save(self) -> Saved:
        assert self._packed is not None
        frozen = {packed.position: packed.tensor for packed in self._packed}
        if not _are_still(self._packed, frozen):
            self._build(self._import(frozen), frozen)
        artifact = None if self.model is None else SavedArtifact.of(self.model.path)
        graph = pickled(self._imported, frozen)
        return Saved(self._convention, self._options, artifact, graph, checksums(frozen))

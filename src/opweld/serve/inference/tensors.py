"""A compiled model as tensors by name: what a protocol can feed, and gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from opweld.build.artifact import Manifest
from opweld.errors import UnsupportedError
from opweld.interface import Argument, Constant, Form, Listed, Mapped, Tensor, TensorInfo, Text
from opweld.options import available_cores
from opweld.runtime import dtypes
from opweld.runtime.session import Session
from opweld.runtime.structure import flattened
from opweld.serve.inference.model import Array, KernelTime, TensorSpec
from opweld.serve.inference.timed import timed_run

_TEXT = np.dtype(object)


class Tensors:
    """A session whose inputs and outputs are tensors: of a sequence x they are x[0], x[1], ...; of a list of maps the
    tensor of their values, a column for each key.

    Attributes:
        inputs, outputs: in the model's order. artifact: its folder.
    """

    def __init__(self, session: Session) -> None:
        """Raises UnsupportedError for a model that keeps values between calls."""
        manifest = session.manifest
        if manifest.states:
            names = ", ".join(repr(state.name) for state in manifest.states)
            raise UnsupportedError(
                f"the model keeps {names} from one call to the next, and these calls know nothing of each other; "
                "compile it without states, so that they are inputs and outputs"
            )
        self.artifact = session.folder
        self._session = session
        self._sessions = {session.threads or available_cores(): session}
        self.inputs, self.outputs = _inputs(manifest), _outputs(manifest)
        structure = manifest.structure
        arguments = (*structure.inputs, *structure.outputs) if structure else ()
        self._texts = any(isinstance(form, Text) for argument in arguments for form in _leaves(argument.form))

    def run(self, feeds: Mapping[str, Array], threads: int | None = None) -> list[Array]:
        """The outputs, in order, from a run of at most so many threads; None: as many as the session has. Raises as
        `Session.run`."""
        session = self._of(threads)
        return flattened(session.run(feeds)) if self._texts else session.run_tensors(feeds)

    def timed(self, feeds: Mapping[str, Array], threads: int | None = None) -> tuple[list[Array], list[KernelTime]]:
        """The outputs, and the times of kernels; of none where the backend cannot tell, or strings are numbered."""
        try:
            outputs, kernels = timed_run(self._of(threads), feeds)
        except UnsupportedError:
            return self.run(feeds, threads), []
        return flattened(outputs), kernels

    def _of(self, threads: int | None) -> Session:
        """One for each number of threads: they share the mapped weights."""
        if threads is None:
            return self._session
        if (session := self._sessions.get(threads)) is None:
            session = self._sessions[threads] = Session(self.artifact, threads=threads)
        return session


def _inputs(manifest: Manifest) -> list[TensorSpec]:
    tensors = {info.name: _spec(info) for info in manifest.inputs}
    if manifest.structure is None:
        return list(tensors.values())
    return [
        spec
        for argument in manifest.structure.inputs
        for form in _leaves(argument.form)
        if not isinstance(form, Constant)  # it may only be fed as it is, and need not be
        for spec in (_leaf(form, argument, tensors),)
    ]


def _outputs(manifest: Manifest) -> list[TensorSpec]:
    if manifest.structure is None:
        shapes = manifest.declared_shapes or tuple(info.shape for info in manifest.outputs)
        return [_spec(info, shape) for info, shape in zip(manifest.outputs, shapes, strict=True)]
    tensors = {info.name: _spec(info) for info in manifest.outputs}
    arguments = manifest.structure.outputs
    return [_leaf(form, argument, tensors) for argument in arguments for form in _leaves(argument.form)]


def _leaves(form: Form) -> Iterator[Form]:
    if isinstance(form, Listed):
        for item in form.items:
            yield from _leaves(item)
    elif form is not None:
        yield form


def _leaf(form: Form, argument: Argument, tensors: Mapping[str, TensorSpec]) -> TensorSpec:
    match form:
        case Text(numbers):
            if isinstance(argument.form, Listed):
                raise UnsupportedError(f"{argument.name!r} is a sequence of strings, which no protocol feeds")
            return TensorSpec(argument.name, _TEXT, tensors[numbers].shape)
        case Tensor(name) | Mapped(name):
            return tensors[name]
        case Constant(dtype, shape, _):
            return TensorSpec(argument.name, dtypes.numpy_dtype(dtype), shape)
        case _:
            raise AssertionError(form)


def _spec(info: TensorInfo, shape: Sequence[int | str] | Any | None = ...) -> TensorSpec:
    found = info.shape if shape is ... else shape
    # Some exporters write a size of -1 for a free dim.
    sizes = None if found is None else tuple("" if isinstance(size, int) and size < 0 else size for size in found)
    return TensorSpec(info.name, dtypes.numpy_dtype(info.dtype), sizes)

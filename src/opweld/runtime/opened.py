"""An open artifact as a session sees it: arrays in, arrays out; each backend has its own. Imports NumPy only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np

from opweld.build.artifact import Manifest
from opweld.errors import AssumptionError, UnsupportedError
from opweld.groups import free_memory
from opweld.runtime import dtypes
from opweld.runtime.feed import check_shape
from opweld.runtime.plan import Array, Entered, PlanDescription, Seen
from opweld.runtime.profile import Clocked
from opweld.runtime.state import State

Kinds: TypeAlias = "Sequence[tuple[tuple[int, ...], np.dtype[Any]]]"
"""Shape and dtype of each output."""

Choose: TypeAlias = Callable[[Kinds, Sequence[Array]], "list[Array | None]"]
"""Returns the arrays to which outputs of these kinds are written, for these inputs; None for a new one."""


class Opened(ABC):
    """An artifact opened by a backend's runtime. Thread-safe.

    All methods take one array for each input, in the model's order, of its dtype, C-contiguous. The session handles
    feeds by name, strings, sequences and callers' buffers; the runtime chooses variants, allocates memory and starts
    kernels.

    Attributes:
        folder: of the artifact. manifest: its description. threads: maximum of a run, 0 for all processors.
        dtypes: of the inputs. ranks: of the inputs; -1 for any.
        has_dynamic_control_flow: whether a size, a branch or the end of a loop depends on data.
        takes_gpu_arrays: whether `run_on_gpu` runs it.
    """

    takes_gpu_arrays = False

    def __init__(self, folder: Path, manifest: Manifest, threads: int) -> None:
        self.folder, self.manifest, self.threads = folder, manifest, threads
        self.dtypes: tuple[np.dtype[Any], ...] = tuple(dtypes.numpy_dtype(info.dtype) for info in manifest.inputs)
        self.ranks = tuple(-1 if info.shape is None else len(info.shape) for info in manifest.inputs)
        self.has_dynamic_control_flow = False

    @abstractmethod
    def run(self, arrays: list[Array], shapes: list[Any]) -> list[Array]:
        """The outputs, as new arrays. `shapes` are those of `arrays`, not checked yet; a list that may be changed.

        Raises InputError for a shape that the model does not declare, AssumptionError when no variant accepts these,
        OpweldError naming the node when a kernel meets a bad index."""
        ...

    def run_on_gpu(self, values: Sequence[Any]) -> list[Any]:
        """The outputs, as new arrays on the GPU where inputs lie: arrays of any library that hands them out by DLPack
        or `__cuda_array_interface__`, and arrays of the host among them."""
        self._refuse("takes no arrays on a GPU")

    def run_into(self, arrays: list[Array], choose: Choose) -> list[Array]:
        """The outputs, written into the arrays that `choose` returns."""
        made = self.run(arrays, [array.shape for array in arrays])
        targets = choose([(array.shape, array.dtype) for array in made], arrays)
        for target, array in zip(targets, made, strict=True):
            if target is not None:
                target[...] = array
        return [array if target is None else target for target, array in zip(targets, made, strict=True)]

    def check(self, arrays: list[Array]) -> None:
        """Raises the errors of `run` for shapes that do not fit."""
        self.run(arrays, [array.shape for array in arrays])

    @abstractmethod
    def fits(self, arrays: list[Array]) -> bool:
        """Whether some variant accepts these shapes; for dynamic control flow, of the first segment."""
        ...

    def new_state(self, shapes: Sequence[tuple[int, ...]]) -> State:
        """The values of `manifest.states`, which live between runs; `shapes` of their memory, capacities included.

        Raises InputError where there is no memory, UnsupportedError where the backend keeps nothing."""
        self._refuse("keeps nothing between runs")

    def run_state(self, arrays: list[Array], state: State) -> list[Array]:
        """The outputs of a run that finds what the one before it kept in a state of this artifact, and writes it.

        Raises what `run` does, StateError where another run has the state or it is lost."""
        self._refuse("keeps nothing between runs")

    def bind_state(self, arrays: list[Array], state: State) -> Callable[[], list[Array]]:
        """Runs as `run_state` with these arrays, to be called again and again; see `Session.bind`."""
        return lambda: self.run_state(arrays, state)

    def clocked_state(self, arrays: list[Array], state: State) -> tuple[list[Array], PlanDescription, Clocked]:
        """Like `run_state`, with the plan of the run and the clocks of its steps. Raises UnsupportedError too if not
        available."""
        self._refuse("does not support timing of steps")

    def free_memory(self) -> int:
        """Bytes that nobody uses of the memory that states and runs take."""
        return free_memory()

    def plan(self, arrays: list[Array]) -> PlanDescription:
        """The plan of `run` for these: output shapes, memory, steps. Raises UnsupportedError if not available."""
        self._refuse("does not support plans")

    def clocked(self, arrays: list[Array]) -> tuple[list[Array], Clocked]:
        """The outputs, and the clocks of every step. Raises UnsupportedError if not available."""
        self._refuse("does not support timing of steps")

    def watch(self, arrays: list[Array], seen: Seen, entered: Entered | None) -> list[Array]:
        """The outputs, while `seen` is shown the memory of steps; see `Session.watch`. Raises UnsupportedError if not
        supported."""
        self._refuse("does not support watching its memory")

    def denormal_steps(self, arrays: list[Array]) -> tuple[int, ...]:
        """The steps of a run that compute with denormal numbers; see `Session.denormal_steps`."""
        return ()

    def check_shapes(self, arrays: Sequence[Array]) -> None:
        """Raises InputError for a shape that the model does not declare."""
        for info, rank, array in zip(self.manifest.inputs, self.ranks, arrays, strict=True):
            check_shape(info.name, array.shape, rank, info.shape)

    def explained(self, error: AssumptionError, arrays: Sequence[Array], state: State | None = None) -> AssumptionError:
        """The error, with what does not fit: the inputs, or what is left of a state's capacity."""
        fed = zip(self.manifest.inputs, arrays, strict=True)
        text = f"{error}; the inputs are {', '.join(f'{info.name} {array.shape}' for info, array in fed)}"
        if state is not None and state.in_use:
            text += f"; of the states are in use: {state.in_use}; state.copy(capacity=N) makes one with more room"
        return AssumptionError(text)

    def _refuse(self, what: str) -> NoReturn:
        raise UnsupportedError(
            f"what the backend {self.manifest.backend!r} compiles {what}; compile the model for another target"
        )

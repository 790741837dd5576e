"""What a model of tensors is to a protocol."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class TensorSpec:
    """An input or output.

    Attributes:
        dtype: of its elements; object where they are strings: `str` or `bytes` in a feed, `str` in a result.
        shape: sizes, and names of dims that a call chooses; None where the model does not even fix the rank.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str, ...] | None

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether an array of this shape may be it."""
        if self.shape is None:
            return True
        if len(shape) != len(self.shape):
            return False
        for size, declared in zip(shape, self.shape, strict=True):  # a loop: this is done for each input of each call
            if size != declared and not isinstance(declared, str):
                return False
        return True


@dataclass(eq=False, slots=True)
class Call:
    """A request, beside its tensors.

    Attributes:
        id: as the client named it, or the server.
        outputs: the names of those that it wants; None for all.
        deadline: when its answer is worth nothing any more, as `time.monotonic` counts seconds; None: never.
        begun: when it came, by the same clock.
        observer: is told of the run that answers it; None: nobody is.
    """

    id: str = ""
    outputs: Sequence[str] | None = None
    deadline: float | None = None
    begun: float = field(default_factory=time.monotonic)
    observer: Observer | None = None


class Observer(Protocol):
    """Follows a call."""

    @property
    def wants_kernels(self) -> bool:
        """Whether the kernels of its run are to be timed."""
        ...

    def ran(self, run: Run) -> None:
        """A run has ended, with an answer or an error. Called before `TensorModel.infer` returns, in its event loop."""
        ...


@dataclass(frozen=True)
class KernelTime:
    """A kernel in a run.

    Attributes:
        name, phase: as `opweld profile` has them.
        begin, end: of its first piece and of its last one, in nanoseconds since the run began.
        flops, bytes: operations of floats and summed products of integers, and the least bytes read and written.
    """

    name: str
    phase: int
    begin: int
    end: int
    flops: int
    bytes: int


@dataclass(eq=False, slots=True)
class Run:
    """A run of compiled code, which answers one call or several.

    Attributes:
        begun, ended: as `time.monotonic_ns` counts.
        rows: of its batch; 1 where the model takes none.
        calls: that it answers.
        kernels: in the order of the plan; empty where no observer wanted them, or the model cannot tell.
    """

    begun: int
    ended: int
    rows: int
    calls: Sequence[Call]
    kernels: Sequence[KernelTime] = ()


@dataclass(frozen=True)
class Statistics:
    """What a model did since it was loaded.

    Attributes:
        calls, failures: that ended with an answer, and with an error. refused: that were not begun.
        runs: of the compiled code, each of which answers one call or several. rows: of the batches of all runs.
        waited_ns, computed_ns: the time that calls spent waiting, and in runs; summed over those with an answer.
        last_ns: when the last call ended, in nanoseconds since 1970; 0: none did.
        waiting, running: calls at this moment.
    """

    calls: int = 0
    failures: int = 0
    refused: int = 0
    runs: int = 0
    rows: int = 0
    waited_ns: int = 0
    computed_ns: int = 0
    last_ns: int = 0
    waiting: int = 0
    running: int = 0


class TensorModel(Protocol):
    """A version of a model, loaded."""

    @property
    def name(self) -> str:
        """That clients ask for."""
        ...

    @property
    def version(self) -> str:
        """A positive number, as text."""
        ...

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """In the model's order."""
        ...

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """In the model's order."""
        ...

    @property
    def max_batch(self) -> int:
        """The most rows of one run, where calls are put together along the first dim; 0 where they are not."""
        ...

    @property
    def statistics(self) -> Statistics:
        """What it did so far."""
        ...

    @property
    def artifact(self) -> Path | None:
        """The folder of its compiled code; None where it has not one of its own."""
        ...

    async def infer(self, feeds: Mapping[str, Array], call: Call) -> Mapping[str, Array]:
        """The outputs that a call asks for, by name, in the model's order. Cancelling it gives up its place.

        The arrays of `feeds` may be views of a request's body: they are read until this returns, and never written.

        Raises InputError where feeds do not fit, QueueFull where too many wait, LateError where the deadline cannot be
        met, ClosedError where the model is being unloaded, RunError where the run fails."""
        ...


@dataclass(frozen=True)
class Entry:
    """A version of a model, as the repository lists it.

    Attributes:
        state: UNAVAILABLE, LOADING, UNLOADING or READY. reason: why it is unavailable.
    """

    name: str
    version: str
    state: str
    reason: str = ""


class Repository(Protocol):
    """Models by name and version."""

    def get(self, name: str, version: str = "") -> TensorModel:
        """A loaded model; the newest of its loaded versions where none is named.

        Raises Refusal of status 404 where there is no such model or version, 400 where it is not loaded."""
        ...

    def versions(self, name: str) -> Sequence[str]:
        """Loaded versions of a model, the oldest first. Raises as `get`."""
        ...

    def index(self) -> Sequence[Entry]:
        """All that it knows, loaded or not, by name and version."""
        ...

    async def load(self, name: str) -> None:
        """Loads what the folder of a model holds now, whether it was loaded before or not; calls that run meanwhile end
        on what they began with. If it fails, what was loaded stays.

        Raises Refusal of status 404 where there is no such model, and what opening or compiling it raises."""
        ...

    async def statistics(self, models: Sequence[TensorModel]) -> Sequence[Statistics]:
        """What each of some of its models did, in all processes that serve it."""
        ...

    async def unload(self, name: str) -> None:
        """Takes no more calls for a model, and forgets it when those that there are have ended. Raises as `get`."""
        ...

    @property
    def failed(self) -> Sequence[str]:
        """Names of models that only a new process mends."""
        ...

    async def close(self) -> None:
        """Ends all models. Calls have some seconds to end; what goes on longer ends with the process."""
        ...

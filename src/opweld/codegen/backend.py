"""What a backend brings: how programs become kernels for its machines, and which files of an artifact hold them.

Everything between a simplified tensor program and a file belongs to the backend: what is computed together, where
values are stored, how kernels are scheduled, and the code. The pipeline hands over programs and gets back what an
artifact records of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:  # a backend is asked for its toolchain before it is known whether anything is to be compiled
    from opweld.ledger import Ledger
    from opweld.record import BufferEntry, KernelEntry
    from opweld.schedule.expected import Expected
    from opweld.schedule.schedule import Schedule
    from opweld.stages import Form, Stage
    from opweld.target import TargetMachine
    from opweld.tensor.flow import Ending
    from opweld.tensor.program import Guard, Persistent, PutWeights, TensorProgram

Code = TypeVar("Code")
"""A backend's own representation of a compiled program, opaque to the pipeline."""

BuildProgress: TypeAlias = Callable[[int, int], None]
"""Takes (parts done, parts in all)."""


@dataclass(frozen=True, eq=False)
class Compiled(Generic[Code]):
    """A tensor program as a backend compiled it.

    Attributes:
        name, guards: of the program: this variant of a segment runs where the guards hold.
        code: what the backend writes to files.
        kernels, buffers: the kernels in the order in which they run, and the memory between them, as the artifact
            records them.
        schedules: how each region is computed, by variant and label of the region; empty where nothing is chosen.
    """

    name: str
    guards: tuple[Guard, ...]
    code: Code
    kernels: tuple[KernelEntry, ...]
    buffers: tuple[BufferEntry, ...]
    schedules: Mapping[tuple[str, str], Schedule]


@dataclass(frozen=True, eq=False)
class CompiledSegment(Generic[Code]):
    """A compiled segment: its variants, what each does at its end, and the values that are dead after it. `inputs` and
    the outputs of variants are names of the environment."""

    inputs: tuple[str, ...]
    variants: tuple[Compiled[Code], ...]
    endings: tuple[Ending, ...]
    dead: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class CompiledModel(Generic[Code]):
    """All variants of a model, and how a run goes from one to the next, see `tensor.flow`.

    Attributes:
        inputs, outputs: names of the model's tensors. results: the outputs' names in the environment.
        segments: the first one is where a run begins. weights_bytes: of the weights file.
        zero_denormals: whether the user lets numbers below the smallest normal one count as 0.
        states: the values that live between runs.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    results: tuple[str, ...]
    segments: tuple[CompiledSegment[Code], ...]
    weights_bytes: int
    zero_denormals: bool = False
    states: tuple[Persistent, ...] = ()

    @property
    def variants(self) -> tuple[Compiled[Code], ...]:
        """The variants of all segments."""
        return tuple(variant for segment in self.segments for variant in segment.variants)


class Backend(ABC):
    """A way from tensor programs to something that runs. It is cheap to import; its `stages` are imported when called.

    Attributes:
        name: as the manifest calls it; by that name a session finds what opens the artifact, see `runtime.runtimes`.
        targets: names of the machines it compiles for, as users give them; facts of one are a `TargetMachine`.
    """

    name: str
    targets: tuple[str, ...]

    @abstractmethod
    def target(self, name: str) -> TargetMachine:
        """The facts of a machine of `targets`. Raises OptionError where this one cannot be found out."""
        ...

    @abstractmethod
    def stages(self) -> Stages[Any]:
        """The stages that compile for these machines."""
        ...

    def toolchain(self) -> str:
        """The name and version of the compiler that `Stages.write` calls: a part of the cache's keys. Raises
        ToolchainError where it is missing."""
        return ""


class Stages(ABC, Generic[Code]):
    """The stages of a backend. They are called through `stage`, so that they can be dumped, verified, timed by name.

    Attributes:
        forms: texts and verifiers of what they make, by name of the stage.
        beginnings: what to tell the user when a stage begins for the first time, by its name, in order.
        building: what to tell while `write` goes on.
    """

    forms: Mapping[str, Form] = MappingProxyType({})
    beginnings: Mapping[str, str] = MappingProxyType({})
    building: str = "building"

    def preparing(self, target: Any) -> AbstractContextManager[None]:
        """A context around a compilation, from before the model is read until its artifact is written. In it may be
        built, in the background, what `write` needs for every model."""
        return nullcontext()

    @abstractmethod
    def compile(
        self,
        program: TensorProgram,
        inputs: Sequence[str],
        target: Any,
        expected: Expected,
        ledger: Ledger,
        weights: PutWeights,
        stage: Stage,
    ) -> Compiled[Code]:
        """A program as code. Every choice is put to the ledger, with a baseline that is always legal.

        Args:
            target: what `Backend.target` gave.
            program: one variant of a segment, simplified.
            inputs: names of what the segment is given, in order: those of the program and maybe others.
            expected: the sizes to choose for; every other size that the guards allow must be right, too.
            weights: takes the images of constants, as the backend wants them laid out."""
        ...

    @abstractmethod
    def write(
        self, model: CompiledModel[Code], target: Any, folder: Path, stage: Stage, progress: BuildProgress
    ) -> tuple[str, ...]:
        """Writes the files of an artifact that only this backend knows into the empty `folder`; decides nothing.

        Returns the names of those that a run needs: their digests are kept, and a damaged one is found.
        Raises ToolchainError when a compiler rejects something."""
        ...

"""A compiled module before it is text: kernels in order of launch, the memory they use, and how shapes are bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from opweld.tensor.dim import ZERO, Dim
from opweld.tensor.dtype import DType
from opweld.tensor.flow import LAST, Ending
from opweld.tensor.program import Guard, Input, Persistent, SymbolSource
from opweld.tile.tile import Kernel


@dataclass(frozen=True)
class Memory:
    """A piece of memory. `index`: which input or output it is. `offset`: bytes from the start of the weights file
    (constant). `size` in bytes (arena); `first` and `last` are the phases between which an arena piece lives."""

    kind: Literal["input", "output", "constant", "arena"]
    index: int = -1
    offset: int = -1
    size: Dim | None = None
    first: int = 0
    last: int = 0
    name: str = ""


@dataclass(frozen=True)
class StateMemory:
    """A value that lives between runs: which input it is, and how long it is after a run; None where a run replaces
    all of it."""

    index: int
    length: Dim | None


@dataclass(frozen=True, eq=False)
class Launch:
    """A kernel and the memory its buffers are bound to; `work` estimates nanoseconds on one core. `bytes` must be moved
    at least, `flops` are computed: operations of floats, and summed products of integers. Launches of one `phase`
    do not depend on each other: they run at the same time.

    `kernel.sizes` are bound to `sizes`: symbols of the variant, in the same order (identical kernels are shared between
    launches, so a kernel's own symbols may be other ones)."""

    kernel: Kernel
    memory: tuple[int, ...]
    sizes: tuple[Dim, ...]
    work: Dim
    bytes: Dim = ZERO
    flops: Dim = ZERO
    serial: bool = False
    origin: tuple[str, ...] = ()
    phase: int = 0


@dataclass(frozen=True, eq=False)
class ModuleVariant:
    """What runs when the guards hold. Launches are in order of their phases. `names` are those of the outputs."""

    name: str
    inputs: tuple[Input, ...]
    symbols: tuple[SymbolSource, ...]
    guards: tuple[Guard, ...]
    memory: tuple[Memory, ...]
    launches: tuple[Launch, ...]
    outputs: tuple[tuple[DType, tuple[Dim, ...]], ...]
    names: tuple[str, ...] = ()
    states: tuple[StateMemory, ...] = ()


@dataclass(frozen=True, eq=False)
class Segment:
    """What runs between two decisions: its variants, with what each does at its end, and the names that nothing reads
    after it. `inputs` are names of the environment, and so are the names of the variants' outputs."""

    inputs: tuple[str, ...]
    variants: tuple[ModuleVariant, ...]
    endings: tuple[Ending, ...]
    dead: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class Module:
    """Everything of one artifact but its weights. `results` are the outputs' names in the environment."""

    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    results: tuple[str, ...]
    segments: tuple[Segment, ...]
    weights_bytes: int
    cpu_features: tuple[str, ...]
    zero_denormals: bool = False
    """Whether the processor takes denormal numbers for 0 while the module runs."""
    states: tuple[Persistent, ...] = ()
    """What lives between runs; the inputs that they are come after those that are fed, and before their lengths."""

    @staticmethod
    def straight(
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        variants: tuple[ModuleVariant, ...],
        weights: int,
        features: tuple[str, ...],
    ) -> Module:
        """A module of one segment."""
        segment = Segment(inputs, variants, (LAST,) * len(variants), ((),) * len(variants))
        return Module(inputs, outputs, outputs, (segment,), weights, features)

    @property
    def variants(self) -> tuple[ModuleVariant, ...]:
        """The variants of all segments."""
        return tuple(variant for segment in self.segments for variant in segment.variants)

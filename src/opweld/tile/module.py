"""A compiled module before it is text: kernels in order of launch, the memory they use, and how shapes are bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from opweld.tensor.dim import ZERO, Dim
from opweld.tensor.dtype import DType
from opweld.tensor.program import Guard, Input, SymbolSource
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


@dataclass(frozen=True, eq=False)
class Launch:
    """A kernel and the memory its buffers are bound to; `work` estimates nanoseconds on one core. `bytes` must be moved
    at least, `flops` are computed. Launches of one `phase` do not depend on each other: they run at the same time.

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
class Variant:
    """What runs when the guards hold. Launches are in order of their phases."""

    name: str
    inputs: tuple[Input, ...]
    symbols: tuple[SymbolSource, ...]
    guards: tuple[Guard, ...]
    memory: tuple[Memory, ...]
    launches: tuple[Launch, ...]
    outputs: tuple[tuple[DType, tuple[Dim, ...]], ...]


@dataclass(frozen=True, eq=False)
class Module:
    """Everything of one artifact but its weights."""

    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    variants: tuple[Variant, ...]
    weights_bytes: int
    cpu_features: tuple[str, ...]

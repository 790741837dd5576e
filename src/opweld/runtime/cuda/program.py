"""A compiled model as data: what its kernels are given, in which order they run, and where values lie.

The backend writes it as `cuda.json` beside the machine code; `opened.py` binds it to shapes and runs it. Imports NumPy
only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from opweld.runtime.cuda.sizes import Size
from opweld.runtime.flow import Flow
from opweld.typed import decoded, plain

PROGRAM = "cuda.json"
"""The file of an artifact."""

KERNELS = "kernels.py"
"""The text of its kernels."""


@dataclass(frozen=True)
class Code:
    """A kernel as machine code.

    Attributes:
        name: of the function in `KERNELS`. entry: of the one in the cubin. cubin: the file.
        warps: of a program. shared: bytes of shared memory of a program.
        registers, spills: of a thread; bytes that it spills.
        parameters: (name, type) of each in order; those that the compiler added are null.
    """

    name: str
    entry: str = ""
    cubin: str = ""
    warps: int = 4
    stages: int = 2
    shared: int = 0
    registers: int = 0
    spills: int = 0
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Argument:
    """What a kernel is given: a buffer by its number, the word of run-time errors, or a size.

    Attributes:
        name: of the parameter. kind: "buffer", "error" or "size". buffer: its number. size: its value.
        wide: whether the size has 64 bits.
    """

    name: str
    kind: str
    buffer: int = -1
    size: Size = ""
    wide: bool = False


@dataclass(frozen=True)
class Launch:
    """A step of a run. `kind`:

    "kernel": a launch of `code` with a grid and arguments, which the account calls `name`; `errors` are messages by the
        number that it reports, less 1.
    "copy": bytes from one buffer to another, from an offset in each.
    "loop": `body` so many times (`count`), the symbol `symbol` counting from 0.
    "host": the function `function` of `tensor.externs` on the processor: `buffers` are its operands and results,
        `numbers` and `rows` as the function takes them.
    """

    kind: str
    origin: tuple[str, ...] = ()
    code: str = ""
    name: str = ""
    grid: tuple[Size, ...] = ()
    arguments: tuple[Argument, ...] = ()
    errors: tuple[str, ...] = ()
    buffers: tuple[int, ...] = ()
    offsets: tuple[Size, ...] = ()
    bytes: Size = ""
    symbol: str = ""
    count: Size = ""
    body: tuple[int, ...] = ()
    function: str = ""
    numbers: tuple[Size, ...] = ()
    rows: Size = ""


@dataclass(frozen=True)
class Buffer:
    """A piece of memory.

    Attributes:
        name: of the value that owns it. dtype: of its elements. elements: how many there are.
        kind: "input", "output", "state", "constant" or "arena". index: which input, output or state; where a constant
            lies.
        first, last: the first and the last step that uses it.
    """

    name: str
    dtype: str
    elements: Size
    kind: str
    index: int = 0
    first: int = 0
    last: int = 0


@dataclass(frozen=True)
class Fed:
    """An input or output of a variant: its name, dtype and shape."""

    name: str
    dtype: str
    shape: tuple[Size, ...]


@dataclass(frozen=True)
class Kept:
    """A value that lives between runs: the input that it is, with the shape of its memory, and its shape after a
    run."""

    before: Fed
    after: tuple[Size, ...]


@dataclass(frozen=True)
class Source:
    """Where a symbol comes from, see `tensor.program.SymbolSource`."""

    symbol: str
    input: str
    position: int
    by_value: bool
    divisor: int
    least: int | None
    reason: str


@dataclass(frozen=True)
class Assumption:
    """What must hold of sizes, see `tensor.program.Guard`."""

    kind: str
    size: Size
    reason: str


@dataclass(frozen=True)
class Variant:
    """A variant of a segment. `steps` are those of a run in order; those of loops stand in `inner`, from where bodies
    name them. What lives between runs is in `states`, and neither an input nor an output."""

    name: str
    inputs: tuple[Fed, ...]
    outputs: tuple[Fed, ...]
    symbols: tuple[Source, ...]
    assumptions: tuple[Assumption, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Launch, ...]
    inner: tuple[Launch, ...] = ()
    states: tuple[Kept, ...] = ()

    @property
    def sizes_by_value(self) -> bool:
        """Whether elements of inputs tell sizes."""
        return any(source.by_value for source in self.symbols)


@dataclass(frozen=True)
class Program:
    """A model: its variants by name, its kernels by name, how segments follow each other, and the architecture of the
    machine code, 90 for sm_90; 0 where there is none."""

    variants: Mapping[str, Variant]
    codes: Mapping[str, Code]
    flow: Flow
    architecture: int = 0

    def dumps(self) -> str:
        """The text for `loads`."""
        return json.dumps(plain(self), ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def loads(cls, text: str, where: str) -> Program:
        """The program that `dumps` wrote. Raises ArtifactError for other text; `where` names its source."""
        return decoded(cls, text, where)

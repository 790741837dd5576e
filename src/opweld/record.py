"""What was compiled: the nodes as the file has them, and the kernels with what they were predicted to take.

An artifact keeps it as `graph.json`, so that `opweld explain` can say what became of a node without the ONNX file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from opweld.errors import ArtifactError
from opweld.typed import decoded, plain

QUANTISED = "opweld.quantised"
"""The key of a node's metadata in the file that says what quantising it costs."""


@dataclass(frozen=True)
class FileNode:
    """A node of the file.

    Attributes:
        name: as in the file; where that is empty, what the compiler calls it.
        operator: with its domain where that is not ONNX's.
        inputs, outputs: names of values; "" for what is left out.
        source: file:line of the program that the exporter saw; "" where it recorded none.
        body: the name of the node in whose body it stands; "" in the graph itself.
        called: what the compiler calls the nodes that stand for it, as decisions and kernels do.
        reached: whether a compiled variant holds one of them.
        known: whether its results are known without running the model, from constants and sizes.
        weights: the stored tensors that it reads and that count as parameters.
        quantised: its precision and what that costs, as `opweld quantize` says in the file; "" where nobody does.
    """

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: str = ""
    body: str = ""
    called: tuple[str, ...] = ()
    reached: bool = False
    known: bool = False
    weights: tuple[str, ...] = ()
    quantised: str = ""


Size: TypeAlias = int | str
"""A number, or a polynomial of symbolic sizes as `tensor.parse.parse_size` reads it."""


@dataclass(frozen=True)
class Costs:
    """What computing something takes: operations, see `tensor.cost.Count`, and bytes.

    Attributes:
        flops: of floats, `special` ones included: divisions, roots and transcendental functions.
        macs: products that are summed; each is two flops. integer: operations on integers and bools.
        read, written: bytes, each value once.
    """

    flops: Size = 0
    macs: Size = 0
    special: Size = 0
    integer: Size = 0
    read: Size = 0
    written: Size = 0


@dataclass(frozen=True)
class NodeEntry:
    """A node before anything is fused, by what the compiler calls it: its costs, whether it is a kernel (`launches` 1)
    or only says otherwise where elements lie (0), and the bytes of the values that it gives."""

    name: str
    costs: Costs
    launches: int = 1
    values: Size = 0


@dataclass(frozen=True)
class Predicted:
    """What a kernel is predicted to take at the expected sizes.

    Attributes:
        arithmetic, dependency, traffic, launch: seconds on one core, see `schedule.cost.Cost`.
        l2, l3, dram: bytes that come to the first-level cache, from the third level, from memory.
    """

    arithmetic: float = 0.0
    dependency: float = 0.0
    traffic: float = 0.0
    launch: float = 0.0
    l2: float = 0.0
    l3: float = 0.0
    dram: float = 0.0


@dataclass(frozen=True)
class KernelEntry:
    """A kernel: its region as schedules files name it, the graph nodes that it computes, and what was predicted of it
    at the expected sizes: seconds on one core, bytes that it must move, operations (of floats, and summed products of
    integers). `constants`: of each that it reads, where it lies among the artifact's weights, and its bytes.
    `computes`: what its products are of, whose peak they are held against: fp32, bf16, tf32, int8."""

    name: str
    region: str
    nodes: tuple[str, ...]
    phase: int
    seconds: float
    bytes: int
    flops: int
    constants: tuple[tuple[int, int], ...] = ()
    costs: Costs = Costs()
    predicted: Predicted = Predicted()
    computes: str = "fp32"

    @property
    def weights(self) -> int:
        """Bytes of the constants that it reads."""
        return sum(size for _, size in self.constants)


@dataclass(frozen=True)
class BufferEntry:
    """Memory of an intermediate value: its bytes, the phases between which it lives, the nodes that make it."""

    name: str
    bytes: Size
    first: int
    last: int
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SymbolEntry:
    """Where a symbolic size comes from: dim `position` of an input, or with `by_value` its element there, divided by
    `divisor`. `dim`: what the model calls it; "" where it has no name."""

    input: str
    position: int
    by_value: bool = False
    divisor: int = 1
    dim: str = ""


@dataclass(frozen=True)
class VariantEntry:
    """A compiled variant of a segment, the sizes that it was expected to run at, and its kernels in order.

    `next` is the segment that follows it; none after the last. `symbols` tell where sizes come from. `nodes` are those
    that it was lowered from, `buffers` what lies in the arena. `indexed`: by integer input, the sizes of the axes
    that its elements choose along, of those that are a number or one of `symbols`."""

    name: str
    segment: int
    sizes: Mapping[str, int]
    kernels: tuple[KernelEntry, ...]
    next: int | None = None
    symbols: Mapping[str, SymbolEntry] = field(default_factory=dict[str, SymbolEntry])
    nodes: tuple[NodeEntry, ...] = ()
    buffers: tuple[BufferEntry, ...] = ()
    indexed: Mapping[str, tuple[Size, ...]] = field(default_factory=dict[str, "tuple[Size, ...]"])


@dataclass(frozen=True)
class Record:
    """A model that was compiled. `outputs` are the values that it gives, as the file names them; `parameters` the
    elements and bytes of each stored tensor that counts as some."""

    nodes: tuple[FileNode, ...] = ()
    outputs: tuple[str, ...] = ()
    variants: tuple[VariantEntry, ...] = ()
    parameters: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, "tuple[int, int]"])

    @property
    def usual(self) -> tuple[VariantEntry, ...]:
        """The variants that a run of the model takes, in short: the likeliest of each segment, one after another; of a
        loop, its body once and what leaves it."""
        found: list[VariantEntry] = []
        number: int | None = min((variant.segment for variant in self.variants), default=None)
        while number is not None:
            left = [v for v in self.variants if v.segment == number and v not in found]
            if found and found[-1].segment == number:  # the body of a loop was there
                left = [variant for variant in left if variant.next != number]
            if not left:
                break
            found.append(left[0])
            number = left[0].next
        return tuple(found)

    def dumps(self) -> str:
        """As text, a node or a variant a line."""
        lines = ",\n".join(json.dumps(plain(node)) for node in self.nodes)
        variants = ",\n".join(json.dumps(plain(variant)) for variant in self.variants)
        head = f'"outputs": {json.dumps(self.outputs)},\n"parameters": {json.dumps(self.parameters)}'
        return f'{{{head},\n"nodes": [\n{lines}\n],\n"variants": [\n{variants}\n]}}\n'

    @classmethod
    def loads(cls, text: str) -> Record:
        """The record that `dumps` wrote. Raises ArtifactError when `text` is something else."""
        found = decoded(cls, text, "graph.json")
        if not found.variants:
            raise ArtifactError("graph.json is a record of no kernels; compile the model again")
        for variant in found.variants:
            if any(symbol.divisor < 1 for symbol in variant.symbols.values()):
                raise ArtifactError("graph.json divides a size by less than 1; compile the model again")
        return found

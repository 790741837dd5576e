"""The description of a flow of tensor programs: inputs, outputs, nodes, parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from opweld.frontend.program import Description, Shape
from opweld.interface import ModelMetadata, TensorInfo
from opweld.record import FileNode
from opweld.tensor.dim import Dim, Symbol
from opweld.tensor.dtype import DType
from opweld.tensor.flow import Flow
from opweld.tensor.program import Constant, Extern, Item, Scan, TensorProgram, item_inputs, item_outputs


def described(flow: Flow, name: str) -> tuple[Description, tuple[FileNode, ...], dict[str, tuple[int, int]]]:
    """The description of a flow, its nodes, and elements and bytes of its parameters by name.

    A node is all items of one origin, or an item without an origin; nodes that variants have in common are listed
    once."""
    programs = [program for own in flow.segments for program in own.programs]
    parameters = {
        constant.name: (math.prod(constant.shape), math.prod(constant.shape) * constant.dtype.bytes)
        for program in programs
        for constant in program.constants
        if _is_parameter(constant)
    }
    nodes = {node.name: node for program in reversed(programs) for node in _nodes(program, frozenset(parameters))}
    inputs = tuple(TensorInfo(name, *_declared(_as_input(flow, name))) for name in flow.inputs)
    outputs = tuple(TensorInfo(public, *_declared(_as_output(flow, name))) for public, name in flow.outputs)
    shown = tuple(info.shape for info in outputs)
    description = Description(inputs, outputs, shown, ModelMetadata(graph=name), len(nodes))
    return description, tuple(nodes.values()), parameters


def _is_parameter(constant: Constant) -> bool:
    """As for ONNX files: floats, and integers of 8 bits or fewer; no scalars."""
    dtype = constant.dtype
    return bool(constant.shape) and (dtype.is_float or (dtype.bytes == 1 and dtype is not DType.BOOL))


def _nodes(program: TensorProgram, parameters: frozenset[str]) -> Iterator[FileNode]:
    groups: dict[str, list[Item]] = {}
    for item in program.items:
        groups.setdefault(item.origin[0], []).append(item)
    for name, items in groups.items():
        made = tuple(output for item in items for output in item_outputs(item))
        read = dict.fromkeys(value for item in items for value in item_inputs(item) if value not in made)
        weights = tuple(value for value in read if value in parameters)
        yield FileNode(name, _operator(items[-1]), tuple(read), made, called=(name,), reached=True, weights=weights)


def _operator(item: Item) -> str:
    if isinstance(item, Extern):
        return item.function
    return "scan" if isinstance(item, Scan) else "tensor"


def _as_input(flow: Flow, name: str) -> Iterator[tuple[DType, tuple[Dim, ...]]]:
    for own in flow.segments:
        for program in own.programs:
            yield from ((value.dtype, value.shape) for value in program.inputs if value.name == name)


def _as_output(flow: Flow, name: str) -> Iterator[tuple[DType, tuple[Dim, ...]]]:
    """The type of a value of the environment at the end of a run: from the program that defines it, or the value moved
    to it."""
    names = {name}
    for own in flow.segments:
        for ending in own.endings:
            names |= {value for to, value in ending.moves if to == name and ending.next is None}
    for own in flow.segments:
        for program in own.programs:
            yield from (program.signatures[value] for public, value in program.outputs if public in names)
            yield from ((value.dtype, value.shape) for value in program.inputs if value.name in names)


def _declared(found: Iterator[tuple[DType, tuple[Dim, ...]]]) -> tuple[str, Shape | None]:
    """The common dtype and shape of a value, from those in different variants."""
    seen = list(found)
    shapes = [shape for _, shape in seen]
    dtype = str(seen[0][0].numpy)
    if len({len(shape) for shape in shapes}) > 1:
        return dtype, None
    return dtype, tuple(map(_common, zip(*shapes, strict=True)))


def _common(dims: Sequence[Dim]) -> int | str:
    """A size, or the name of the symbol that a dim is; "" for other dims, or if variants differ."""
    names = {dim.constant if dim.constant is not None else _symbol_name(dim) for dim in dims}
    return names.pop() if len(names) == 1 else ""


def _symbol_name(dim: Dim) -> str:
    return dim.atom.name if isinstance(dim.atom, Symbol) else ""

"""The description of a model: names, declared shapes, metadata, the files it refers to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from opweld import ir
from opweld.frontend.interface import interface_of, name_of
from opweld.frontend.output_shapes import Library, declared_shapes
from opweld.frontend.program import Description, Shape
from opweld.frontend.segment import Variant
from opweld.interface import Argument, ModelMetadata, Structure, Tensor, TensorInfo, Text
from opweld.tensor.dim import Dim


def describe(
    segments: Sequence[Sequence[Variant]],
    dims: Mapping[str, int],
    metadata: ModelMetadata,
    structure: Structure | None = None,
    library: Library | None = None,
) -> Description:
    """The description of an explored graph, with `dims` fixed.

    Inputs are as declared except for these dims. Element types of outputs are the inferred ones, since declarations may
    be missing or wrong; so are sizes. A dynamic size has its declared name, else that of the input's dim that it
    equals, as onnxruntime infers it. The shapes that callers see are from `output_shapes.py`, which calls a library;
    with fixed dims they are the inferred ones. `structure`: how callers see values that are not numeric
    tensors."""
    graph = segments[0][0].graph
    fed = interface_of(graph, dims).facts
    ends = [variant for own in segments for variant in own if variant.ending.next is None]
    inputs = tuple(
        TensorInfo(value.name or "", str(fed[value].dtype.numpy), _fixed(value, fed[value].shape))
        for value in graph.inputs
    )
    outputs = tuple(
        TensorInfo(
            value.name or "",
            str(ends[0].facts[ends[0].resolve(value)].dtype.numpy),
            _merged(value.shape, _inferred(value, ends, graph.inputs)),
        )
        for value in graph.outputs
    )
    shown = tuple(info.shape for info in outputs)
    if library is not None and not dims:
        declared = [value.shape for value in graph.outputs]
        shown = declared_shapes([info.name for info in outputs], declared, shown, library)
    if structure is not None:
        structure = replace(
            structure,
            inputs=_with_shapes(structure.inputs, inputs),
            outputs=_with_shapes(structure.outputs, [replace(o, shape=s) for o, s in zip(outputs, shown, strict=True)]),
        )
    return Description(inputs, outputs, shown, metadata, sum(1 for _ in graph.all_nodes), structure)


def _fixed(value: ir.Value, fed: Sequence[Dim]) -> Shape | None:
    """The declared shape of an input, with fixed sizes."""
    if value.shape is None:
        return None
    return tuple(name if dim.constant is None else dim.constant for name, dim in zip(value.shape, fed, strict=True))


def _inferred(value: ir.Value, ends: Sequence[Variant], inputs: Sequence[ir.Value]) -> Shape | None:
    """The sizes of an output and the names of dynamic ones, "" without a name; None if its rank varies.

    The candidate names of a dim are those that all final variants have in common."""
    common: list[list[int | str]] | None = None
    for variant in ends:
        names = _names(variant, inputs)
        found: list[list[int | str]] = [
            [*([] if dim.constant is None else [dim.constant]), *names.get(dim, ())]
            for dim in variant.facts[variant.resolve(value)].shape
        ]
        if common is None:
            common = found
        elif len(common) != len(found):
            return None
        else:
            common = [[name for name in mine if name in own] for mine, own in zip(common, found, strict=True)]
    return None if common is None else tuple(next(iter(names), "") for names in common)


def _names(variant: Variant, inputs: Sequence[ir.Value]) -> dict[Dim, list[str]]:
    """The declared names of the inputs' dims by their values in a variant."""
    names: dict[Dim, list[str]] = {}
    for value in inputs:
        fact = variant.facts.get(value)
        for declared, dim in zip(value.shape or (), fact.shape if fact is not None else (), strict=False):
            name = name_of(declared)
            if name is not None:
                names.setdefault(dim, []).append(name)
    return names


def _merged(declared: Shape | None, inferred: Shape | None) -> Shape | None:
    """The shape of an output: inferred sizes, then declarations, then inferred names."""
    if declared is None or inferred is None or len(declared) != len(inferred):
        return declared if inferred is None else inferred
    return tuple(
        size if isinstance(size, int) or not known or (isinstance(known, int) and known < 0) else known
        for known, size in zip(declared, inferred, strict=True)
    )


def _with_shapes(arguments: Sequence[Argument], tensors: Sequence[TensorInfo]) -> tuple[Argument, ...]:
    """The arguments that are tensors with the shapes of these."""
    shapes = {info.name: info.shape for info in tensors}

    def shaped(argument: Argument) -> Argument:
        match argument.form:
            case Tensor(name) | Text(name) if name in shapes:
                return replace(argument, shape=shapes[name])
            case _:
                return argument

    return tuple(map(shaped, arguments))

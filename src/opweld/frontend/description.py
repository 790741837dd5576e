"""What a model says about itself: names, declared shapes, metadata, the files it refers to."""

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
    """The description of a graph that was explored, of which `dims` were fixed.

    Inputs are as declared but for these dims. Element types of outputs are those that are computed, as models may leave
    them out, or err in them; so are sizes. A size that varies has the name that is declared, else that of the dim of an
    input that it equals, as onnxruntime infers it. Programs are told what `output_shapes.py` says, which asks a
    library; but where dims were fixed, they asked for sizes. `structure`: how callers see what is no numeric
    tensor."""
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
    told = tuple(info.shape for info in outputs)
    if library is not None and not dims:
        declared = [value.shape for value in graph.outputs]
        told = declared_shapes([info.name for info in outputs], declared, told, library)
    if structure is not None:
        structure = replace(
            structure,
            inputs=_with_shapes(structure.inputs, inputs),
            outputs=_with_shapes(structure.outputs, [replace(o, shape=s) for o, s in zip(outputs, told, strict=True)]),
        )
    return Description(inputs, outputs, told, metadata, sum(1 for _ in graph.all_nodes), structure)


def _fixed(value: ir.Value, fed: Sequence[Dim]) -> Shape | None:
    """What is declared of an input, with the sizes that were fixed."""
    if value.shape is None:
        return None
    return tuple(name if dim.constant is None else dim.constant for name, dim in zip(value.shape, fed, strict=True))


def _inferred(value: ir.Value, ends: Sequence[Variant], inputs: Sequence[ir.Value]) -> Shape | None:
    """The sizes of an output and the names of those that vary, "" where there is none; None where its rank varies.

    What a dim may be called is what all variants in which the model ends agree on."""
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
    """The declared names of the inputs' dims by what they are in a variant."""
    names: dict[Dim, list[str]] = {}
    for value in inputs:
        fact = variant.facts.get(value)
        for declared, dim in zip(value.shape or (), fact.shape if fact is not None else (), strict=False):
            name = name_of(declared)
            if name is not None:
                names.setdefault(dim, []).append(name)
    return names


def _merged(declared: Shape | None, inferred: Shape | None) -> Shape | None:
    """The shape of an output: sizes that are computed, then what is declared, then names that are inferred."""
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

"""What a model says about itself: names, declared shapes, metadata, the files it refers to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import onnx_ir as ir

from opweld.frontend.onnx import STRUCTURE
from opweld.frontend.segment import Variant
from opweld.interface import ModelMetadata, Structure, TensorInfo
from opweld.ops.fact import Fact


@dataclass(frozen=True)
class Description:
    """Inputs and outputs as declared, metadata, the number of nodes with bodies of control flow included, and how
    callers see inputs and outputs where some are no tensors."""

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    metadata: ModelMetadata
    nodes: int
    structure: Structure | None


def describe(model: ir.Model, segments: Sequence[Sequence[Variant]]) -> Description:
    """The description of a loaded model. Element types are those that are computed: models may leave an output's out,
    or err in it."""
    graph = model.graph
    structure = cast("Structure | None", model.meta[STRUCTURE])
    first = segments[0][0]
    last = next(variant for own in segments for variant in own if variant.ending.next is None)
    metadata = ModelMetadata(
        producer=model.producer_name or "",
        graph=graph.name or "",
        domain=model.domain or "",
        description=model.doc_string or "",
        graph_description=graph.doc_string or "",
        version=model.model_version or 0,
        custom=dict(model.metadata_props),
    )
    return Description(
        tuple(_info(value, first.facts[value]) for value in graph.inputs),
        tuple(_info(value, last.facts[last.resolve(value)]) for value in graph.outputs),
        metadata,
        sum(1 for _ in graph.all_nodes()),
        structure,
    )


def _info(value: ir.Value, fact: Fact) -> TensorInfo:
    shape: tuple[int | str, ...] | None = None
    if value.shape is not None:
        shape = tuple(dim if isinstance(dim, int) else (dim.value or "") for dim in value.shape)
    return TensorInfo(value.name or "", str(fact.dtype.numpy), shape)


def external_files(model: Any) -> tuple[str, ...]:
    """The files beside an ONNX file that hold its weights, by relative name."""
    if not isinstance(model, str | Path):
        return ()
    import onnx
    from onnx.external_data_helper import uses_external_data

    from opweld.frontend.check import tensors_of

    proto = onnx.load_model(str(model), load_external_data=False)
    found = {
        entry.value
        for tensor in tensors_of(proto)
        if uses_external_data(tensor)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return tuple(sorted(found))

"""The flow of a compiled model as a file of an artifact, for runtimes that walk it in Python (`runtime/flow.py`)."""

from __future__ import annotations

from typing import Any

from opweld.codegen.backend import CompiledModel
from opweld.runtime import dtypes
from opweld.runtime.flow import Flow, OpenedVariant, Segment, Stack
from opweld.tensor.flow import Ending


def flow_of(model: CompiledModel[Any]) -> Flow:
    """Which segments follow each other, and what happens in between; what runs in them is the backend's."""
    segments = tuple(
        Segment(
            segment.inputs,
            tuple(map(_variant, (v.name for v in segment.variants), segment.endings, segment.dead)),
        )
        for segment in model.segments
    )
    return Flow(model.inputs, model.results, segments)


def _variant(name: str, ending: Ending, dead: tuple[str, ...]) -> OpenedVariant:
    stacks = tuple(Stack(stack.name, dtypes.NAMES[stack.dtype.onnx], stack.dims) for stack in ending.stacks)
    return OpenedVariant(name, -1 if ending.next is None else ending.next, stacks, ending.appends, ending.moves, dead)

"""The front ends that there are, in the order in which they are asked, and what each takes.

Importing this loads none of the libraries that read models: what is in the cache opens without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from opweld.errors import ModelTypeError
from opweld.foreign import of_object
from opweld.frontends.onnx import onnx_source
from opweld.frontends.source import Source
from opweld.frontends.tensors import tensor_source

FrontEnd: TypeAlias = Callable[[object], Source | None]
"""The source that an object is, ready to be read; None for an object that is another front end's."""

FRONT_ENDS: Sequence[FrontEnd] = (tensor_source, onnx_source)


def source_of(model: object) -> Source:
    """The model as the first front end takes it that knows what it is; a source is one already.

    Raises ModelTypeError for what none takes, which says what to do about it; ModelError for a model that is wrong on
    its face."""
    if isinstance(model, Source):
        return model
    for front_end in FRONT_ENDS:
        found = front_end(model)
        if found is not None:
            return found
    foreign = of_object(model)
    if foreign is not None:
        raise ModelTypeError(f"the model is {foreign}")
    raise ModelTypeError(
        f"model is of type {type(model).__name__}, expected the path of an ONNX file, its bytes, or a ModelProto; "
        "or a TensorProgram"
    )

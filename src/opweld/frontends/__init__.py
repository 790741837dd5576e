"""The list of front ends, in the order in which they are tried.

Importing this loads no library that reads models, because cached artifacts open without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from opweld.errors import ModelTypeError, OptionError
from opweld.foreign import of_object
from opweld.frontends.estimators import estimator_source
from opweld.frontends.onnx import onnx_source
from opweld.frontends.source import Source
from opweld.frontends.tensors import tensor_source
from opweld.frontends.torch import module_source, torch_source

FrontEnd: TypeAlias = Callable[[object], Source | None]
"""Makes the source of an object; returns None for an object of another front end."""

FRONT_ENDS: Sequence[FrontEnd] = (tensor_source, torch_source, estimator_source, onnx_source)


def source_of(model: object) -> Source:
    """The source of a model from the first front end that recognises it; a source is returned as it is.

    Raises ModelTypeError, with a remedy, for an object that none recognises; ModelError for a model that is malformed
    at first sight."""
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


def example_source(model: object, example_inputs: Any, dynamic_shapes: Any = None) -> Source:
    """The source of a model of which examples tell what it takes: a PyTorch module, or an estimator and its rows.

    Raises ModelTypeError for anything else, OptionError for sizes of an estimator, of which the rows are dynamic."""
    found = estimator_source(model, example_inputs)
    if found is None:
        return module_source(model, example_inputs, dynamic_shapes)
    if dynamic_shapes is not None:
        raise OptionError("dynamic_shapes is for a PyTorch module; an estimator takes any number of rows")
    return found

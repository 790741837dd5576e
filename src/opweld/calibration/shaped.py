"""A model that is run on samples: compiled for the shapes of the first, and for all where another sample has others.

Code for sizes that are known takes half as long to make as code for any, and runs faster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
from numpy.typing import NDArray

from opweld.calibration.progress import Progress
from opweld.compile import Model
from opweld.compile import compile as compile_model

Array = NDArray[Any]
Shapes = dict[str, tuple[int, ...]]


class Shaped:
    """A model, compiled when it is first run."""

    def __init__(self, model: onnx.ModelProto, progress: Progress | None) -> None:
        self._model = model
        self._progress = progress
        self._shapes: Shapes | None = None
        self._fixed: Model | None = None
        self._any: Model | None = None

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Any]:
        """What the model answers. Raises what compiling and running raise."""
        shapes: Shapes = {name: array.shape for name, array in feeds.items()}
        if self._fixed is None:
            self._shapes = shapes
            self._fixed = compile_model(fixed(self._model, shapes), progress=self._progress)
        if shapes == self._shapes:
            return self._fixed.run(feeds)
        if self._any is None:
            self._any = compile_model(self._model, progress=self._progress)
        return self._any.run(feeds)


def fixed(model: onnx.ModelProto, shapes: Shapes) -> onnx.ModelProto:
    """A copy whose inputs have these shapes."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for value in made.graph.input:
        if value.name in shapes and value.type.HasField("tensor_type"):
            declared = value.type.tensor_type.shape
            del declared.dim[:]
            for size in shapes[value.name]:
                declared.dim.add(dim_value=size)
    for value in made.graph.output:  # what follows from the inputs may have another name than is declared
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    del made.graph.value_info[:]
    return made

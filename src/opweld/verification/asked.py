"""What is asked of a model, held against what its file declares: before anything is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx

from opweld.build.artifact import MANIFEST
from opweld.errors import OptionError
from opweld.frontend.onnx import declaration_of
from opweld.interface import ANONYMOUS, Argument, TensorInfo
from opweld.runtime import dtypes
from opweld.runtime.feed import check_shape
from opweld.verification.inputs import Given, given_array


def check_asked(model: Path, given: Mapping[str, Given], dims: Mapping[str, int], seed: int = 0) -> None:
    """Refuses inputs and sizes that an ONNX file has not; says nothing of an artifact, which is opened at once.

    Args:
        model: the path of either.
        given: by input name, arrays or texts, as for `make_inputs`.
        dims: sizes of symbolic dims by name.
        seed: of made-up inputs.

    Raises OptionError for a name that the model does not have, or a text that is no value; InputError for a file that
    holds no array, or one of another rank or size; ModelError for a file that is no model.
    """
    if (model / MANIFEST).is_file():
        return
    if seed < 0:
        raise OptionError(f"seed is {seed}, expected a whole number of at least 0")
    inputs = declaration_of(model)[0].inputs
    tensors = {value.name: value for value in inputs if value.type.startswith("tensor(")}
    others = [value.name for value in inputs if value.name not in tensors]
    for name, text in given.items():
        if name in tensors:
            _check_value(tensors[name], text, dims)
        elif name not in others and name.rpartition("[")[0] not in others:  # the tensors of a sequence x are x[0], ...
            names = ", ".join(value.name for value in inputs)
            raise OptionError(f"--input {name!r}: the model's inputs are {names}")
    declared = {dim for value in inputs for dim in (value.shape if value.shape is not None else (-1,))}
    known = {dim for dim in declared if isinstance(dim, str) and dim.strip() not in ANONYMOUS}
    if others or len(known) < sum(isinstance(dim, str) or dim < 0 for dim in declared):
        return  # dims may get their names while the model is read
    for name in dims:
        if name not in known:
            raise OptionError(f"--dim {name!r}: the inputs' symbolic dims are {', '.join(sorted(known)) or 'none'}")


def _check_value(value: Argument, text: Given, dims: Mapping[str, int]) -> None:
    code = onnx.TensorProto.DataType.Value(value.type.removeprefix("tensor(").removesuffix(")").upper())
    if code in dtypes.NAMES:
        array = given_array(TensorInfo(value.name, dtypes.NAMES[code], value.shape), text, dims)
        check_shape(value.name, array.shape, -1 if value.shape is None else len(value.shape), value.shape)

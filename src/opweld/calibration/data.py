"""The samples that a model is looked at with: a folder of arrays, an iterable of dicts, or random ones if asked."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import onnx
from numpy.typing import NDArray

from opweld.errors import InputError, OptionError, UnsupportedError

Array = NDArray[Any]
Sample: TypeAlias = dict[str, Array]
Data: TypeAlias = "str | os.PathLike[str] | Iterable[Mapping[str, Any]]"
"""A folder of .npy or .npz files, one a sample, or samples as mappings from names of inputs to arrays."""


def declared_inputs(graph: onnx.GraphProto) -> dict[str, onnx.TypeProto.Tensor]:
    """The inputs that have to be fed, by name. Raises UnsupportedError for one that is no tensor."""
    stored = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in stored]
    for value in inputs:
        if not value.type.HasField("tensor_type"):
            raise UnsupportedError(f"input {value.name!r} is no tensor: such a model takes no samples")
    return {value.name: value.type.tensor_type for value in inputs}


def samples_of(data: Data, inputs: Mapping[str, onnx.TypeProto.Tensor]) -> Iterator[Sample]:
    """The samples, one at a time. Those of a folder or a sequence are all checked at once, before anything is done with
    one of them; of another iterable, which can be gone through only once, the first is.

    Raises InputError naming sample and input for what the model does not take or what is not finite, and where there is
    no sample; OptionError where the folder is none."""
    if isinstance(data, Mapping):
        raise InputError("data is a dict, which is one sample: give a list of such dicts, or a folder")
    samples = _each(data, inputs)
    first = next(samples, None)
    if first is None:
        raise InputError("there are no samples: give some data, such as a folder of .npy or .npz files")
    if isinstance(data, str | os.PathLike | Sequence):
        for _ in samples:
            pass
        return _each(data, inputs)
    return chain((first,), samples)


def _each(data: Data, inputs: Mapping[str, onnx.TypeProto.Tensor]) -> Iterator[Sample]:
    return (_checked(name, given, inputs) for name, given in _named(data, inputs))


def random_samples(count: int, inputs: Mapping[str, onnx.TypeProto.Tensor], seed: int = 0) -> Iterator[Sample]:
    """`count` samples of random values, floats normally distributed, of usual sizes where dims are symbolic."""
    from opweld.interface import TensorInfo
    from opweld.verification.inputs import make_inputs

    if count < 1:
        raise OptionError(f"random is {count}, expected a number of samples of at least 1")
    declared = [TensorInfo(name, _dtype_name(kind), _shape(kind)) for name, kind in inputs.items()]
    return (make_inputs(declared, given={}, dims={}, seed=seed + number) for number in range(count))


def _named(data: Data, inputs: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(data, str | os.PathLike):
        for number, sample in enumerate(data):
            if not isinstance(cast(object, sample), Mapping):
                raise InputError(f"sample {number} is a {type(sample).__name__}, expected a dict of arrays by input")
            yield f"sample {number}", sample
        return
    folder = Path(data)
    if not folder.is_dir():
        raise OptionError(f"{str(folder)!r} is no folder: give one of .npy or .npz files, one a sample")
    for file in sorted(path for path in folder.iterdir() if path.suffix in (".npy", ".npz")):
        yield file.name, _read(file, inputs)


def _read(file: Path, inputs: Mapping[str, object]) -> Mapping[str, Any]:
    try:
        loaded = np.load(file, allow_pickle=False)
        if file.suffix == ".npz":
            with loaded:
                return {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{file.name}: no arrays in that file: {error}") from error
    if len(inputs) != 1:
        names = ", ".join(map(repr, inputs))
        raise InputError(f"{file.name}: the model has {len(inputs)} inputs ({names}): give .npz files with these names")
    return {next(iter(inputs)): loaded}


def _checked(name: str, given: Mapping[str, Any], inputs: Mapping[str, onnx.TypeProto.Tensor]) -> Sample:
    if missing := [one for one in inputs if one not in given]:
        raise InputError(f"{name}: no array for input {missing[0]!r}; the sample has {sorted(given) or 'nothing'}")
    if unknown := [one for one in given if one not in inputs]:
        raise InputError(f"{name}: the model has no input {unknown[0]!r}; its inputs are {sorted(inputs)}")
    sample = {one: np.asarray(given[one]) for one in inputs}
    for one, array in sample.items():
        kind = inputs[one]
        expected = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if array.dtype != expected:
            raise InputError(f"{name}: input {one!r} is {array.dtype}, the model takes {expected}: convert it")
        shape = _shape(kind)
        if shape is not None and not _fits(array.shape, shape):
            raise InputError(f"{name}: input {one!r} has the shape {list(array.shape)}, the model takes {list(shape)}")
        if not array.size and (shape is None or 0 not in shape):
            raise InputError(
                f"{name}: input {one!r} of shape {list(array.shape)} has no elements: leave the sample out"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError(f"{name}: input {one!r} holds NaN or infinity: leave the sample out")
    return sample


def _fits(shape: tuple[int, ...], declared: tuple[int | str, ...]) -> bool:
    return len(shape) == len(declared) and all(
        isinstance(dim, str) or dim in (-1, size) for size, dim in zip(shape, declared, strict=True)
    )


def _shape(kind: onnx.TypeProto.Tensor) -> tuple[int | str, ...] | None:
    if not kind.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in kind.shape.dim)


def _dtype_name(kind: onnx.TypeProto.Tensor) -> str:
    return str(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))

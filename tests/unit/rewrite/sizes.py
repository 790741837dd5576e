"""Feeds of a model at two sizes of each of its symbolic dims: a file that is right at one may not be at another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from opweld.errors import UnsupportedError
from opweld.verification.reference import float64_outputs

Array = NDArray[Any]

FIRST = 3
"""The size of a symbolic dim where a test feeds nothing."""


def feeds_of_sizes(
    model: onnx.ModelProto, feeds: Mapping[str, Array] | None
) -> Iterator[tuple[Mapping[str, Array], list[Array]]]:
    """Feeds, made up where none are given, and the answer in float64: at the sizes that they have, then at others,
    where there are symbolic dims. Nothing where ONNX's evaluator has no answer to what was made up."""
    inputs = _fed(model)
    given = feeds
    if given is None:
        given = made_up(inputs)
        right = None if given is None else _answer(model, given)
    else:
        right = float64_outputs(model, given)
    if given is None or right is None:
        return
    yield given, right
    names = {dim.dim_param for value in inputs for dim in value.type.tensor_type.shape.dim if dim.dim_param}
    if not names:
        return
    sizes = {
        dim.dim_param: given[value.name].shape[axis]
        for value in inputs
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if dim.dim_param and value.name in given
    }
    for others in _candidates(sizes):
        resized = {
            value.name: resized_array(given[value.name], _shape(value, others))
            for value in inputs
            if value.name in given
        }
        right = _answer(model, resized)
        if right is not None:
            yield resized, right
            return
    raise AssertionError(f"the model takes no other sizes than {sizes}: its dims are symbolic without a reason")


def _fed(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    stored = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in stored]


def _answer(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array] | None:
    try:
        return float64_outputs(model, feeds)
    except UnsupportedError:
        return None


def _candidates(sizes: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
    """Other sizes, all of them at once where the model takes that."""
    yield {name: size + 1 + at for at, (name, size) in enumerate(sizes.items())}
    yield {name: size + 1 for name, size in sizes.items()}
    yield {name: 2 * size for name, size in sizes.items()}
    yield {name: 3 * size for name, size in sizes.items()}
    for change in (lambda size: size + 1, lambda size: 2 * size, lambda size: max(1, size // 2)):  # pyright: ignore
        for name in sizes:
            if change(sizes[name]) != sizes[name]:
                yield {**sizes, name: change(sizes[name])}


def _shape(value: onnx.ValueInfoProto, sizes: Mapping[str, int]) -> Sequence[int | None]:
    return [sizes.get(dim.dim_param) if dim.dim_param else None for dim in value.type.tensor_type.shape.dim]


def resized_array(array: Array, shape: Sequence[int | None]) -> Array:
    """The elements of an array over and over along the axes with another size, floats changed a little each."""
    for axis, size in enumerate(shape):
        if size is not None and array.shape[axis]:
            array = np.take(array, np.arange(size) % array.shape[axis], axis)
    if array.dtype.kind != "f":
        return array
    factors = np.random.default_rng(array.size).uniform(0.5, 1.5, array.shape)
    return (array * factors).astype(array.dtype)


def made_up(inputs: Sequence[onnx.ValueInfoProto]) -> Mapping[str, Array] | None:
    """Feeds by what inputs declare; None where they are no tensors or do not declare a shape."""
    found: dict[str, Array] = {}
    sizes: dict[str, int] = {}
    for value in inputs:
        kind = value.type.tensor_type
        if not value.type.HasField("tensor_type") or not kind.HasField("shape") or not kind.elem_type:
            return None
        shape = [
            sizes.setdefault(dim.dim_param, FIRST + len(sizes)) if dim.dim_param else dim.dim_value
            for dim in kind.shape.dim
        ]
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
        random = np.random.default_rng([len(found), *shape])
        if dtype.kind == "f":
            found[value.name] = random.standard_normal(shape).astype(dtype)
        elif dtype.kind in "iub":
            found[value.name] = random.integers(0, 2, shape).astype(dtype)
        else:
            return None
    return found

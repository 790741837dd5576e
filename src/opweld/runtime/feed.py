"""Validates inputs and output buffers: unambiguous inputs are converted, others rejected by name."""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np

from opweld.errors import InputError, RunError
from opweld.interface import shape_text
from opweld.runtime.library import MAX_RANK
from opweld.runtime.plan import Array

_NUMBERS: Final = "biuf"
"""Kinds of NumPy dtypes: bools, integers and floats."""


def prepare(name: str, value: object, dtype: np.dtype[Any]) -> Array:
    """`value` as a C-contiguous, aligned array of exactly `dtype`, in native byte order.

    Arrays must have the right dtype: an implicit conversion would hide mistakes. Python numbers and lists have no dtype
    of their own; they are converted if `dtype` represents their values: any numbers as floats, whole ones as integers,
    0 and 1 as bools.

    Raises InputError naming the input.
    """
    array = cast(Array, value) if isinstance(value, np.ndarray) else _from_python(name, value, dtype)
    if array.dtype.newbyteorder("=") != dtype:
        raise InputError(
            f"input {name!r}: expected dtype {dtype}, got {array.dtype}; convert it with .astype({dtype.name!r})"
        )
    if np.ma.isMaskedArray(array):
        raise InputError(f"input {name!r}: a masked array has no value where it is masked; fill it first")
    # Not ascontiguousarray, which gives a scalar array a dimension.
    try:
        return np.require(np.asarray(array), dtype, ["C_CONTIGUOUS", "ALIGNED"])
    except MemoryError as error:
        raise RunError(f"input {name!r}: there is no memory to copy it to, without gaps: {error}") from error


def _from_python(name: str, value: object, dtype: np.dtype[Any]) -> Array:
    try:
        array = np.asarray(value)
    except Exception as error:  # the conversion of an unknown object may raise anything
        raise InputError(f"input {name!r}: {type(value).__name__} does not convert to an array: {error}") from error
    if isinstance(value, (np.generic, np.ndarray)) or hasattr(value, "__array__"):
        return array
    if array.size == 0 or (array.dtype.kind in _NUMBERS and dtype.kind in _NUMBERS):
        with np.errstate(over="ignore", invalid="ignore"):
            converted = array.astype(dtype)
        if dtype.kind == "f" or np.array_equal(converted, array):
            return converted
    raise InputError(f"input {name!r}: expected an array of dtype {dtype}, got {type(value).__name__} of {array.dtype}")


def check_shape(name: str, shape: tuple[int, ...], rank: int, declared: tuple[int | str, ...] | None) -> None:
    """Compares a feed's shape with the rank that was compiled (-1: any) and the fixed dims of the model.

    Raises InputError naming the input, the shape expected and the one given.
    """
    if len(shape) > MAX_RANK:
        raise InputError(f"input {name!r}: expected at most {MAX_RANK} dimensions, got {len(shape)}")
    wrong_rank = rank >= 0 and len(shape) != rank
    wrong_dim = (
        declared is not None
        and len(declared) == len(shape)
        and any(isinstance(dim, int) and dim >= 0 and dim != size for dim, size in zip(declared, shape, strict=True))
    )
    if wrong_rank or wrong_dim:
        expected = f"{rank} dimensions" if declared is None else shape_text(declared)
        raise InputError(f"input {name!r}: expected shape {expected}, got {list(shape)}")


def check_target(name: str, array: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """`array`, when the output `name` of this shape and dtype can be written to it directly; else raises InputError."""
    if not isinstance(array, np.ndarray):
        raise InputError(f"output {name!r}: expected an array to write to, got {type(array).__name__}")
    target = cast(Array, array)
    if target.shape != shape or target.dtype.newbyteorder("=") != dtype:
        raise InputError(f"output {name!r}: expected {dtype} {shape}, got {target.dtype} {target.shape}")
    if not target.flags.carray or not target.dtype.isnative:
        raise InputError(f"output {name!r}: the array must be writable, C-contiguous, aligned, in native byte order")
    return target

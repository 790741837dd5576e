"""The protocol's element types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import ml_dtypes
import numpy as np

from opweld.errors import UnsupportedError
from opweld.serve.inference.model import Array

BYTES: Final = "BYTES"
"""Strings, of any length each."""

DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    BYTES: np.dtype(object),
}
"""What each name means."""

_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}


def datatype_of(name: str, dtype: np.dtype[Any]) -> str:
    """The protocol's name of the dtype of tensor `name`. Raises UnsupportedError where it has none."""
    try:
        return _NAMES[dtype]
    except KeyError:
        known = ", ".join(DTYPES)
        raise UnsupportedError(
            f"{name} has elements of {dtype}, which the protocol does not name; cast it in the model to one of {known}"
        ) from None


def bytes_of(array: Array) -> memoryview:
    """The bytes of numbers, in C order: a view where they lie so already. Of a dtype that buffers lack too."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data

"""Element types: ONNX TensorProto codes, their names, numpy dtypes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

NAMES: Final = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
}
"""The name of each code that the runtime knows; as numpy spells it, and bfloat16."""

CODES: Final = {name: code for code, name in NAMES.items()}

_known: dict[str, np.dtype[Any]] = {name: np.dtype(name) for name in CODES if name != "bfloat16"}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of a name in `CODES`. bfloat16 is that of ml_dtypes where installed, else uint16, as raw bits."""
    if name not in _known:
        _known[name] = _bfloat16()
    return _known[name]


def _bfloat16() -> np.dtype[Any]:
    try:
        from ml_dtypes import bfloat16  # optional: running a model needs numpy only
    except ImportError:
        return np.dtype(np.uint16)
    return np.dtype(bfloat16)

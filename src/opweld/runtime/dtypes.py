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
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
}
"""The name of each code that the runtime supports, in NumPy's or ml_dtypes' notation. Arrays of ml_dtypes' types,
except bfloat16, have one byte for each element."""

CODES: Final = {name: code for code, name in NAMES.items()}

_known: dict[str, np.dtype[Any]] = {name: np.dtype(name) for code, name in NAMES.items() if code < 16}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a name in `CODES`. Types that NumPy lacks are those of ml_dtypes if installed, else raw bits:
    uint16 for bfloat16, uint8 for others, in the low bits for types of 4 and 2 bits."""
    if name not in _known:
        _known[name] = _of_ml_dtypes(name)
    return _known[name]


def _of_ml_dtypes(name: str) -> np.dtype[Any]:
    try:
        import ml_dtypes  # optional: running a model needs numpy only
    except ImportError:
        return np.dtype(np.uint16 if name == "bfloat16" else np.uint8)
    return np.dtype(getattr(ml_dtypes, name))

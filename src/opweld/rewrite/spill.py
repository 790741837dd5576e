"""Weights computed by rewriting: large ones are stored in a file, so that a model larger than memory can be
rewritten."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGE = 1 << 24
"""Bytes; smaller arrays stay in memory."""


def spilled(array: NDArray[Any]) -> NDArray[Any]:
    """The array, or one backed by an unnamed file, which is deleted with its last reader.

    If the disk has no room, the array stays in memory."""
    if array.nbytes < LARGE:
        return array
    try:
        with tempfile.TemporaryFile(prefix="opweld-") as file:
            array.tofile(file)
            file.flush()
            return np.memmap(file, array.dtype, "r", shape=array.shape)
    except OSError:
        return array

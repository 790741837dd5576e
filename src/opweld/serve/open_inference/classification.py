"""The largest values of an output in its place: the protocol's classification extension."""

from __future__ import annotations

import numpy as np

from opweld.serve.inference.model import Array
from opweld.serve.refusal import Refusal

_MOST = 1_000_000


def largest(name: str, values: Array, classes: int, batched: bool) -> Array:
    """The `classes` largest of each row, or of all where there are no rows, as strings VALUE:INDEX, the largest first:
    [rows, classes] or [classes]. There are less where there are not so many values."""
    if values.dtype.hasobject or values.dtype.kind == "b":
        raise Refusal(400, f"output {name} holds no numbers, of which there could be a classification")
    if values.size > _MOST:
        raise Refusal(400, f"output {name} has more than {_MOST} values; ask for it without classification")
    rows = values.reshape(len(values), -1) if batched and values.ndim and values.size else values.reshape(1, -1)
    # Types of 8 and 16 bits have few orders of their own.
    numbers = rows if rows.dtype.kind in "iu" else rows.astype(np.float64)
    count = min(classes, rows.shape[1])
    form = "{}:{}" if numbers.dtype.kind in "iu" else "{:f}:{}"
    texts = np.empty((len(rows), count), object)
    for row, found in enumerate(numbers):
        # Of equal values the first: a stable order of the reversed row, reversed.
        order = (len(found) - 1 - np.argsort(found[::-1], kind="stable"))[::-1]
        texts[row] = [form.format(found[index], index) for index in order[:count]]
    return texts if batched else texts[0]

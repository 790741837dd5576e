"""Steps of few sizes: where each takes memory and a graph of its own, as on a GPU, steps are padded."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from opweld.llm.work import ENTRIES
from opweld.tensor.paged import WORK

Int64 = NDArray[np.int64]


def padded(feeds: Mapping[str, Int64], spare: int) -> dict[str, Int64]:
    """Feeds of a step (`llm/work.py`, with `positions` and `wanted`) whose sizes are some of few.

    What is added says token 0 at position 0, whose keys and values go to the block `spare`, which no sequence has; rows
    of work that query nothing; the first part, for tokens that nobody reads."""
    tokens, wanted = size_of(len(feeds["tokens"])), size_of(len(feeds["wanted"]))
    entries = ENTRIES
    while entries < len(feeds["tables"]):
        entries *= 2
    return {
        "tokens": longer(feeds["tokens"], tokens, 0),
        "positions": longer(feeds["positions"], tokens, 0),
        "places": longer(feeds["places"], tokens, (spare, 0)),
        "parts": longer(feeds["parts"], tokens, (0, 1)),
        "work": longer(feeds["work"], size_of(len(feeds["work"])), (0,) * WORK),
        "owners": longer(feeds["owners"], size_of(len(feeds["owners"])), 0),
        "tables": longer(feeds["tables"], entries, 0),
        "wanted": longer(feeds["wanted"], wanted, 0),
    }


def size_of(count: int) -> int:
    """The least of 1, 2, 3, 4, 6, 8, 12, 16, ... that is not less."""
    power = 1 << max(0, count - 1).bit_length()
    return power // 4 * 3 if power >= 4 and count <= power // 4 * 3 else power


def longer(array: Int64, count: int, row: int | tuple[int, ...]) -> Int64:
    """An array with rows behind it."""
    more = np.broadcast_to(np.array(row, np.int64), (count - len(array), *array.shape[1:]))
    return np.concatenate([array, more])

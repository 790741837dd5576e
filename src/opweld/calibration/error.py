"""How far answers are from others: one number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def error_of(answers: Sequence[Mapping[str, Array]], right: Sequence[Mapping[str, Array]]) -> float:
    """The largest of the outputs' errors: the root of the squared differences' sum over that of the squared right
    numbers' sum, all samples together. Of integers, the part that differs. 1 where sizes differ, or there are NaNs."""
    worst = 0.0
    for name in right[0] if right else ():
        wrong = total = 0.0
        for got, expected in zip((one[name] for one in answers), (one[name] for one in right), strict=False):
            if got.shape != expected.shape:
                return 1.0
            if expected.dtype.kind == "f":
                exact = expected.astype(np.float64)
                wrong += float(((got.astype(np.float64) - exact) ** 2).sum())
                total += float((exact**2).sum())
            else:
                wrong += float((got != expected).sum())
                total += expected.size
        if not np.isfinite(wrong):
            return 1.0
        part = wrong / total if total else float(wrong > 0)
        floating = right[0][name].dtype.kind == "f"
        worst = max(worst, float(np.sqrt(part)) if floating else part)
    return worst

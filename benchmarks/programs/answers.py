"""Are two answers the same? Texts and whole numbers exactly, others as far as rounding goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def difference(theirs: Any, ours: Any, tolerance: float, where: str = "answer") -> tuple[float, str]:
    """How far two answers are apart, as a part of their scale, and the first thing that differs more than it may, as a
    text that is empty where nothing does. Only numbers that are no whole ones have a tolerance."""
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        if theirs.keys() != ours.keys():
            return float("inf"), f"{where} has {sorted(map(str, ours))}, expected {sorted(map(str, theirs))}"
        return _worst([(theirs[key], ours[key], f"{where}[{key!r}]") for key in theirs], tolerance)
    one, two = _numbers(theirs), _numbers(ours)
    if one is not None and two is not None:
        return _arrays(one, two, tolerance, where)
    if _is_list(theirs) and _is_list(ours):
        if len(theirs) != len(ours):
            return float("inf"), f"{where} has {len(ours)} entries, expected {len(theirs)}"
        pairs = enumerate(zip(theirs, ours, strict=True))
        return _worst([(a, b, f"{where}[{i}]") for i, (a, b) in pairs], tolerance)
    if type(theirs) is type(ours) and theirs == ours:
        return 0.0, ""
    return float("inf"), f"{where} is {ours!r:.80}, expected {theirs!r:.80}"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


def _numbers(value: Any) -> NDArray[Any] | None:
    """The value as an array of numbers, or None where it is not of numbers alone."""
    if isinstance(value, str | bytes | bool) or value is None:
        return None
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):  # parts of unlike lengths
        return None
    return array if array.dtype.kind in "biuf" else None


def _worst(parts: list[tuple[Any, Any, str]], tolerance: float) -> tuple[float, str]:
    found = [difference(one, two, tolerance, where) for one, two, where in parts]
    return max((far for far, _ in found), default=0.0), next((text for _, text in found if text), "")


def _arrays(theirs: NDArray[Any], ours: NDArray[Any], tolerance: float, where: str) -> tuple[float, str]:
    if theirs.shape != ours.shape:
        return float("inf"), f"{where} has shape {list(ours.shape)}, expected {list(theirs.shape)}"
    if not theirs.size:
        return 0.0, ""
    one, two = theirs.astype(np.float64), ours.astype(np.float64)
    if not np.array_equal(np.isnan(one), np.isnan(two)):
        return float("inf"), f"{where} is NaN elsewhere"
    gap = float(np.nan_to_num(np.abs(one - two), nan=0.0).max())
    scale = float(np.nan_to_num(np.abs(one), nan=0.0).max())
    if theirs.dtype.kind != "f" and gap:
        return float("inf"), f"{where} is {gap:g} off in whole numbers"
    far = gap / max(scale, 1e-9)
    return far, f"{where} is {gap:.3g} off at a scale of {scale:.3g}" if far > tolerance else ""

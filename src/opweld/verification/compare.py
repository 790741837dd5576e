"""Whether an output is right: its error as a part of the reference's scale, and what may be tolerated.

The tolerance is the larger of 1e-5 of the float64 result's scale and four times the error that a runtime which
optimises nothing makes on the same input. NaN and infinity must be where the reference has them; integers and
booleans must be equal.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

Verdict: TypeAlias = Literal["right", "wrong", "agrees", "differs"]

SCALE_TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Error that each dtype may make by rounding alone, as a part of the result's scale."""

DISAGREEMENT = 1e-2
"""More than rounding does to a float32 model, as a part of a value's scale."""

PEER_FACTOR = 4.0
"""How many times the error of the unoptimised peer is tolerated: another order of summation makes such differences."""


@dataclass(frozen=True)
class Comparison:
    """One output against its reference.

    Attributes:
        name: the output's name.
        dtype, shape: what the output was.
        scale: the largest finite magnitude in the reference.
        error: the largest difference, as a part of `scale`; infinite where shape, NaNs or infinities differ.
        peer_error: the same for the unoptimised peer; None without a peer.
        tolerance: what `error` may be.
        worst: index of the largest difference.
        problem: why it failed, in words; empty when it passed.
        by_peer: whether the reference is only another runtime's answer, of which nobody knows how wrong it is.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    scale: float
    error: float
    peer_error: float | None
    tolerance: float
    worst: tuple[int, ...]
    problem: str
    by_peer: bool = False

    @property
    def verdict(self) -> Verdict:
        """Right or wrong, where the reference is; where it is another runtime's answer: agrees or differs."""
        if self.by_peer:
            return "agrees" if self.passed else "differs"
        return "right" if self.passed else "wrong"

    @property
    def passed(self) -> bool:
        """Whether the output is within its tolerance."""
        return not self.problem

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types; infinity is written as text, for JSON has none."""
        values = asdict(self) | {"passed": self.passed, "verdict": self.verdict}
        return {k: "infinity" if isinstance(v, float) and math.isinf(v) else v for k, v in values.items()}


def compare(
    name: str,
    actual: Array,
    reference: Array,
    peer: Array | None = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> Comparison:
    """Compares an output with its reference.

    Args:
        name: the output's name, for the report.
        actual: what the compiled model answered.
        reference: the right answer, in float64 where there is one.
        peer: what an unoptimised runtime answered on the same input; its error widens the tolerance.
        rtol: tolerance as a part of the scale, instead of the one by dtype and peer.
        atol: tolerance of the difference itself; the wider of the two holds.
    """
    actual, reference = np.asarray(actual), np.asarray(reference)
    scale = _scale(reference)
    if actual.shape != reference.shape:
        problem = f"shape is {list(actual.shape)}, expected {list(reference.shape)}"
        return Comparison(name, str(actual.dtype), actual.shape, scale, math.inf, None, 0.0, (), problem)
    error, worst = relative_error(actual, reference)
    peer_error = None
    if peer is not None and peer.shape == reference.shape:
        peer_error, _ = relative_error(peer, reference)
    tolerance = _tolerance(actual, peer_error)
    if rtol is not None or atol is not None:
        tolerance = max(rtol or 0.0, (atol or 0.0) / scale)
    problem = "" if error <= tolerance else _problem(actual, reference, error, tolerance, worst)
    return Comparison(name, str(actual.dtype), actual.shape, scale, error, peer_error, tolerance, worst, problem)


def relative_error(actual: Array, reference: Array) -> tuple[float, tuple[int, ...]]:
    """The largest difference of two arrays of one shape as a part of the reference's scale, and its index.

    Infinite where one is NaN, infinite or a text and the other is not the same. Arrays of no elements have error 0.
    """
    if actual.size == 0:
        return 0.0, ()
    if _are_texts(actual) or _are_texts(reference):
        differ = actual.astype(object) != reference.astype(object)
        first = np.unravel_index(int(differ.argmax()), differ.shape)
        return math.inf if differ.any() else 0.0, tuple(int(i) for i in first)
    left, right = _widened(actual), _widened(reference)
    # Compared before widening too: float64 cannot tell large int64 apart.
    same = (actual == reference) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.where(same, 0.0, np.abs(left - right))
    difference = np.where(np.isnan(difference) | (~same & (difference == 0.0)), np.inf, difference)
    worst = np.unravel_index(int(difference.argmax()), difference.shape)
    return float(difference.max()) / _scale(reference), tuple(int(i) for i in worst)


def disagree(other: Array, right: Array) -> bool:
    """Whether another answer is off by more than rounding: one of the two is wrong, and as an error would tolerate
    anything."""
    return right.shape != other.shape or relative_error(other, right)[0] > DISAGREEMENT


def _are_texts(values: Array) -> bool:
    return values.dtype.kind in "OUST"


def _widened(values: Array) -> Array:
    return values.astype(np.float64)


def _scale(reference: Array) -> float:
    """The largest finite magnitude, or 1 where there is none but zero."""
    if _are_texts(reference):
        return 1.0
    values = np.abs(_widened(reference))
    finite = values[np.isfinite(values)]
    largest = float(finite.max()) if finite.size else 0.0
    return largest or 1.0


def _tolerance(actual: Array, peer_error: float | None) -> float:
    base = SCALE_TOLERANCE.get(str(actual.dtype), 0.0)
    # An output that is no float is equal or wrong; a peer that is wrong does not excuse it.
    if base == 0.0 or peer_error is None or math.isinf(peer_error):
        return base
    return max(base, PEER_FACTOR * peer_error)


def _problem(actual: Array, reference: Array, error: float, tolerance: float, worst: tuple[int, ...]) -> str:
    where = f"at {list(worst)} is {actual[worst]}, expected {reference[worst]}"
    return where if math.isinf(error) else f"{where}: error {error:.2e} of scale, tolerance {tolerance:.2e}"

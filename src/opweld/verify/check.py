"""A compiled model's outputs against the best reference there is for its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from opweld.errors import OptionError, UnsupportedError
from opweld.verify.compare import SCALE_TOLERANCE, Array, Comparison, compare, relative_error
from opweld.verify.reference import float64_outputs, onnxruntime_outputs

DISAGREEMENT = 1e-2
"""More than rounding does to a float32 model, as a part of an output's scale."""

FLOAT64 = "float64"
"""What outputs are compared with where that can be had."""


@dataclass(frozen=True)
class Check:
    """The comparison of all outputs, and in words what they were compared with."""

    comparisons: tuple[Comparison, ...]
    reference: str
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether every output is within its tolerance."""
        return all(c.passed for c in self.comparisons)

    @property
    def error(self) -> float:
        """The largest error of any output, as a part of its scale."""
        return max((c.error for c in self.comparisons), default=0.0)


@dataclass(frozen=True, eq=False)
class Reference:
    """What a model answers for some feeds, as well as anybody can say.

    Attributes:
        names: of the outputs' tensors, in the model's order.
        right: the answers, in float64 where that can be had, else ONNX Runtime's, unoptimised.
        peer: beside float64, ONNX Runtime's, unoptimised; None without it.
        optimised: beside ONNX Runtime's, those of its own optimiser; None beside float64.
        source: in words, who says so. notes: what could not be had.
    """

    names: tuple[str, ...]
    right: Sequence[Array]
    peer: Sequence[Array] | None
    optimised: Sequence[Array] | None
    source: str
    notes: tuple[str, ...]

    def check(self, outputs: Sequence[Array], *, rtol: float | None = None, atol: float | None = None) -> Check:
        """Compares outputs with these. Without float64, twice what ONNX Runtime's own optimiser changes stands in for
        its error, which nobody then knows."""
        comparisons: list[Comparison] = []
        for i, (name, output, right) in enumerate(zip(self.names, outputs, self.right, strict=True)):
            if self.optimised is not None:
                comparisons.append(_against_peer(name, output, right, self.optimised[i], rtol, atol))
                continue
            peer = None if self.peer is None else self.peer[i]
            comparisons.append(compare(name, output, right, peer, rtol=rtol, atol=atol))
        return Check(tuple(comparisons), self.source, self.notes)


def reference_of(
    model: Path, feeds: Mapping[str, Any], names: Sequence[str], right: Sequence[Array] | None = None
) -> Reference:
    """What a model answers in float64, or in ONNX Runtime where float64 cannot be had.

    Args:
        model: the ONNX file.
        feeds: the inputs, by name.
        names: the names of the outputs' tensors, in the model's order.
        right: the answers in float64, where they are there already.

    Raises UnsupportedError when there is neither reference.
    """
    notes: list[str] = []
    peer: list[Array] | None = None
    try:
        peer = onnxruntime_outputs(model, feeds)
    except UnsupportedError as error:
        notes.append(str(error))
    try:
        right = float64_outputs(model, feeds) if right is None else right
        _require_agreement(names, right, peer)
    except UnsupportedError as error:
        if peer is None:
            raise UnsupportedError(f"nothing to compare with. {error}. {'. '.join(notes)}") from error
        notes.append(str(error))
        optimised = onnxruntime_outputs(model, feeds, optimised=True)
        return Reference(tuple(names), peer, None, optimised, "ONNX Runtime, unoptimised", tuple(notes))
    return Reference(tuple(names), right, peer, None, FLOAT64, tuple(notes))


def check_outputs(
    model: Path,
    feeds: Mapping[str, Any],
    names: Sequence[str],
    outputs: Sequence[Array],
    *,
    rtol: float | None = None,
    atol: float | None = None,
    right: Sequence[Array] | None = None,
) -> Check:
    """Compares outputs with the model's: see `reference_of` and `Reference.check`.

    Args:
        model: the ONNX file.
        feeds: the inputs, by name.
        names: the names of the outputs' tensors, in the model's order.
        outputs: what the compiled model answered for `feeds`.
        rtol: tolerance as a part of each output's scale; by dtype and by ONNX Runtime's error where None.
        atol: tolerance of the difference itself.
        right: the outputs in float64, where they are there already.

    Raises OptionError for a tolerance that is none, UnsupportedError when there is neither reference.
    """
    check_tolerances(rtol=rtol, atol=atol)
    return reference_of(model, feeds, names, right).check(outputs, rtol=rtol, atol=atol)


def check_tolerances(**tolerances: Any) -> None:
    """Raises OptionError naming the tolerance that is neither None nor a number of at least 0."""
    for name, value in tolerances.items():
        is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        if value is not None and not (is_number and value >= 0):
            raise OptionError(f"{name} is {value!r}, expected a number of at least 0")


def _require_agreement(names: Sequence[str], reference: Sequence[Array], peer: Sequence[Array] | None) -> None:
    """Raises UnsupportedError where float64 and ONNX Runtime disagree: one is wrong, and would tolerate anything."""
    for name, right, other in zip(names, reference, peer or reference, strict=True):
        if right.shape != other.shape or relative_error(other, right)[0] > DISAGREEMENT:
            raise UnsupportedError(f"the float64 reference and ONNX Runtime disagree about output {name!r}")


def _against_peer(
    name: str, output: Array, plain: Array, other: Array, rtol: float | None, atol: float | None
) -> Comparison:
    if plain.shape == other.shape and rtol is None and atol is None and plain.dtype.kind == "f":
        spread, _ = relative_error(other, plain)
        rtol = 2 * max(SCALE_TOLERANCE[str(plain.dtype)], spread)
    return compare(name, output, plain, rtol=rtol, atol=atol)

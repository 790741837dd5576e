"""A compiled model's outputs against the best reference there is for its model."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from opweld.display import Piece, Shown, Table
from opweld.errors import OptionError, UnsupportedError
from opweld.ledger import printable
from opweld.table import Column, of_names, of_words
from opweld.verification.compare import SCALE_TOLERANCE, Array, Comparison, compare, disagree, relative_error
from opweld.verification.reference import float64_outputs, onnxruntime_outputs, own_outputs

FLOAT64 = "float64"
"""What outputs are compared with where that can be had."""


@dataclass(frozen=True, repr=False)
class Check(Shown):
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

    def table(self) -> Table:
        """A row an output."""
        columns = (
            of_names("output"),
            of_words("dtype", 4),
            of_words("shape", 3),
            Column("scale", 2),
            Column("error"),
            Column("tolerated"),
            Column("ONNX Runtime", 1),
            of_words("verdict"),
        )
        rows = tuple(
            (
                printable(c.name),
                c.dtype,
                "x".join(map(str, c.shape)) or "scalar",
                f"{c.scale:.3g}",
                f"{c.error:.2e}",
                f"{c.tolerance:.2e}",
                "-" if c.peer_error is None else f"{c.peer_error:.2e}",
                "WRONG" if c.verdict == "wrong" else c.verdict,
            )
            for c in self.comparisons
        )
        return Table(columns, rows)

    def shown(self) -> Sequence[Piece]:
        """The verdict, the table, and what is to be said of it."""
        found = {c.verdict for c in self.comparisons}
        said = ("wrong", "WRONG"), ("differs", "differs"), ("agrees", "agrees")
        verdict = next((word for kind, word in said if kind in found), "right")
        problems = [f"{printable(c.name)}: {c.problem}" for c in self.comparisons if not c.passed]
        notes = [*problems, *(f"note: {note}" for note in self.notes)]
        head = f"{verdict}, against {self.reference}, errors as parts of the scale"
        return [head, self.table(), *(["\n".join(notes)] if notes else [])]


@dataclass(frozen=True, eq=False)
class Reference:
    """What a model answers for some feeds, as well as anybody can say.

    Attributes:
        names: of the outputs' tensors, in the model's order.
        right: the answers in float64; None where they cannot be had.
        peer: ONNX Runtime's, unoptimised; None without it.
        optimised: those of its own optimiser, where float64 cannot be had or ONNX Runtime disagrees with it.
        own: the reference's in the model's own precision, where ONNX Runtime disagrees with float64.
        disputed: positions of the outputs about which they disagree.
        notes: what could not be had, and who disagrees.
    """

    names: tuple[str, ...]
    right: Sequence[Array] | None
    peer: Sequence[Array] | None
    optimised: Sequence[Array] | None
    own: Sequence[Array] | None
    disputed: frozenset[int]
    notes: tuple[str, ...]

    @property
    def source(self) -> str:
        """In words, who says so."""
        return "ONNX Runtime, unoptimised" if self.right is None else FLOAT64

    def check(self, outputs: Sequence[Array], *, rtol: float | None = None, atol: float | None = None) -> Check:
        """Compares outputs with these.

        Beside float64, ONNX Runtime's error says what rounding does to the model, unless that is more than rounding
        does: then the model in its own precision says it, and what is not right may still agree with ONNX Runtime.
        Without float64, twice what ONNX Runtime's own optimiser changes stands in for its error, which nobody then
        knows."""
        comparisons = tuple(self._compared(i, output, rtol, atol) for i, output in enumerate(outputs))
        return Check(comparisons, self.source, self.notes)

    def _compared(self, i: int, output: Array, rtol: float | None, atol: float | None) -> Comparison:
        peer = None if self.peer is None else self.peer[i]
        if self.right is None:
            return self._with_peer(i, output, rtol, atol)
        if i not in self.disputed:
            return compare(self.names[i], output, self.right[i], peer, rtol=rtol, atol=atol)
        own = None if self.own is None or disagree(self.own[i], self.right[i]) else self.own[i]
        found = compare(self.names[i], output, self.right[i], own, rtol=rtol, atol=atol)
        if not found.passed and (other := self._with_peer(i, output, rtol, atol)).passed:
            return other
        assert peer is not None
        same_shape = peer.shape == self.right[i].shape
        return replace(found, peer_error=relative_error(peer, self.right[i])[0] if same_shape else math.inf)

    def _with_peer(self, i: int, output: Array, rtol: float | None, atol: float | None) -> Comparison:
        assert self.peer is not None
        plain, other = self.peer[i], None if self.optimised is None else self.optimised[i]
        if (
            other is not None
            and plain.shape == other.shape
            and plain.dtype.kind == "f"
            and rtol is None
            and atol is None
        ):
            spread, _ = relative_error(other, plain)
            rtol = 2 * max(SCALE_TOLERANCE[str(plain.dtype)], spread)
        return replace(compare(self.names[i], output, plain, rtol=rtol, atol=atol), by_peer=True)


def reference_of(
    model: Path, feeds: Mapping[str, Any], names: Sequence[str], right: Sequence[Array] | None = None
) -> Reference:
    """What a model answers in float64, and in ONNX Runtime.

    Args:
        model: the ONNX file.
        feeds: the inputs, by name.
        names: the names of the outputs' tensors, in the model's order.
        right: the answers in float64, where they are there already.

    Raises UnsupportedError when there is neither reference.
    """
    notes: list[str] = []
    peer, optimised, own = (None,) * 3
    try:
        peer = onnxruntime_outputs(model, feeds)
    except UnsupportedError as error:
        notes.append(str(error))
    try:
        right = float64_outputs(model, feeds) if right is None else right
    except UnsupportedError as error:
        if peer is None:
            raise UnsupportedError(f"nothing to compare with. {error}. {'. '.join(notes)}") from error
        notes.append(str(error))
    disputed = frozenset[int]()
    if right is not None and peer is not None:
        disputed = frozenset(i for i, (a, b) in enumerate(zip(right, peer, strict=True)) if disagree(b, a))
    if disputed:
        told = ", ".join(repr(names[i]) for i in sorted(disputed))
        notes.append(f"ONNX Runtime and the float64 reference disagree by more than rounding about {told}")
        with contextlib.suppress(UnsupportedError):
            own = own_outputs(model, feeds)
    if peer is not None and (right is None or disputed):
        optimised = onnxruntime_outputs(model, feeds, optimised=True)
    return Reference(tuple(names), right, peer, optimised, own, disputed, tuple(notes))


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

"""What compressing a model did, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx

from opweld import whole
from opweld.compress.change import Method
from opweld.compress.timing import Cost
from opweld.display import Piece, Shown, Table
from opweld.errors import in_line
from opweld.table import Column, of_names, of_words
from opweld.tune.trial import Gain


@dataclass(frozen=True)
class LayerReport:
    """A layer of the model.

    Attributes:
        name, op: its name, that of its output where it has none, and its operator.
        methods, amount: how it was made smaller, and how much; empty where it was not.
        error: at the outputs, where it alone is changed. Of a layer that is as it was, of the least change that was
            measured; None where none was.
        zeros: the part of its weights that is 0.
        before, after: bytes, operations and predicted seconds. measured: seconds beside each other, of all
            nodes that a change is of, told of its first layer; None where they were not measured.
        reason: why it is as it was; "" where it is not.
    """

    name: str
    op: str
    methods: tuple[Method, ...]
    amount: str
    error: float | None
    zeros: float
    before: Cost
    after: Cost
    measured: Gain | None
    reason: str


@dataclass(frozen=True, repr=False)
class Compressed(Shown):
    """A model of fewer weights, and what that costs.

    Attributes:
        model: standard ONNX. layers: those that multiply by stored weights, in order.
        error: of the model's answers for the samples, compiled: the root of the squared differences' sum over that of
            the squared answers' sum, of the worst output. scores: by the metric, before and after, where one was given.
        measured: seconds of the whole model before and after, beside each other; None where nothing changed.
        samples: how many were seen. held_out: how many of these the error is measured on and nothing was taken from.
        memory: bytes of all second moments. size_before, size_after: bytes of the files.
        notes: what to know, in sentences.
    """

    model: onnx.ModelProto
    layers: tuple[LayerReport, ...]
    error: float
    scores: tuple[float, float] | None
    measured: Gain | None
    samples: int
    held_out: int
    memory: int
    size_before: int
    size_after: int
    notes: tuple[str, ...]

    @property
    def flops(self) -> tuple[int, int]:
        """Floating-point operations of all layers, for the first sample, before and after."""
        return sum(one.before.flops for one in self.layers), sum(one.after.flops for one in self.layers)

    def save(self, path: str | Path) -> Path:
        """Writes the model, whole or not at all. Raises OptionError where that cannot be."""
        made = Path(path)
        whole.write(made, "-o", lambda file: file.write(self.model.SerializeToString()))
        return made

    def to_json(self) -> dict[str, Any]:
        """All but the model."""
        return {
            "error": self.error,
            "scores": self.scores and {"before": self.scores[0], "after": self.scores[1]},
            "seconds": self.measured and {"before": self.measured.before, "after": self.measured.after},
            "ratio": self.measured and self.measured.ratio,
            "samples": self.samples,
            "held_out": self.held_out,
            "moments_bytes": self.memory,
            "bytes": {"before": self.size_before, "after": self.size_after},
            "flops": dict(zip(("before", "after"), self.flops, strict=True)),
            "layers": [asdict(layer) for layer in self.layers],
            "notes": list(self.notes),
        }

    def table(self) -> Table:
        """The layers."""
        columns = (
            of_names("layer"), of_words("operator", 4), of_words("now"), Column("error alone"),
            Column("zeros", 4), Column("bytes", 2),
            Column("FLOPs", 3), Column("predicted us", 2), Column("measured us"), of_words("why it is as it was", 1),
        )  # fmt: skip
        rows = [
            (
                in_line(one.name), one.op, one.amount or "dense", "-" if one.error is None else f"{one.error:.1e}",
                f"{one.zeros:.0%}", _both(one, f"{one.before.bytes:,}", f"{one.after.bytes:,}"),
                _both(one, f"{one.before.flops:.3g}", f"{one.after.flops:.3g}"),
                _both(one, f"{1e6 * one.before.seconds:.1f}", f"{1e6 * one.after.seconds:.1f}"),
                "-" if one.measured is None else _times(one.measured),
                one.reason,
            )
            for one in self.layers
        ]  # fmt: skip
        return Table(columns, tuple(rows))

    def summary(self) -> str:
        """What it came to, in a few lines."""
        changed = sum(bool(one.methods) for one in self.layers)
        before, after = self.flops
        lines = [
            f"{changed} of {len(self.layers)} layers changed",
            f"{self.size_before:,} bytes -> {self.size_after:,} bytes ({self.size_after / self.size_before:.2f})",
            f"{before:,} operations of these layers -> {after:,} ({after / max(before, 1):.2f})",
            f"error: {self.error:.3g} of the outputs' size",
        ]
        if self.scores is not None:
            lines.append(f"score: {self.scores[0]:.6g} -> {self.scores[1]:.6g}")
        if self.measured is not None:
            times = f"{1e3 * self.measured.before:.3f} ms -> {1e3 * self.measured.after:.3f} ms"
            lines.append(f"a run: {times}, {self.measured.ratio:.2f} times as fast")
        apart = f", {self.held_out} of them held out for the error" if self.held_out else ""
        lines.append(f"{self.samples} samples{apart}; {self.memory / 2**20:.1f} MiB of second moments")
        return "\n".join((*lines, *(f"note: {note}" for note in self.notes)))

    def shown(self) -> Sequence[Piece]:
        """The table of layers and the summary."""
        return self.table(), self.summary()


def _both(layer: LayerReport, before: str, after: str) -> str:
    return f"{before} -> {after}" if layer.methods else before


def _times(measured: Gain) -> str:
    return f"{1e6 * measured.before:.1f} -> {1e6 * measured.after:.1f}"

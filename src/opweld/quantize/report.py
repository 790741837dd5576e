"""What quantising a model did, node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from opweld import whole
from opweld.display import Piece, Shown, Table
from opweld.errors import in_line
from opweld.quantize.friendliness import Level
from opweld.quantize.ranges import Method
from opweld.quantize.versions import Precision, Rounding
from opweld.record import QUANTISED
from opweld.table import Column, of_names, of_words


@dataclass(frozen=True)
class NodeReport:
    """A node of the model.

    Attributes:
        name, op: its name, that of its output where it has none, and its operator.
        precision: `float`, `int8`, `int8-weights` or `int4-weights`; of what is no layer, `int8` where its results are
            codes.
        friendliness, reason: to fewer bits.
        error: at the outputs, where it alone is quantised; None where that was not measured.
    """

    name: str
    op: str
    precision: str
    friendliness: Level
    reason: str
    error: float | None


def annotate(model: onnx.ModelProto, outputs: Mapping[str, NodeReport]) -> None:
    """Writes into the nodes of a model, by their first outputs, what quantising them costs, as metadata that `explain`
    shows."""
    for node in model.graph.node:
        told = outputs.get(node.output[0]) if node.output else None
        if told is not None:
            node.metadata_props.add(
                key=QUANTISED, value=f"{told.precision}; friendliness {told.friendliness}: {told.reason}"
            )


@dataclass(frozen=True, repr=False)
class Quantized(Shown):
    """A quantised model, and what it cost.

    Attributes:
        model: standard ONNX. nodes: those that compute numbers, in order.
        precision: what was asked for. ranges: how they were chosen; None where activations stay float.
        corrected: whether biases make up for rounded weights. rounding: of weights: `nearest`, or `gptq`.
        error: of the model's answers for the samples, compiled: the root of the squared differences' sum over that of
            the squared answers' sum, of the worst output. None without data.
        samples: how many were seen. held_out: how many of these the error is measured on and nothing was taken from.
        memory: bytes of all histograms and moments.
        size_before, size_after: bytes of the files. notes: what to know, in sentences.
    """

    model: onnx.ModelProto
    nodes: tuple[NodeReport, ...]
    precision: Precision
    ranges: Method | None
    corrected: bool
    rounding: Rounding
    error: float | None
    samples: int
    held_out: int
    memory: int
    size_before: int
    size_after: int
    notes: tuple[str, ...]

    def save(self, path: str | Path) -> Path:
        """Writes the model, whole or not at all. Raises OptionError where that cannot be."""
        made = Path(path)
        whole.write(made, "-o", lambda file: file.write(self.model.SerializeToString()))
        return made

    def to_json(self) -> dict[str, Any]:
        """All but the model."""
        return {
            "precision": self.precision,
            "ranges": self.ranges,
            "bias_correction": self.corrected,
            "rounding": self.rounding,
            "error": self.error,
            "samples": self.samples,
            "held_out": self.held_out,
            "histogram_bytes": self.memory,
            "bytes": {"before": self.size_before, "after": self.size_after},
            "nodes": [vars(node) for node in self.nodes],
            "notes": list(self.notes),
        }

    def table(self) -> Table:
        """The nodes that are layers, or are not friendly."""
        columns = (
            of_names("node"), of_words("operator"), of_words("precision"), of_words("friendliness"),
            Column("error alone"), of_words("reason", 3),
        )  # fmt: skip
        rows = [
            (
                in_line(node.name), node.op, node.precision, node.friendliness,
                "-" if node.error is None else f"{node.error:.2e}", node.reason,
            )
            for node in self.nodes
            if node.error is not None or node.friendliness != "high" or node.op in ("Conv", "Gemm", "MatMul")
        ]  # fmt: skip
        return Table(columns, tuple(rows))

    def summary(self) -> str:
        """What it came to, in a few lines."""
        error = "not measured: there are no data" if self.error is None else f"{self.error:.3g} of the outputs' size"
        lines = [
            f"{self.size_before:,} bytes -> {self.size_after:,} bytes ({self.size_after / self.size_before:.2f})",
            f"error: {error}",
        ]
        if self.samples:
            apart = f", {self.held_out} of them held out for the error" if self.held_out else ""
            told = f"{self.samples} samples{apart}; {self.memory / 2**20:.1f} MiB of histograms and moments"
            ranges = "" if self.ranges is None else f"; ranges by {self.ranges}"
            biases = "corrected" if self.corrected else "as they were"
            lines.append(f"{told}{ranges}; weights rounded by {self.rounding}; biases {biases}")
        return "\n".join((*lines, *(f"note: {note}" for note in self.notes)))

    def shown(self) -> Sequence[Piece]:
        """The table of nodes and the summary."""
        return self.table(), self.summary()

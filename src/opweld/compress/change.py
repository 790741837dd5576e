"""A way to make a layer smaller: weights in effect, which are fed and compared, and the form that is written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from numpy.typing import NDArray

from opweld.calibration.edits import Edits
from opweld.calibration.graph import Graph, Layer

Array = NDArray[Any]
Method = Literal["low-rank", "channels", "2:4", "blocks", "unstructured"]

Claim = tuple[int, Literal["inputs", "results"]]
"""The inputs or the results of a layer's weights, by its node: two changes that claim the same exclude each other."""


class Change(ABC):
    """A way to make a layer smaller."""

    @property
    @abstractmethod
    def method(self) -> Method:
        """By which method."""

    @property
    @abstractmethod
    def layer(self) -> Layer:
        """The layer that it is told of."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes whose bytes, operations and time it changes, in order; that of the layer alone."""
        return (self.layer.node,)

    @property
    def claims(self) -> frozenset[Claim]:
        """What of layers it changes; all of the layer's weights."""
        return frozenset({(self.layer.node, "inputs"), (self.layer.node, "results")})

    @property
    @abstractmethod
    def amount(self) -> str:
        """How much smaller, for people."""

    @property
    def told(self) -> Mapping[int, str]:
        """Of each layer that is smaller, by node, how much."""
        return {self.layer.node: self.amount}

    @property
    def zeros(self) -> float:
        """Of its multiplications, the part that is by zeros which are stored like other weights."""
        return 0.0

    @abstractmethod
    def weights(self, graph: Graph) -> Mapping[int, Array]:
        """By node, float32 weights of the shape that the layer stores, with which it answers as the changed one."""

    @abstractmethod
    def write(self, edits: Edits) -> None:
        """Makes the change."""


def edited(graph: Graph, changes: Iterable[Change]) -> Edits:
    """A copy of a model in which these changes are made: of two at one layer, the one of its inputs first, which gives
    it all of its weights."""
    edits = Edits(graph)
    for change in sorted(changes, key=lambda change: change.nodes[0]):
        change.write(edits)
    return edits

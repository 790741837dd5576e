"""One compiled model that answers as any set of changes would: the weights of its layers are inputs of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from opweld.calibration.data import Sample
from opweld.calibration.edits import Edits, fed_weights
from opweld.calibration.graph import Graph, Layer
from opweld.calibration.progress import Progress
from opweld.calibration.shaped import Shaped
from opweld.compress.change import Change

Array = NDArray[Any]


class Fed:
    """A model whose layers' weights are fed, and whose `watched` values are outputs too."""

    def __init__(
        self, graph: Graph, layers: Sequence[Layer], watched: Collection[str], progress: Progress | None
    ) -> None:
        self._graph = graph
        self.watched = watched
        self._dense = {layer.node: graph.array(layer.weights) for layer in layers}
        edits = Edits(graph)
        self._names = fed_weights(edits, {one.node: (one.weights, self._dense[one.node]) for one in layers})
        edits.watch(watched)
        self._model = Shaped(edits.applied(), progress)

    def run(self, sample: Sample, changes: Iterable[Change] = ()) -> dict[str, Array]:
        """The outputs, and what is watched, where these changes are made."""
        return self._model.run({**sample, **self._fed(changes)})

    def answers(self, samples: Iterable[Sample], changes: Iterable[Change] = ()) -> list[dict[str, Array]]:
        """The outputs alone, sample by sample."""
        fed = self._fed(changes)
        found = (self._model.run({**sample, **fed}) for sample in samples)
        return [{name: one[name] for name in self._graph.outputs} for one in found]

    def _fed(self, changes: Iterable[Change]) -> Mapping[str, Array]:
        weights = dict(self._dense)
        for change in changes:
            weights |= change.weights(self._graph)
        return {self._names[node]: array for node, array in weights.items()}

"""What an actor does: it opens the artifact once, and fills batches."""

from __future__ import annotations

import numpy as np

from opweld.errors import InputError, UnsupportedError
from opweld.ray.columns import Array, Batch, Columns
from opweld.ray.shipment import Shipment
from opweld.serve.inference.tensors import Tensors


class Predictor:
    """A model open on a node. Its weights are pages of a file, which the actors of a node share."""

    def __init__(self, shipment: Shipment, columns: Columns, threads: int) -> None:
        """`threads`: as many as Ray has reserved processors for the actor."""
        self._model = Tensors(shipment.open(threads))
        self._columns = columns

    def __call__(self, batch: Batch) -> Batch:
        """The batch with the model's outputs, as `Columns` says. Raises InputError naming what does not fit."""
        columns = self._columns
        feeds = columns.read(batch)
        rows = len(next(iter(batch.values())))
        if (fixed := columns.rows) is None:
            return columns.write(batch, self._run(feeds, rows))
        runs = [self._run(_rows(feeds, start, fixed), fixed) for start in range(0, rows, fixed)]
        made = {name: np.concatenate([run[name] for run in runs])[:rows] for name in runs[0]}
        return columns.write(batch, made)

    def _run(self, feeds: dict[str, Array], rows: int) -> dict[str, Array]:
        """The outputs that are written. Raises UnsupportedError for one that has no row for each row."""
        columns = self._columns
        try:
            made = self._model.run({**feeds, **columns.feeds})
        except InputError as error:
            read = ", ".join(f"{spec.name!r} from {column!r}" for spec, column in columns.inputs)
            raise InputError(f"{error}; inputs are read from columns: {read}") from error
        named = {spec.name: array for spec, array in zip(self._model.outputs, made, strict=True)}
        for spec, _ in columns.outputs:
            shape = named[spec.name].shape
            if not shape or shape[0] != rows:
                raise UnsupportedError(
                    f"output {spec.name!r} has the shape {list(shape)} for {rows} rows, and so no row for each; "
                    "leave it out: outputs={...} names those that are written"
                )
        return {spec.name: named[spec.name] for spec, _ in columns.outputs}


def _rows(feeds: dict[str, Array], start: int, count: int) -> dict[str, Array]:
    """`count` rows for a model that takes no other number: the last one again where there are fewer."""

    def taken(array: Array) -> Array:
        part = array[start : start + count]
        missing = count - len(part)
        return part if missing == 0 else np.concatenate([part, np.repeat(part[-1:], missing, axis=0)])

    return {name: taken(array) for name, array in feeds.items()}

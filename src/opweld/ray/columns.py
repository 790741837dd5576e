"""Columns of a dataset as inputs and outputs of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from opweld.errors import InputError, OptionError, UnsupportedError
from opweld.interface import shape_text
from opweld.serve.inference.model import TensorSpec
from opweld.serve.inference.tensors import Tensors

Array: TypeAlias = NDArray[Any]
Batch: TypeAlias = dict[str, Array]
"""Rows by column, along the first dim."""


@dataclass(frozen=True)
class Columns:
    """What is read of a dataset and written to it.

    Attributes:
        inputs: each input that is read, and from which column.
        feeds: each other input, the same for all rows.
        outputs: each output that is written, and to which column.
        keep: columns that stay; None for all.
    """

    inputs: tuple[tuple[TensorSpec, str], ...]
    feeds: Mapping[str, Array]
    outputs: tuple[tuple[TensorSpec, str], ...]
    keep: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        model: Tensors,
        inputs: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | None = None,
        keep: Sequence[str] | None = None,
        feeds: Mapping[str, Any] | None = None,
    ) -> Columns:
        """What is asked for of a model; by their own names what is not.

        Raises OptionError for names that the model does not have, and for a column that is written twice."""
        given, taken, fed = model.inputs, model.outputs, {spec.name: spec for spec in model.inputs}
        constants = {name: np.asarray(value) for name, value in (feeds or {}).items()}
        columns = dict(inputs or {})
        _check_names("inputs", columns, given)
        _check_names("feeds", constants, given)
        if both := sorted(columns.keys() & constants.keys()):
            raise OptionError(f"inputs and feeds both name {both[0]!r}: a column, or the same for all rows")
        names = {spec.name: spec.name for spec in taken} if outputs is None else dict(outputs)
        _check_names("outputs", names, taken)
        kept = None if keep is None else tuple(keep)
        written = [*names.values(), *(kept or ())]
        if twice := next((name for name in written if written.count(name) > 1), None):
            raise OptionError(
                f"the column {twice!r} would be written twice; name another with outputs={{OUTPUT: COLUMN}}"
            )
        return cls(
            tuple((spec, columns.get(spec.name, spec.name)) for spec in given if spec.name not in constants),
            {name: _constant(array, fed[name]) for name, array in constants.items()},
            tuple((spec, names[spec.name]) for spec in taken if spec.name in names),
            kept,
        )

    @property
    def rows(self) -> int | None:
        """How many rows a run takes where the model fixes it; None where it does not.

        Raises UnsupportedError where inputs disagree."""
        first = {spec.shape[0] for spec, _ in self.inputs if spec.shape and isinstance(spec.shape[0], int)}
        if len(first) > 1:
            raise UnsupportedError(
                f"the inputs fix different numbers of rows ({', '.join(map(str, sorted(first)))}): those that are no "
                "rows are given with feeds={INPUT: ARRAY}"
            )
        return next(iter(first), None)

    def check(self, names: Sequence[str]) -> None:
        """Raises InputError for a column that is read or kept and is not among `names`."""
        for spec, column in self.inputs:
            if column not in names:
                raise InputError(
                    f"input {spec.name!r} is read from the column {column!r}, and there is none; the columns are "
                    f"{_listed(names)}; name one with inputs={{{spec.name!r}: COLUMN}}"
                )
        for column in self.keep or ():
            if column not in names:
                raise InputError(
                    f"keep names the column {column!r}, and there is none; the columns are {_listed(names)}"
                )
        for spec, column in self.outputs:
            if self.keep is None and column in names:
                raise InputError(
                    f"output {spec.name!r} would replace the column {column!r}; name another with "
                    f"outputs={{{spec.name!r}: COLUMN}}, or the columns that stay with keep=[...]"
                )

    def read(self, batch: Batch) -> dict[str, Array]:
        """The feeds of a batch.

        Raises InputError naming the column for one that is missing, of another dtype, or ragged."""
        self.check(list(batch))
        return {spec.name: _tensor(column, batch[column], spec) for spec, column in self.inputs}

    def write(self, batch: Batch, made: Mapping[str, Array]) -> Batch:
        """A batch with the outputs of a model."""
        columns = dict(batch) if self.keep is None else {name: batch[name] for name in self.keep}
        for spec, column in self.outputs:
            array = made[spec.name]
            columns[column] = array.astype(stored_as(array.dtype), copy=False)
        return columns


def stored_as(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of a column for values of `dtype`: float32 for those that NumPy alone does not have."""
    return np.dtype(np.float32) if dtype.kind == "V" else dtype


def _constant(array: Array, spec: TensorSpec) -> Array:
    """An input that is the same for all rows: numbers without a dtype of their own take the model's."""
    if array.dtype == spec.dtype:
        return array
    converted = array.astype(spec.dtype)
    if not np.array_equal(converted.astype(array.dtype), array):
        raise InputError(f"feeds of input {spec.name!r}: expected {spec.dtype}, got {array.dtype}")
    return converted


def _tensor(column: str, values: Array, spec: TensorSpec) -> Array:
    if spec.dtype == object:
        return _texts(column, values, spec)
    if values.dtype == object:
        values = _stacked(column, values, spec)
    expected = stored_as(spec.dtype)
    if values.dtype != expected:
        raise InputError(
            f"column {column!r} is {values.dtype}, and input {spec.name!r} takes {expected}; convert it before: "
            f"dataset.map_batches(lambda rows: {{**rows, {column!r}: rows[{column!r}].astype({expected.name!r})}})"
        )
    return values.astype(spec.dtype, copy=False)


def _texts(column: str, values: Array, spec: TensorSpec) -> Array:
    flat = values.reshape(-1).tolist()
    wrong = next((value for value in flat if not isinstance(value, str | bytes)), "")
    if wrong != "":
        raise InputError(f"column {column!r} holds {type(wrong).__name__}, and input {spec.name!r} takes strings")
    return values.astype(object)


def _stacked(column: str, values: Array, spec: TensorSpec) -> Array:
    """Rows that are arrays or lists of their own as one array."""
    rows = [np.asarray(row) for row in cast("list[Any]", values.tolist())]
    if (empty := next((number for number, row in enumerate(rows) if row.dtype == object), None)) is not None:
        found = type(rows[empty].reshape(-1)[0]).__name__ if rows[empty].size else "nothing"
        raise InputError(
            f"column {column!r} holds {found} in row {empty} of a batch, and input {spec.name!r} takes {spec.dtype}; "
            "leave such rows out before: dataset.filter"
        )
    shapes = sorted({row.shape for row in rows})
    if len(shapes) > 1:
        shown = "" if spec.shape is None else f" of {shape_text(spec.shape)}"
        raise InputError(
            f"column {column!r} is ragged: rows of one batch have the shapes {list(shapes[0])} and {list(shapes[-1])}, "
            f"and input {spec.name!r}{shown} takes rows of one shape; pad them before, or take batch_size=1"
        )
    return np.stack(rows)


def _check_names(option: str, given: Mapping[str, object], specs: Sequence[TensorSpec]) -> None:
    known = [spec.name for spec in specs]
    for name in given:
        if name not in known:
            kind = "an output" if option == "outputs" else "an input"
            raise OptionError(f"{option} names {name!r}, which is not {kind} of the model; it has {_listed(known)}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"

"""A dataset with the outputs of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from opweld.errors import OptionError
from opweld.ray.columns import Columns
from opweld.ray.packages import data, ray
from opweld.ray.predictor import Predictor
from opweld.ray.shipment import Shipment, ship
from opweld.serve.inference.tensors import Tensors

if TYPE_CHECKING:
    from ray.data import Dataset

    from opweld.compile import Model, ModelSource


def predict(
    dataset: Dataset,
    model: ModelSource | Model,
    *,
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    keep: Sequence[str] | None = None,
    feeds: Mapping[str, Any] | None = None,
    batch_size: int = 32,
    actors: int | tuple[int, int] | None = None,
    threads: int = 1,
    **options: Any,
) -> Dataset:
    """A dataset with the outputs of a model as further columns, computed when it is read.

    Args:
        dataset: rows; a column of tensors, numbers or strings for each input.
        model: what `opweld.compile` takes, the folder of an artifact, or a compiled model. It is compiled here, once,
            and by nodes whose processor is another one; they must see the same path then. An artifact goes to each
            node once.
        inputs: the column that an input is read from, by input; the one of its name where there is none.
        outputs: the column that an output is written to, by output; None for all, by their names.
        keep: columns that stay; None for all.
        feeds: inputs that are the same for all rows, by name.
        batch_size: rows of a run. A model that fixes their number is run as often as it takes, on the last row again
            where rows are missing.
        actors: processes that have the model open, or the fewest and the most of them; as many as the cluster has
            processors for where None, one at least.
        threads: of each actor, for which Ray reserves as many processors.
        options: those of `opweld.compile`.

    Raises OptionError for names that the model does not have, InputError for columns that are missing, as far as Ray
    knows the columns without reading; when it is read, for those that do not fit."""
    shipment, columns = shipped(
        model, inputs=inputs, outputs=outputs, keep=keep, feeds=feeds, batch_size=batch_size, threads=threads, **options
    )
    if (names := column_names(dataset)) is not None:
        columns.check(names)
    fewest, most = _pool(actors, threads)
    return cast(Any, dataset).map_batches(
        Predictor,
        fn_constructor_args=(shipment, columns, threads),
        batch_size=batch_size,
        batch_format="numpy",
        compute=data.ActorPoolStrategy(min_size=fewest, max_size=most),
        num_cpus=threads,
    )


def shipped(
    model: ModelSource | Model,
    *,
    inputs: Mapping[str, str] | None,
    outputs: Mapping[str, str] | None,
    keep: Sequence[str] | None,
    feeds: Mapping[str, Any] | None,
    batch_size: int,
    threads: int,
    **options: Any,
) -> tuple[Shipment, Columns]:
    """A model in the object store, and what it reads and writes. Raises what `predict` does."""
    check_positive("batch_size", batch_size)
    check_positive("threads", threads)
    shipment = ship(model, threads, **options)
    columns = Columns.of(Tensors(shipment.open(threads)), inputs, outputs, keep, feeds)
    _ = columns.rows  # raises where inputs disagree
    return shipment, columns


def column_names(dataset: Dataset) -> list[str] | None:
    """The columns of a dataset, as far as they are known without running anything."""
    schema = cast(Any, dataset).schema(fetch_if_missing=False)
    return None if schema is None else list(schema.names)


def check_positive(option: str, value: object) -> None:
    """Raises OptionError for what is no number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise OptionError(f"{option} is {value!r}, expected a number of at least 1")


def processors() -> int:
    """Those of the cluster as it is now."""
    return int(ray.cluster_resources().get("CPU", 1))


def processors_of_a_node() -> int:
    """Those of the largest node of the cluster as it is now."""
    return max((int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]), default=0)


def _pool(actors: int | tuple[int, int] | None, threads: int) -> tuple[int, int]:
    if actors is None:
        return 1, max(1, processors() // threads)
    fewest, most = (actors, actors) if isinstance(actors, int) else actors
    check_positive("actors", fewest)
    check_positive("actors", most)
    if fewest > most:
        raise OptionError(f"actors is {actors!r}, expected the fewest before the most")
    return fewest, most

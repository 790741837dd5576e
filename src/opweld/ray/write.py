"""Files that a job writes which may be killed at any moment and begun again: no row is lost, and none is there twice.

The rows of a dataset are counted from its first; part n is the rows from n * part_rows on. A part is one file, which
appears complete under the name of its number. A job that is begun again reads the dataset again and computes the parts
that have no file yet. `_manifest.json` says what the files are of, so that no other job adds to them.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from opweld.build.turns import Holder, turn
from opweld.errors import InputError, OptionError
from opweld.ray.ahead import Ahead
from opweld.ray.columns import Columns
from opweld.ray.packages import parquet
from opweld.ray.parts import Part, Sized, blocks_of
from opweld.ray.predict import check_positive, column_names, processors, processors_of_a_node, shipped
from opweld.ray.shipment import Shipment
from opweld.ray.writers import LEFT, Writers, file_name, write_file
from opweld.shortage import shortages, unwritable
from opweld.typed import decoded, plain

if TYPE_CHECKING:
    from ray.data import Dataset

    from opweld.compile import Model, ModelSource

_log = logging.getLogger("opweld")

MANIFEST: Final = "_manifest.json"
_FORMAT: Final = 1
_PART_BYTES: Final = 64 << 20
_MOST_ROWS: Final = 1 << 20


@dataclass(frozen=True)
class Written:
    """What there is of an output.

    Attributes:
        folder: with a file of Parquet for each part.
        parts, rows: that are complete. found: of these parts, those that an earlier job had written.
        complete: whether that is all of the dataset.
    """

    folder: Path
    parts: int = 0
    rows: int = 0
    found: int = 0
    complete: bool = False


@dataclass(frozen=True)
class _Asked:
    """What the files of a folder are of, as its manifest says."""

    model: str
    inputs: Mapping[str, str]
    feeds: Mapping[str, str]
    outputs: Mapping[str, str]
    keep: tuple[str, ...] | None
    batch_size: int
    part_rows: int


@dataclass(frozen=True)
class _Manifest:
    format: int
    asked: _Asked
    parts: int | None = None
    rows: int | None = None


def write(
    dataset: Dataset,
    model: ModelSource | Model,
    folder: str | os.PathLike[str],
    *,
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    keep: Sequence[str] | None = None,
    feeds: Mapping[str, Any] | None = None,
    batch_size: int = 32,
    actors: int | None = None,
    threads: int = 1,
    part_rows: int | None = None,
    progress: Callable[[Written], None] | None = None,
    **options: Any,
) -> Written:
    """Writes a dataset with the outputs of a model as files of Parquet; begun again, it goes on.

    Args:
        dataset: in an order that is the same each time, as that of files, and without random steps.
        folder: on a file system that all nodes see under this path; empty, or of a job with the same arguments.
        actors: processes that compute and write; as many as the cluster has processors for, but one, where None.
        part_rows: rows of a file; what takes about 64 MiB of the dataset where None.
        progress: called with what there is, after each part.
        model, inputs, outputs, keep, feeds, batch_size, threads, options: as for `predict`.

    Actors and nodes may die meanwhile: their parts are computed elsewhere. Returns what there is in the end. Raises
    what `predict` and its datasets raise, OptionError where the folder holds something else or another job writes to
    it, or no node has as many processors as `threads`, InputError where its files do not fit the dataset, RunError
    where one actor after the other dies on a part or as it starts."""
    if part_rows is not None:
        check_positive("part_rows", part_rows)
    if actors is not None:
        check_positive("actors", actors)
    shipment, columns = shipped(
        model, inputs=inputs, outputs=outputs, keep=keep, feeds=feeds, batch_size=batch_size, threads=threads, **options
    )
    if (names := column_names(dataset)) is not None:
        columns.check(names)
    if threads > (most := processors_of_a_node()):
        raise OptionError(
            f"threads is {threads}, and no node of the cluster has more than {most} processors, so that no actor would "
            "ever start: take fewer, or start such a node first"
        )
    place = Path(folder).absolute()
    with shortages(), _alone(place):
        manifest, found = _begun(place), _found(place)
        asked = _asked(shipment, columns, batch_size, part_rows or 0)
        if manifest is not None:
            asked = _checked(place, asked, manifest.asked, given=part_rows)
            all_there = manifest.parts is not None and found.keys() == set(range(manifest.parts))
            if all_there and (rows := cast(Any, dataset).count()) == manifest.rows:  # it may have grown since
                return Written(place, len(found), rows, len(found), complete=True)
        blocks = blocks_of(dataset)
        if asked.part_rows == 0:
            blocks, rows = _chosen(blocks)
            asked = _asked(shipment, columns, batch_size, rows)
        _put(place, _Manifest(_FORMAT, asked))
        count = actors or max(1, (processors() - 1) // threads)
        writers = Writers(count, threads, shipment, columns, threads, str(place), batch_size)
        parts = Ahead(blocks, asked.part_rows)
        try:
            done = _write(place, parts, found, writers, progress)
        finally:
            writers.close()
            parts.close()
        _put(place, _Manifest(_FORMAT, asked, done.parts, done.rows))
    return done


def _write(
    folder: Path,
    parts: Ahead,
    found: Mapping[int, Path],
    writers: Writers,
    progress: Callable[[Written], None] | None,
) -> Written:
    """Computes the parts that have no file yet."""
    counted = {"parts": 0, "rows": 0, "found": 0}

    def tell(rows: int, **more: int) -> None:
        for name, count in {"parts": 1, "rows": rows, **more}.items():
            counted[name] += count
        _log.info("%s: %d rows in %d parts", folder, counted["rows"], counted["parts"])
        if progress is not None:
            progress(Written(folder, counted["parts"], counted["rows"], counted["found"]))

    last = -1

    def wanted(part: Part) -> bool:
        """Whether it has no file; of one that has, the rows are counted."""
        nonlocal last
        last = part.number
        if (path := found.get(part.number)) is None:
            return True
        if (rows := parquet.read_metadata(path).num_rows) != part.rows:
            raise InputError(
                f"{path} has {rows} rows, and the dataset {part.rows} in their place: it is another one than when the "
                "job was begun; name another folder"
            )
        tell(rows, found=1)
        return False

    for _, rows in writers.written(parts, wanted):
        tell(rows)
    if more := sorted(number for number in found if number > last):
        raise InputError(
            f"{found[more[0]]} is of rows that the dataset does not have: it is another one than when the job was "
            "begun; name another folder"
        )
    return Written(folder, counted["parts"], counted["rows"], counted["found"], complete=True)


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Makes the folder, and keeps other jobs from it during the block."""

    def refuse(holder: Holder | None) -> None:
        raise OptionError(f"{folder}: {holder or 'another process'} writes to it; name another folder, or wait for it")

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(error, folder) from error
    with turn(folder / "_lock", refuse):
        yield


def _begun(folder: Path) -> _Manifest | None:
    """What an earlier job began here. Raises OptionError where the folder holds something else."""
    for path in folder.glob(f"{LEFT}*"):  # what a job did not finish
        path.unlink(missing_ok=True)
    path = folder / MANIFEST
    if path.is_file():
        return decoded(_Manifest, path.read_text(encoding="utf-8"), str(path))
    if other := next((path for path in folder.iterdir() if path.name != "_lock"), None):
        raise OptionError(
            f"{folder} holds {other.name}, and no {MANIFEST} of a job that may go on; name another folder"
        )
    return None


def _found(folder: Path) -> dict[int, Path]:
    """Complete parts, by number. Raises OptionError for other files of Parquet: who reads the folder would read them
    too."""
    found: dict[int, Path] = {}
    for path in folder.glob("*.parquet"):
        number = path.stem.removeprefix("part-")
        if not number.isdecimal() or path.name != file_name(int(number)):
            raise OptionError(f"{folder} holds {path.name}, which is no part that a job wrote; move it elsewhere")
        found[int(number)] = path
    return found


def _asked(shipment: Shipment, columns: Columns, batch_size: int, part_rows: int) -> _Asked:
    return _Asked(
        shipment.identity,
        {spec.name: column for spec, column in columns.inputs},
        {name: f"{array.dtype} {array.tolist()}" for name, array in columns.feeds.items()},
        {spec.name: column for spec, column in columns.outputs},
        columns.keep,
        batch_size,
        part_rows,
    )


def _checked(folder: Path, asked: _Asked, before: _Asked, given: int | None) -> _Asked:
    """What is asked, with the part_rows of before where none are given. Raises OptionError where it is another job."""
    now, then = plain(asked), plain(before)
    if given is None:
        now["part_rows"] = then["part_rows"]
    for name, value in now.items():
        if value != then[name]:
            raise OptionError(
                f"{folder} is of a job with another {name} ({then[name]!r}, now {value!r}); name another folder, or "
                "remove this one"
            )
    return before


def _chosen(blocks: Generator[Sized]) -> tuple[Generator[Sized], int]:
    """Rows of a part, by the bytes of the first block that has any."""
    seen: list[Sized] = []
    rows = _MOST_ROWS
    for sized in blocks:
        seen.append(sized)
        if count := sized.piece.stop - sized.piece.start:
            rows = min(_MOST_ROWS, max(1, _PART_BYTES * count // max(1, sized.bytes)))
            break
    return _chained(seen, blocks), rows


def _chained(seen: Sequence[Sized], blocks: Generator[Sized]) -> Generator[Sized]:
    with closing(blocks):
        yield from seen
        yield from blocks


def _put(folder: Path, manifest: _Manifest) -> None:
    text = json.dumps(plain(manifest), indent=2, ensure_ascii=False) + "\n"
    write_file(folder / MANIFEST, lambda file: file.write(text.encode()))

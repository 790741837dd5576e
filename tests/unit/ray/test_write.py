"""A folder that a job writes: what it holds already, what is added to it, and what is refused; with a cluster that is
none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opweld.errors import InputError, OptionError

pytest.importorskip("pyarrow")

from opweld.ray import Written, write
from opweld.ray.ahead import Ahead
from opweld.ray.packages import package, parquet
from opweld.ray.parts import Part, Piece, Sized
from opweld.ray.writers import file_name

pa = package("pyarrow")


class Dataset:
    """Numbers from 0, in blocks of 4."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def schema(self, fetch_if_missing: bool) -> None:
        return None

    def count(self) -> int:
        return self.rows

    def blocks(self) -> Iterator[Sized]:
        for start in range(0, self.rows, 4):
            block = pa.table({"id": list(range(start, min(start + 4, self.rows)))})
            yield Sized(Piece(block, 0, block.num_rows), 1)


class Writers:
    """Writes the rows as they are, in this process."""

    def __init__(self, *arguments: Any) -> None:
        self.folder = Path(arguments[5])

    def written(self, parts: Ahead, wanted: Callable[[Part], bool]) -> Iterator[tuple[Part, int]]:
        while not parts.ended:
            if (part := parts.take(1)) is not None and wanted(part):
                table = pa.concat_tables([piece.block[piece.start : piece.stop] for piece in part.pieces])
                parquet.write_table(table, self.folder / file_name(part.number))
                yield part, part.rows

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a node with 2 processors and one that died with 8."""
    module = package("opweld.ray.write")  # whose name in the package is the function's
    columns = SimpleNamespace(inputs=(), feeds={}, outputs=(), keep=None)
    monkeypatch.setattr(module, "shipped", lambda *_, **__: (SimpleNamespace(identity="a model"), columns))
    monkeypatch.setattr(module, "blocks_of", Dataset.blocks)
    monkeypatch.setattr(module, "Writers", Writers)
    ray = package("opweld.ray.predict").ray
    nodes = [{"Alive": True, "Resources": {"CPU": 2.0}}, {"Alive": False, "Resources": {"CPU": 8.0}}]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})


def written(folder: Path, rows: int, **options: Any) -> Written:
    dataset: Any = Dataset(rows)
    return write(dataset, "model.onnx", folder, part_rows=3, **options)


def ids(folder: Path) -> list[int]:
    return [row for path in sorted(folder.glob("*.parquet")) for row in parquet.read_table(path)["id"].to_pylist()]


def test_a_dataset_that_is_the_same_is_complete(tmp_path: Path) -> None:
    written(tmp_path, 10)
    assert written(tmp_path, 10) == Written(tmp_path, parts=4, rows=10, found=4, complete=True)


def test_a_dataset_that_has_grown_by_parts_has_them_written(tmp_path: Path) -> None:
    written(tmp_path, 9)
    assert written(tmp_path, 11) == Written(tmp_path, parts=4, rows=11, found=3, complete=True)
    assert ids(tmp_path) == list(range(11))


def test_a_dataset_that_has_grown_within_a_part_is_another_one(tmp_path: Path) -> None:
    written(tmp_path, 10)
    with pytest.raises(InputError, match=r"part-00000003.parquet has 1 rows, and the dataset 2 in their place"):
        written(tmp_path, 11)


@pytest.mark.parametrize("name", ["part-x.parquet", "part-1.parquet", "part-00000001 (copy).parquet"])
def test_files_that_readers_would_take_for_parts_are_refused(tmp_path: Path, name: str) -> None:
    written(tmp_path, 10)
    (tmp_path / name).touch()
    with pytest.raises(OptionError) as error:
        written(tmp_path, 10)
    assert f"holds {name}, which is no part that a job wrote" in str(error.value)


def test_more_threads_than_a_node_has_processors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="threads is 3, and no node of the cluster has more than 2 processors"):
        written(tmp_path / "folder", 10, threads=3)
    assert not (tmp_path / "folder").exists()
    assert written(tmp_path, 10, threads=2).complete


def test_a_manifest_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    replaced: list[int] = []

    def fsync(file: int) -> None:
        synced.append(os.fstat(file).st_ino)

    def replace(path: str, place: Path) -> None:
        replaced.append(os.stat(path).st_ino)
        assert replaced == synced

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    written(tmp_path, 10)
    assert len(replaced) == 2  # when the job begins, and when it ends

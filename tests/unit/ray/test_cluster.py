"""On two nodes, which are processes of this machine: actors and nodes die, and nothing is lost or doubled."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opweld
from opweld.errors import InputError, OptionError, ShortageError
from tests.patience import PATIENCE_S
from tests.unit.ray.models import ROWS, write_model

pytest.importorskip("pyarrow")

from opweld.ray import Written, predict, write, writers
from opweld.ray.packages import data, package, ray

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

COUNT = 4000
NODE = {"num_cpus": 2, "object_store_memory": 96 << 20}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A node that is the driver's, and another one."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = package("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args={**NODE, "include_dashboard": False}
    )
    cluster.add_node(**NODE)
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    data.DataContext.get_current().enable_progress_bars = False
    yield cluster
    workers = processes("ray::")
    assert workers
    ray.shutdown()
    cluster.shutdown()
    wait_until_ended(workers)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_model(ROWS, tmp_path_factory.mktemp("model"))
    opweld.compile(path)
    return path


def rows_of(batch: dict[str, Any]) -> dict[str, Any]:
    ids = batch["id"]
    return {"id": ids, "x": np.stack([ids, ids % 7, ids % 3], axis=1).astype(np.float32)}


def dataset(count: int = COUNT) -> Any:
    return data.range(count, override_num_blocks=40).map_batches(rows_of)


def right(ids: np.ndarray) -> np.ndarray:
    x = rows_of({"id": ids})["x"]
    return np.maximum(x @ np.array([[1, 2], [3, 4], [5, 6]], np.float32), 0)


def check(folder: Path, count: int = COUNT) -> None:
    """Every row is there once, in order, with its answer."""
    import pyarrow.parquet as parquet

    parts = [parquet.read_table(path) for path in sorted(folder.glob("part-*.parquet"))]
    ids = np.concatenate([part["id"].to_numpy() for part in parts])
    assert np.array_equal(ids, np.arange(count))
    y = np.concatenate([np.stack(part["y"].to_numpy(zero_copy_only=False)) for part in parts])
    assert np.array_equal(y.reshape(-1, 2), right(ids))


def ancestors(process: Path) -> Iterator[int]:
    """Of a folder of /proc."""
    while process.name != "0":
        process = process.parent / (process / "stat").read_text().rpartition(")")[2].split()[1]
        yield int(process.name)


def processes(title: str) -> list[int]:
    """Those of the cluster whose title begins so."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().startswith(title.encode()) and os.getpid() in ancestors(folder):
                found.append(int(folder.name))
        except OSError:  # it has ended
            continue
    return found


def wait_until_ended(processes: list[int]) -> None:
    end = time.monotonic() + PATIENCE_S
    while left := [process for process in processes if Path(f"/proc/{process}/exe").exists()]:
        assert time.monotonic() < end, left
        time.sleep(0.1)


class Killer:
    """Does something after so many parts."""

    def __init__(self, **at: Any) -> None:
        self.at = {int(name.removeprefix("after_")): does for name, does in at.items()}
        self.last = Written(Path())

    def __call__(self, written: Written) -> None:
        self.last = written
        if (does := self.at.pop(written.parts, None)) is not None:
            does()


def kill_writer() -> None:
    """Kills one, when there is one: those that a dead node took along are started again."""
    end = time.monotonic() + PATIENCE_S
    while not (found := processes("ray::Writer")):
        assert time.monotonic() < end
        time.sleep(0.1)
    os.kill(found[0], signal.SIGKILL)


def test_predictions_have_the_rows_of_the_dataset(cluster: Any, model: Path) -> None:
    made = predict(dataset(), model, batch_size=64, actors=2).take_all()
    ids = np.array([row["id"] for row in made])
    assert np.array_equal(np.sort(ids), np.arange(COUNT))
    assert np.array_equal(np.stack([row["y"] for row in made]), right(ids))


def test_an_actor_of_a_prediction_dies(cluster: Any, model: Path, tmp_path: Path) -> None:
    once = tmp_path / "killed"

    def kill(batch: dict[str, Any]) -> dict[str, Any]:
        """Ray has the actors do it, as there is nothing between them: half of the rows are still to come."""
        if COUNT // 2 in batch["id"] and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    made = predict(dataset().map_batches(kill), model, batch_size=16, actors=2).take_all()
    assert once.exists()
    ids = np.array([row["id"] for row in made])
    assert np.array_equal(np.sort(ids), np.arange(COUNT))
    assert np.array_equal(np.stack([row["y"] for row in made]), right(ids))


def test_a_column_that_does_not_fit_is_named(cluster: Any, model: Path) -> None:
    with pytest.raises(Exception, match="column 'id' is int64, and input 'x' takes float32"):
        predict(dataset(), model, inputs={"x": "id"}).take_all()


def test_actors_and_a_node_die(cluster: Any, model: Path, tmp_path: Path) -> None:
    node = cluster.add_node(**NODE)

    def kill_node() -> None:
        cluster.remove_node(node, allow_graceful=False)

    killer = Killer(after_3=kill_writer, after_6=kill_node, after_9=kill_writer)
    done = write(dataset(), model, tmp_path, batch_size=16, actors=4, part_rows=150, progress=killer)
    assert (done.rows, done.parts, done.complete) == (COUNT, -(-COUNT // 150), True)
    assert not killer.at
    check(tmp_path)


class KilledError(Exception):
    pass


def test_a_job_that_is_begun_again_goes_on(cluster: Any, model: Path, tmp_path: Path) -> None:
    def die() -> None:
        raise KilledError

    with pytest.raises(KilledError):
        write(dataset(), model, tmp_path, part_rows=150, progress=Killer(after_5=die))
    (tmp_path / ".new-half").write_bytes(b"half of a part")
    there = {path: path.stat().st_mtime_ns for path in tmp_path.glob("part-*")}
    assert 5 <= len(there) < COUNT // 150
    done = write(dataset(), model, tmp_path)
    assert (done.found, done.rows) == (len(there), COUNT)
    assert there == {path: path.stat().st_mtime_ns for path in there}
    assert not (tmp_path / ".new-half").exists()
    check(tmp_path)
    assert write(dataset(), model, tmp_path).found == done.parts
    with pytest.raises(OptionError, match="is of a job with another batch_size"):
        write(dataset(), model, tmp_path, batch_size=8)


def test_another_dataset_is_not_written_among_the_rows_of_one(cluster: Any, model: Path, tmp_path: Path) -> None:
    write(dataset(400), model, tmp_path, part_rows=150)
    (tmp_path / "part-00000001.parquet").unlink()
    with pytest.raises(InputError, match=r"part-00000002.parquet has 100 rows, and the dataset 150 in their place"):
        write(dataset(1000), model, tmp_path)


def test_what_one_part_raises_ends_the_job(cluster: Any, model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="column 'id' is int64, and input 'x' takes float32"):
        write(dataset(), model, tmp_path, inputs={"x": "id"})
    assert not list(tmp_path.glob("part-*"))


def slow(batch: dict[str, Any]) -> dict[str, Any]:
    time.sleep(1)
    return batch


class FullDisk(writers.Writer):
    """What an actor is on a node where the artifact has no room."""

    def __init__(self, *_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_the_start_of_an_actor_raises_ends_the_job(
    cluster: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "Writer", FullDisk)
    with pytest.raises(ShortageError, match="make room") as raised:
        write(dataset().map_batches(slow, batch_size=100), model, tmp_path)
    reading = [thread.name for thread in threading.enumerate() if thread.name.startswith("StreamingExecutor")]
    assert not reading, raised  # though the error holds the frames of the job


def test_actors_leave_a_processor_to_reading(cluster: Any, model: Path, tmp_path: Path) -> None:
    """More are asked for than there are processors, so that none would be left when all of them are there."""
    done = write(dataset(), model, tmp_path, actors=6, part_rows=500)
    assert done.rows == COUNT
    check(tmp_path)

"""Batches on a cluster of two nodes, as processes of this machine: what actors take of memory, and what dying costs.

    python -m benchmarks.ray_batch                           100,000 rows through MiniLM, an actor and a node killed
    python -m benchmarks.ray_batch --rows 20000 --models minilm

First a table of memory: actors that have a model open and have run a batch, by opweld and by ONNX Runtime, beside
actors that have none. RSS counts the pages that a process maps; PSS counts a page that n processes share as 1/n, so
that its sum is what they take together.

Then rows go through `opweld.ray.write` while an actor is killed after a tenth of them, a node after a third, and the
job itself after two thirds; it is begun again. Every row must be there once, in order, with the answer that the model
gives here. Exits with 1 where one is not.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import opweld
from benchmarks.zoo import fetch, inputs

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

NODE: dict[str, Any] = {"num_cpus": 2, "object_store_memory": 128 << 20}
TOKENS, DISTINCT = 12, 4096
ACTORS = (1, 2, 4)


@contextmanager
def cluster() -> Generator[tuple[Any, Any]]:
    """Two nodes; the second one may be killed."""
    from ray.cluster_utils import Cluster

    from opweld.ray.packages import data, ray

    nodes = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    second = nodes.add_node(**NODE)
    ray.init(address=nodes.address, logging_level="ERROR", log_to_driver=False)
    data.DataContext.get_current().enable_progress_bars = False
    try:
        yield nodes, second
    finally:
        ray.shutdown()
        nodes.shutdown()


class Opened:
    """An actor with a model open, by opweld, by ONNX Runtime, or with none."""

    def __init__(self, by: str, model: str, feeds: dict[str, Any]) -> None:
        if by == "opweld":
            from opweld.runtime.session import Session

            self.session: Any = Session(model, threads=1)
            self.session.run(feeds)
        elif by == "ONNX Runtime":
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            self.session = onnxruntime.InferenceSession(model, options)
            self.session.run(None, feeds)

    def memory(self) -> dict[str, float]:
        """MB: of the process as it is."""
        text = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
        found = {name: int(kilobytes) / 1024 for name, kilobytes in re.findall(r"^(\w+):\s+(\d+) kB", text, re.M)}
        return {"rss": found["Rss"], "pss": found["Pss"], "own": found["Private_Dirty"] + found["Private_Clean"]}


def memory(models: list[str]) -> None:
    """Prints the table."""
    from opweld.ray.packages import ray

    print(f"{'':13}{'model':12}{'actors':>7}{'RSS each':>10}{'own each':>10}{'PSS of all':>12}   MB", flush=True)
    for by, name in [("nothing", "")] + [(by, name) for name in models for by in ("opweld", "ONNX Runtime")]:
        feeds = inputs.example(name) if name else {}
        path = str(opweld.compile(fetch.path(name)).path if by == "opweld" else fetch.path(name)) if name else ""
        for count in ACTORS:
            kind = ray.remote(num_cpus=1)(Opened)
            actors = [kind.remote(by, path, feeds) for _ in range(count)]
            ray.get([actor.memory.remote() for actor in actors])  # all of them have run
            found = ray.get([actor.memory.remote() for actor in actors])
            rss, own = (np.mean([one[what] for one in found]) for what in ("rss", "own"))
            print(
                f"{by:13}{name:12}{count:7}{rss:10.0f}{own:10.0f}{sum(one['pss'] for one in found):12.0f}", flush=True
            )
            for actor in actors:
                ray.kill(actor)


def texts_of(batch: dict[str, Any]) -> dict[str, Any]:
    """Rows by number: one of so many different texts each."""
    kind = batch["id"] % DISTINCT
    tokens = 1000 + (kind[:, None] * 7919 + np.arange(TOKENS) * 104729) % 20000
    return {
        "id": batch["id"],
        "input_ids": tokens.astype(np.int64),
        "attention_mask": np.ones_like(tokens),
    }


def writers() -> list[int]:
    """Processes that are actors of a job."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().startswith(b"ray::Writer"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


class JobKilledError(Exception):
    """In the place of a signal to this process."""


def faults(nodes: Any, second: Any, rows: int) -> bool:
    """Whether every row is there."""
    from opweld.ray import Written, write
    from opweld.ray.packages import data

    model = opweld.compile(fetch.path("minilm"))
    told = time.perf_counter()

    def tell(text: str) -> None:
        print(f"{time.perf_counter() - told:7.1f} s  {text}", flush=True)

    def kill_actor() -> None:
        os.kill(writers()[0], signal.SIGKILL)

    def kill_node() -> None:
        nodes.remove_node(second, allow_graceful=False)

    def kill_job() -> None:
        raise JobKilledError

    at = {rows // 10: ("an actor is killed", kill_actor), rows // 3: ("a node is killed", kill_node),
          rows * 2 // 3: ("the job is killed", kill_job)}  # fmt: skip

    def progress(written: Written) -> None:
        if (due := next((count for count in at if count <= written.rows), None)) is not None:
            what, kill = at.pop(due)
            tell(f"{written.rows} rows in {written.parts} parts; {what}")
            kill()

    output = model.outputs[-1].name  # the vector of a text
    with tempfile.TemporaryDirectory() as folder:
        asked: dict[str, Any] = {
            "outputs": {output: "answer"}, "keep": ["id"], "batch_size": 64, "actors": 3, "progress": progress,
            "part_rows": max(64, rows // 100),
        }  # fmt: skip

        def dataset() -> Any:
            return data.range(rows, override_num_blocks=200).map_batches(texts_of)

        tell(f"{rows} rows, 3 actors")
        try:
            write(dataset(), model, folder, **asked)
        except JobKilledError:
            done = write(dataset(), model, folder, **asked)
            tell(f"{done.rows} rows in {done.parts} parts, of which {done.found} were there when it was begun again")
        return right(Path(folder), rows, expected(model, output))


def expected(model: opweld.Model, output: str) -> NDArray[Any]:
    """The answer to each text."""
    feeds = texts_of({"id": np.arange(DISTINCT)})
    del feeds["id"]
    runs = [
        model.run({name: array[start : start + 64] for name, array in feeds.items()})[output]
        for start in range(0, DISTINCT, 64)
    ]
    return np.concatenate(runs)


def right(folder: Path, rows: int, answers: NDArray[Any]) -> bool:
    """Whether the rows are there once, in order, each with its answer."""
    from opweld.ray.packages import parquet

    tables = [parquet.read_table(path) for path in sorted(folder.glob("part-*.parquet"))]
    ids = np.concatenate([table["id"].to_numpy() for table in tables])
    in_order = np.array_equal(ids, np.arange(rows))
    worst = 0.0
    for table in tables:
        column = table["answer"].combine_chunks()
        made = getattr(column, "storage", column).flatten().to_numpy().reshape(len(table), -1)
        right = answers.reshape(DISTINCT, -1)[table["id"].to_numpy() % DISTINCT]
        worst = max(worst, float(np.abs(made - right).max()))
    print(f"rows there once, in order: {in_order}; largest difference of an answer: {worst:.2g}", flush=True)
    return in_order and worst < 1e-5


def main() -> None:
    """Both parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--models", nargs="*", default=["resnet50", "minilm"])
    arguments = parser.parse_args()
    with cluster() as (nodes, second):
        if arguments.models:
            memory(arguments.models)
        if arguments.rows and not faults(nodes, second, arguments.rows):
            sys.exit(1)


if __name__ == "__main__":
    main()

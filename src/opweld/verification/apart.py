"""Compiled models run in a process of their own: a kernel at fault may end it, and whoever asks goes on."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from opweld.errors import OpweldError, RunError
from opweld.runtime.session import Session

Array = NDArray[Any]

MAX_SECONDS = 600
"""How long a run may take."""


class Apart:
    """A process that runs artifacts, one after the other; a new one is started when it has ended."""

    def __init__(self) -> None:
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None

    def run(self, folder: Path, threads: int | None, feeds: Mapping[str, Any]) -> list[Array]:
        """What `Session.run_tensors` answers. Raises RunError where it raises, where the process ends, or where it
        takes longer than `MAX_SECONDS`."""
        process, connection = self._started()
        try:
            connection.send((str(folder), threads, dict(feeds)))
            if not connection.poll(MAX_SECONDS):
                self.close()
                raise RunError(f"the run took more than {MAX_SECONDS} seconds")
            problem, outputs = connection.recv()
        except (EOFError, OSError) as error:
            process.join()
            self.close()
            raise RunError(f"the run ended its process: {_ending(process.exitcode)}") from error
        if problem:
            raise RunError(problem)
        return outputs

    def close(self) -> None:
        """Ends the process."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._connection = None

    def __enter__(self) -> Apart:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self) -> tuple[BaseProcess, Connection]:
        if self._process is None or self._connection is None:
            # Not forked: the threads of other runtimes do not survive that.
            context = multiprocessing.get_context("spawn")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        return self._process, self._connection


def _serve(connection: Connection) -> None:
    """Answers (folder, threads, feeds) with (what went wrong, outputs) until nobody asks."""
    while True:
        try:
            folder, threads, feeds = connection.recv()
        except EOFError:
            return
        problem, outputs = "", list[Array]()
        try:
            outputs = Session(folder, threads=threads).run_tensors(feeds)
        except OpweldError as error:
            problem = str(error)
        connection.send((problem, outputs))


def _ending(code: int | None) -> str:
    if code is None or code >= 0:
        return f"status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"

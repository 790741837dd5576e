"""Compiles an ONNX file in a process of its own, so that a server answers meanwhile, whatever becomes of it.

`python -m opweld.serve.inference.compiling FILE` writes a line of JSON for each thing that it tells: how far it is, the
folder of the artifact, or why there is none. It ends where its standard input does: nobody waits for it any more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from opweld import errors
from opweld.errors import ClosedError, OpweldError, ToolchainError

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all)."""

_NICER: Final = 10
"""Compiling gives way to answers."""


class Compiler:
    """Compiles in processes that end with it, and with the process that it is in, however that ends."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def compiled(self, model: Path, progress: Progress | None = None) -> Path:
        """The artifact of an ONNX file in the user's cache. Blocks until it is there; in any thread.

        Raises what compiling raises, ToolchainError where its process ends without a word."""
        folder: Path | None = None
        error: OpweldError | None = None
        with self._started(model) as run:
            assert run.stdout is not None
            try:
                for line in run.stdout:
                    told: dict[str, Any] = json.loads(line)
                    if "folder" in told:
                        folder = Path(told["folder"])
                    elif "error" in told:
                        error = _error(told["error"], told["message"])
                    elif progress is not None:
                        progress(told["stage"], told["done"], told["total"])
            except BaseException:
                run.kill()
                raise
            finally:
                with self._lock:
                    self._running.discard(run)
        if error is not None:
            raise error
        if folder is None:
            raise ToolchainError(f"{model}: the process that compiled it ended with status {run.returncode}")
        return folder

    def close(self) -> None:
        """Ends what is being compiled, and compiles no more."""
        with self._lock:
            self._closed = True
            for run in self._running:
                run.kill()

    def _started(self, model: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "opweld.serve.inference.compiling", str(model.absolute())]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with self._lock:
            if self._closed:
                raise ClosedError(f"{model} is not compiled: the models are being closed")
            run = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            self._running.add(run)
        return run


def _error(name: str, message: str) -> OpweldError:
    """An error of the other process. `name`: of its class."""
    kind: Any = getattr(errors, name, OpweldError)
    return kind(message) if isinstance(kind, type) and issubclass(kind, OpweldError) else OpweldError(message)


def main(model: Path) -> None:
    """Compiles a model, and tells of it on standard output."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    os.nice(_NICER)
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else writes there is no message

    def tell(**fields: Any) -> None:
        told.write(json.dumps(fields) + "\n")
        told.flush()

    from opweld.cached import compile_model
    from opweld.options import Options

    try:
        folder = compile_model(model, Options(), lambda stage, done, total: tell(stage=stage, done=done, total=total))
        tell(folder=str(folder))
    except OpweldError as error:
        tell(error=type(error).__name__, message=str(error))


def _end_with_input() -> None:
    os.read(0, 1)  # not by `sys.stdin`, whose lock a thread may not hold at the end
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

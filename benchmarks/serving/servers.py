"""Servers as processes of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.serving.requests import Load

PEERS = Path(__file__).parent / "peers"
PATIENCE_S = 300.0
"""Until a server is ready, which compiles models first."""


@dataclass(frozen=True)
class Address:
    """Of a server that is ready. log: what it wrote; process: its number, for its memory."""

    http: int
    grpc: int
    log: Path
    process: int


@contextmanager
def opweld(loads: Sequence[Load], folder: Path, options: Sequence[str] = ()) -> Generator[Address]:
    """`opweld serve` on a repository of the models."""
    for load in loads:
        place = folder / "models" / load.name / "1"
        place.mkdir(parents=True, exist_ok=True)
        if not (place / "model.onnx").exists():
            (place / "model.onnx").symlink_to(load.file)
        (place.parent / "opweld.toml").write_text(load.settings)
    http, grpc = _free(2)
    command = [sys.executable, "-m", "opweld", "serve", str(folder / "models"), "--port", str(http)]
    with _process([*command, "--grpc-port", str(grpc), *options], folder, "opweld", http, grpc) as address:
        yield address


@contextmanager
def plain(loads: Sequence[Load], folder: Path, threads: int, calls: int, python: str) -> Generator[Address]:
    """FastAPI and ONNX Runtime."""
    (http,) = _free(1)
    models = [f"{load.name}={load.file}" for load in loads]
    command = [python, str(PEERS / "plain.py"), str(http), str(threads), str(calls), *models]
    with _process(command, folder, f"plain-{threads}x{calls}", http, 0) as address:
        yield address


@contextmanager
def mlserver(loads: Sequence[Load], folder: Path, threads: int, batch: int, python: str) -> Generator[Address]:
    """MLServer and ONNX Runtime in one process. batch: the most requests that it puts together; 0: it does not."""
    http, grpc, metrics = _free(3)
    home = folder / f"mlserver-{batch}"
    home.mkdir(exist_ok=True)
    settings = {"http_port": http, "grpc_port": grpc, "metrics_port": metrics, "parallel_workers": 0, "debug": False}
    (home / "settings.json").write_text(json.dumps(settings))
    for load in loads:
        model = {
            "name": load.name,
            "implementation": "mlserver_onnx.OnnxModel",
            "parameters": {"uri": str(load.file)},
            "max_batch_size": batch,
            "max_batch_time": 0.005 if batch else 0,
        }
        (home / load.name).mkdir(exist_ok=True)
        (home / load.name / "model-settings.json").write_text(json.dumps(model))
    command = [python, "-m", "mlserver.cli.main", "start", str(home)]
    environment = {"PYTHONPATH": str(PEERS), "BENCHMARK_THREADS": str(threads)}
    if not Path(python).exists():
        raise SystemExit(f"there is no {python}: make a venv and install mlserver and onnxruntime into it")
    with _process(command, home, f"mlserver-{batch}", http, grpc, environment) as address:
        yield address


@contextmanager
def pytriton(loads: Sequence[Load], folder: Path, threads: int, batch: int, python: str) -> Generator[Address]:
    """Triton Inference Server and ONNX Runtime in a Python function. batch: the most rows that it puts together."""
    http, grpc = _free(2)
    if not Path(python).exists():
        raise SystemExit(f"there is no {python}: make a venv and install nvidia-pytriton and onnxruntime into it")
    # Its processes embed Python, of which the library is not where a system has it.
    library = subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"])
    models = [f"{load.name}={load.file}" for load in loads]
    command = [python, str(PEERS / "pytriton_onnx.py"), *map(str, (http, grpc, threads, batch)), *models]
    environment = {"LD_LIBRARY_PATH": library.decode().strip(), "PYTHONPATH": ""}
    ready = [f"models/{load.name}" for load in loads]  # itself it is ready before it has any
    with _process(command, folder, f"pytriton-{threads}x{batch}", http, grpc, environment, ready) as address:
        yield address


def _free(count: int) -> list[int]:
    """Ports that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


@contextmanager
def _process(
    command: Sequence[str],
    folder: Path,
    name: str,
    http: int,
    grpc: int,
    environment: Mapping[str, str] | None = None,
    ready: Sequence[str] = ("health",),
) -> Generator[Address]:
    """A process, once it is ready; ended with the block. ready: what of it must be, as paths between v2 and ready."""
    log = folder / f"{name}.log"
    with log.open("w") as written:
        process = subprocess.Popen(
            command,
            stdout=written,
            stderr=subprocess.STDOUT,
            env=os.environ | (environment or {}),
            cwd=folder,
            start_new_session=True,
        )
        try:
            for path in ready:
                _wait_until_ready(process, http, path, log)
            yield Address(http, grpc, log, process.pid)
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], http: int, path: str, log: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{http}/v2/{path}/ready", timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"the server did not become ready; {log} says:\n{log.read_text()[-3000:]}")

"""`opweld serve` of models of tensors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.patience import PATIENCE_S
from tests.unit.serve.fakes import eventually
from tests.unit.serve.inference.small import plus, saved

ROOT = Path(__file__).parents[4]
CERTIFICATES = Path(__file__).parents[1] / "open_inference" / "certificates"

_WITHOUT = """
import sys
for name in ("tokenizers", "jinja2", "llguidance", "onnx", "onnx_ir"):
    sys.modules[name] = None
from opweld.cli import main
main.main()
"""
"""The command line where nothing is installed that language models or compiling need."""


@contextmanager
def started(*arguments: str) -> Generator[tuple[subprocess.Popen[str], str, str]]:
    """A server, what it said until it listened, and its address."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _WITHOUT, "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, env=environment, cwd=ROOT, text=True, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            said = ""
            while "Ctrl-C" not in said:
                line = process.stderr.readline()
                assert line, said
                said += line
            yield process, said, said.rpartition("opweld: ")[2].partition("/, ")[0]
        finally:
            process.kill()


def is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health/ready", timeout=PATIENCE_S) as answer:
            return answer.status == 200
    except urllib.error.URLError:
        return False


def posted(url: str, body: Any) -> Any:
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=PATIENCE_S) as answer:
        return json.load(answer)


def test_a_folder_of_models(tmp_path: Path) -> None:
    saved(plus(1), tmp_path / "plus/1/model.opweld")
    (tmp_path / "broken").mkdir()
    with started(str(tmp_path)) as (process, said, address):
        assert "opweld: plus: version 1 loaded" in said and "broken holds neither an artifact, an .onnx file" in said
        eventually(lambda: is_ready(address))
        body = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}
        answer = posted(f"{address}/v2/models/plus/infer", body)
        assert answer["outputs"][0]["data"] == [2, 3, 4]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def server_of(process: subprocess.Popen[str]) -> int:
    """The process that a supervisor watches."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    return int(children[0])


@pytest.mark.slow
def test_a_server_that_is_killed_is_started_again(tmp_path: Path) -> None:
    saved(plus(1), tmp_path / "plus.opweld")
    body = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}
    with started(str(tmp_path)) as (process, _, address):
        for _ in range(3):
            eventually(lambda: is_ready(address))
            pid = server_of(process)
            os.kill(pid, signal.SIGKILL)
            # Whoever comes meanwhile is not refused, but answered by the next one.
            assert posted(f"{address}/v2/models/plus/infer", body)["outputs"][0]["data"] == [2, 3, 4]
            assert server_of(process) != pid
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def test_grpc_tls_and_shared_memory(tmp_path: Path) -> None:
    saved(plus(1), tmp_path / "plus.opweld")
    pem = {name: str(CERTIFICATES / name) for name in ("server.pem", "server.key", "authority.pem")}
    secured = ("--tls-cert", pem["server.pem"], "--tls-key", pem["server.key"])
    with started(str(tmp_path / "plus.opweld"), "--grpc-port", "0", "--shared-memory", *secured) as (_, said, address):
        assert address.startswith("https://127.0.0.1:")
        grpc_address = said.rpartition("gRPC at ")[2].partition(";")[0]
        credentials = grpc.ssl_channel_credentials((CERTIFICATES / "authority.pem").read_bytes())
        with grpc.secure_channel(grpc_address, credentials) as channel:
            told = channel.unary_unary("/inference.GRPCInferenceService/ServerMetadata")
            assert b"system_shared_memory" in told(b"", timeout=PATIENCE_S, wait_for_ready=True)

"""A deployment of Ray Serve answers as `opweld serve` does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import opweld
from opweld.errors import OptionError
from tests.patience import PATIENCE_S
from tests.unit.ray.models import ROWS, write_model

pytest.importorskip("pyarrow")
pytest.importorskip("grpc_reflection")

from opweld.ray import application, deployment
from opweld.ray.packages import package, ray

TAKE = "from opweld.ray.processors import take_processors as take; print(take({}), flush=True); input()"


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(OptionError, match="threads is 0"):
        deployment("models", threads=0)
    with pytest.raises(OptionError, match="replicas is 'many', expected a number of at least 1, or \"auto\""):
        deployment("models", replicas="many")
    with pytest.raises(OptionError, match="'thread' is no argument of a deployment; there are models, replicas"):
        application({"models": "models", "thread": 1})
    with pytest.raises(OptionError, match="needs the argument 'models'"):
        application({})


@pytest.mark.slow
def test_a_processor_is_taken_by_one_process(cache_folder: Path) -> None:
    def taking(count: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", TAKE.format(count)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    there = sorted(os.sched_getaffinity(0))
    with taking(len(there)) as first:
        assert first.stdout and json.loads(first.stdout.readline()) == there
        with taking(1) as second:
            assert second.stdout and json.loads(second.stdout.readline()) == []
            second.communicate("\n")
        first.communicate("\n")
    with taking(1) as third:
        assert third.stdout and json.loads(third.stdout.readline()) == there[:1]
        third.communicate("\n")


@pytest.fixture
def running() -> Iterator[None]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, object_store_memory=96 << 20, include_dashboard=False, logging_level="ERROR")
    yield
    package("ray.serve").shutdown()
    ray.shutdown()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def answer(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        return json.loads(response.read())


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_deployment_answers(running: None, tmp_path: Path) -> None:
    opweld.compile(write_model(ROWS, tmp_path)).save(tmp_path / "rows.opweld")
    serve = package("ray.serve")
    serve.start(http_options={"port": (port := free_port())})
    serve.run(application({"models": {"rows": str(tmp_path / "rows.opweld")}, "threads": 1}))
    url = f"http://127.0.0.1:{port}"
    assert answer(f"{url}/v2/health/ready") is not None
    assert answer(f"{url}/v2/models/rows")["inputs"][0]["name"] == "x"
    tensor = {"name": "x", "shape": [2, 3], "datatype": "FP32", "data": [1, 0, 0, 0, 1, 0]}
    made = answer(f"{url}/v2/models/rows/infer", {"inputs": [tensor]})
    assert made["outputs"][0]["data"] == [1, 2, 3, 4]

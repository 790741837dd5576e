"""What the server tells over HTTP of itself and its models, and what it does with them."""

from __future__ import annotations

import errno
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import opweld
from opweld.serve.limits import Limits
from tests.unit.serve.open_inference.running import Running, serving, tensor
from tests.unit.serve.raw import ask, head


@pytest.fixture
def shared() -> Iterator[tuple[str, Path]]:
    """The name of 64 bytes of shared memory, and where they are."""
    name = f"opweld-test-{os.getpid()}-{os.urandom(4).hex()}"
    path = Path("/dev/shm") / name
    path.write_bytes(bytes(64))
    yield name, path
    path.unlink(missing_ok=True)


def test_health(running: Running) -> None:
    assert running.get("/v2/health/live") == (200, {"status": "live", "live": True})
    assert running.get("/v2/health/ready") == (200, {"status": "ready", "ready": True})
    running.repository.failed.append("simple")
    try:
        assert running.get("/v2/health/ready")[0] == 503
    finally:
        running.repository.failed.clear()


def test_health_needs_no_key() -> None:
    with serving(Limits(drain=0.0), keys=["k"]) as running:
        assert running.get("/v2/health/ready")[0] == 200
        assert running.get("/v2")[0] == 401
        assert ask(running, head("/v2", 0, "GET", Authorization="Bearer k"))[0] == 200


def test_the_server(running: Running) -> None:
    status, answer = running.get("/v2")
    assert (status, answer["name"], answer["version"]) == (200, "opweld", opweld.__version__)
    assert {"binary_tensor_data", "system_shared_memory", "statistics"} <= set(answer["extensions"])


def test_models_are_ready(running: Running) -> None:
    assert running.get("/v2/models/simple/ready") == (200, {"name": "simple", "ready": True})
    assert running.get("/v2/models/simple/versions/1/ready")[0] == 200
    assert running.get("/v2/models/simple/versions/2/ready")[0] == 404
    assert running.get("/v2/models/asleep/ready")[0] == 400
    status, answer = running.get("/v2/models/nobody/ready")
    assert status == 404 and "there is no model nobody" in answer["error"]


def test_metadata(running: Running) -> None:
    def of(name: str) -> dict[str, object]:
        return {"name": name, "datatype": "INT32", "shape": [-1, 16]}

    told = {
        "name": "simple",
        "versions": ["1", "3"],
        "platform": "opweld",
        "inputs": [of("INPUT0"), of("INPUT1")],
        "outputs": [of("OUTPUT0"), of("OUTPUT1")],
    }
    assert running.get("/v2/models/simple") == (200, told)
    assert running.get("/v2/models/simple/versions/1") == (200, told)
    assert running.get("/v2/models/any_rank")[1]["inputs"][0]["shape"] == [-1]
    assert running.get("/v2/models/same_BYTES")[1]["inputs"][0]["datatype"] == "BYTES"
    assert running.get("/v2/models/nobody")[0] == 404


def test_configuration(running: Running) -> None:
    status, answer = running.get("/v2/models/simple/config")
    assert (status, answer["max_batch_size"]) == (200, 8)
    assert answer["input"][0] == {"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [16]}
    _, answer = running.get("/v2/models/same_BYTES/versions/1/config")
    assert answer["output"] == [{"name": "y", "data_type": "TYPE_STRING", "dims": [-1]}]


def test_statistics() -> None:
    with serving() as running:
        rows = np.ones((3, 16), np.int32).tolist()
        inputs = [tensor(name, "INT32", [3, 16], rows) for name in ("INPUT0", "INPUT1")]
        assert running.infer("simple", {"inputs": inputs})[0] == 200
        running.infer("failing", {"inputs": [tensor("x", "FP32", [1], [2])]})
        (told,) = running.get("/v2/models/simple/versions/3/stats")[1]["model_stats"]
        assert (told["inference_count"], told["execution_count"]) == (3, 1)
        assert told["last_inference"] == 1_700_000_000_000
        assert told["inference_stats"]["success"] == {"count": 1, "ns": 3000}
        assert told["inference_stats"]["queue"] == {"count": 1, "ns": 1000}
        (failed,) = running.get("/v2/models/failing/stats")[1]["model_stats"]
        assert failed["inference_stats"]["fail"]["count"] == 1
        versions = running.get("/v2/models/simple/stats")[1]["model_stats"]
        assert [one["version"] for one in versions] == ["1", "3"]
        every = running.get("/v2/models/stats")[1]["model_stats"]
        assert {"simple", "failing"} <= {one["name"] for one in every}
        assert "asleep" not in {one["name"] for one in every}
        assert running.get("/v2/models/nobody/stats")[0] == 404


def test_the_repository() -> None:
    with serving() as running:

        def state() -> str:
            index = running.post("/v2/repository/index", b"")[1]
            return next(one["state"] for one in index if one["name"] == "asleep")

        assert state() == "UNAVAILABLE"
        assert "asleep" not in {one["name"] for one in running.post("/v2/repository/index", {"ready": True})[1]}
        assert running.post("/v2/repository/models/asleep/load", b"") == (200, {})
        assert state() == "READY"
        unload = "/v2/repository/models/asleep/unload"
        assert running.post(unload, {"parameters": {"unload_dependents": False}}) == (200, {})
        assert state() == "UNAVAILABLE" and running.post(unload, {})[0] == 400
        assert running.post("/v2/repository/models/nobody/load", {})[0] == 404
        status, answer = running.post("/v2/repository/models/damaged/load", {})
        assert status == 400 and "no ONNX model" in answer["error"]
        status, answer = running.post("/v2/repository/models/simple/load", {"parameters": {"config": "{}"}})
        assert status == 400 and "folder" in answer["error"]
        assert running.post("/v2/repository/index", {"ready": 1})[0] == 400


def test_shared_memory(running: Running, shared: tuple[str, Path]) -> None:
    name, path = shared
    region = "/v2/systemsharedmemory/region/mine"
    x = np.array([1, 2, 3], np.float32)
    path.write_bytes(bytes(16) + x.tobytes() + bytes(36))
    given = {"key": f"/{name}", "offset": 16, "byte_size": 48}
    assert running.post(f"{region}/register", given) == (200, {})
    told = [{"name": "mine", **given}]
    assert running.get(f"{region}/status") == running.get("/v2/systemsharedmemory/status") == (200, told)
    assert running.post(f"{region}/register", given)[0] == 409

    def place(offset: int, size: int) -> dict[str, object]:
        return {"shared_memory_region": "mine", "shared_memory_offset": offset, "shared_memory_byte_size": size}

    request = {
        "inputs": [tensor("x", "FP32", [3], **place(0, 12))],
        "outputs": [{"name": "y", "parameters": place(20, 28)}],
    }
    status, answer, rest = running.infer("same_FP32", request)
    assert (status, rest) == (200, b"")
    assert answer["outputs"] == [tensor("y", "FP32", [3], **place(20, 12))]
    assert path.read_bytes()[36:48] == x.tobytes()

    for where, outputs, said in (
        (place(40, 12), [], "not all within shared memory region mine"),
        (place(0, 8), [], "8 bytes of data"),
        ({**place(0, 12), "shared_memory_region": "other"}, [], "no shared memory region other"),
        ({"shared_memory_region": "mine"}, [], "go together"),
        (place(0, 12), [{"name": "y", "parameters": place(40, 12)}], "not all within"),
        (place(0, 12), [{"name": "y", "parameters": place(0, 8)}], "12 bytes, its place in shared memory 8"),
        (place(-4, 12), [], "0 or more"),
    ):
        request = {"inputs": [tensor("x", "FP32", [3], **where)], "outputs": outputs}
        status, answer, _ = running.infer("same_FP32", request)
        assert status in (400, 404) and said in answer["error"]
    both = tensor("x", "FP32", [3], [1, 2, 3], **place(0, 12))
    assert "in one of data" in running.infer("same_FP32", {"inputs": [both]})[1]["error"]

    os.truncate(path, 20)
    request = {"inputs": [tensor("x", "FP32", [3], **place(0, 12))]}
    status, answer, _ = running.infer("same_FP32", request)
    assert status == 400 and "cut off: 4 of 12 bytes" in answer["error"]
    request["inputs"] = [tensor("x", "FP32", [3], x.tolist())]
    status, answer, _ = running.infer("same_FP32", {**request, "outputs": [{"name": "y", "parameters": place(0, 12)}]})
    assert status == 400 and "cut off" in answer["error"] and path.stat().st_size == 20
    assert running.post(f"{region}/unregister", b"") == (200, {})
    assert running.get(f"{region}/status")[0] == 404


def test_shared_memory_is_read_only_where_it_is_the_tensor(running: Running, shared: tuple[str, Path]) -> None:
    name, path = shared
    os.truncate(path, 1 << 40)  # of which nothing is there
    region = "/v2/systemsharedmemory/region/sparse"
    assert running.post(f"{region}/register", {"key": name, "byte_size": 1 << 40}) == (200, {})
    tracemalloc.start()
    try:
        for datatype, shape, size, said in (
            ("FP32", [3], 1 << 27, "134217728 bytes of data"),
            ("BYTES", [3], 1 << 27, "134217728 bytes of strings, at most 4194304 are read"),
            ("FP32", [1 << 38], 1 << 40, "at most 2147479552 are read"),
        ):
            place = {"shared_memory_region": "sparse", "shared_memory_byte_size": size}
            request = {"inputs": [tensor("x", datatype, shape, **place)]}
            status, answer, _ = running.infer(f"same_{datatype}", request)
            assert status == 400 and said in answer["error"]
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
        running.post(f"{region}/unregister", b"")


def test_shared_memory_that_takes_no_more(
    running: Running, shared: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    region = "/v2/systemsharedmemory/region/mine"
    assert running.post(f"{region}/register", {"key": shared[0], "byte_size": 64}) == (200, {})
    place = {"shared_memory_region": "mine", "shared_memory_byte_size": 12}
    request = {"inputs": [tensor("x", "FP32", [3], [1, 2, 3])], "outputs": [{"name": "y", "parameters": place}]}
    for write, said in ((full, "No space left on device"), (lambda *_: 4, "it took 4 of 12 bytes")):
        monkeypatch.setattr(os, "pwrite", write)
        status, answer, _ = running.infer("same_FP32", request)
        assert status == 503 and f"cannot write to shared memory {shared[0]}: {said}" in answer["error"]
    running.post(f"{region}/unregister", b"")


def test_what_is_no_shared_memory(running: Running, shared: tuple[str, Path]) -> None:
    name, path = shared
    link = path.with_name(f"{name}-link")
    link.symlink_to("/etc/hostname")
    pipe = path.with_name(f"{name}-pipe")
    os.mkfifo(pipe)
    try:
        for key, offset, size, said in (
            ("/etc/hostname", 0, 1, "no name of shared memory"),
            ("../../etc/hostname", 0, 1, "no name of shared memory"),
            ("..", 0, 1, "no name of shared memory"),
            ("/", 0, 1, "no name of shared memory"),
            ("a\0b", 0, 1, "no name of shared memory"),
            ("x" * 300, 0, 1, "no name of shared memory"),
            ("/none-there", 0, 1, "cannot open"),
            (link.name, 0, 1, "cannot open"),
            (pipe.name, 0, 1, "is no shared memory"),
            (name, 0, 65, "not all within the 64"),
            (name, 64, 1, "not all within the 64"),
            (name, -1, 4, "not all within the 64"),
            (name, 0, 0, "not all within the 64"),
            (name, 1 << 70, 4, "not all within the 64"),
        ):
            region = "/v2/systemsharedmemory/region/wrong/register"
            status, answer = running.post(region, {"key": key, "offset": offset, "byte_size": size})
            assert status == 400 and said in answer["error"], key
    finally:
        link.unlink()
        pipe.unlink()
    assert running.get("/v2/systemsharedmemory/status") == (200, [])


def test_shared_memory_where_it_is_not_allowed(shared: tuple[str, Path]) -> None:
    with serving(shared_memory=False) as running:
        region = "/v2/systemsharedmemory/region/mine/register"
        status, answer = running.post(region, {"key": shared[0], "byte_size": 4})
        assert status == 403 and "--shared-memory" in answer["error"]
        assert "system_shared_memory" not in running.get("/v2")[1]["extensions"]


def test_what_there_is_not(running: Running) -> None:
    assert running.post("/v2/cudasharedmemory/unregister", b"") == (200, {})
    assert running.get("/v2/cudasharedmemory/status") == (200, [])
    assert running.post("/v2/models/simple/generate", {})[0] == 404
    for path in ("/v2/cudasharedmemory/region/one/register", "/v2/trace/setting", "/v2/logging"):
        status, answer = running.post(path, {})
        assert status == 501 and answer["error"]
    assert running.get("/v2/nothing") == (404, {"error": "Invalid URL (GET /v2/nothing)"})
    status, answer = running.get("/v2/models/simple/infer")
    assert status == 405 and "POST it" in answer["error"]

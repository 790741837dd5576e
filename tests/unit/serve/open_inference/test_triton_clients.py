"""tritonclient, as its own examples use it: HTTP and gRPC, sync and asyncio, and streams."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as over_grpc
import tritonclient.grpc.aio as over_grpc_aio
import tritonclient.http as over_http
import tritonclient.http.aio as over_http_aio
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from tests.patience import PATIENCE_S
from tests.unit.serve.open_inference.running import Running, counts

FIRST, SECOND = counts()


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, running: Running) -> Iterator[tuple[Any, Any]]:
    """A client, and the module of its inputs and outputs."""
    module: Any = over_http if request.param == "http" else over_grpc
    address = running.address if request.param == "http" else running.grpc_address
    client = module.InferenceServerClient(url=address)
    yield client, module
    client.close()


def inputs(module: Any, first: Any = FIRST, second: Any = SECOND, datatype: str = "INT32", **how: Any) -> list[Any]:
    made = [module.InferInput(name, [1, 16], datatype) for name in ("INPUT0", "INPUT1")]
    made[0].set_data_from_numpy(first, **how)
    made[1].set_data_from_numpy(second, **how)
    return made


def outputs(module: Any, **how: Any) -> list[Any]:
    return [module.InferRequestedOutput(name, **how) for name in ("OUTPUT0", "OUTPUT1")]


def check(found: Any) -> None:
    assert (found.as_numpy("OUTPUT0") == FIRST + SECOND).all()
    assert (found.as_numpy("OUTPUT1") == FIRST - SECOND).all()


def test_health_and_metadata(client: tuple[Any, Any]) -> None:
    one, module = client
    assert one.is_server_live() and one.is_server_ready() and one.is_model_ready("simple")
    assert one.is_model_ready("simple", "1") and not one.is_model_ready("wrong")
    server, model, config = (
        one.get_server_metadata(),
        one.get_model_metadata("simple"),
        one.get_model_config("simple"),
    )
    if module is over_grpc:
        assert (server.name, model.name, config.config.name) == ("opweld", "simple", "simple")
        model = one.get_model_metadata("simple", as_json=True)
    else:
        assert (server["name"], config["name"], config["max_batch_size"]) == ("opweld", "simple", 8)
    assert model["inputs"][0]["name"] == "INPUT0"
    with pytest.raises(InferenceServerException, match="there is no model wrong"):
        one.get_model_metadata("wrong")


def test_infer(client: tuple[Any, Any]) -> None:
    one, module = client
    check(one.infer("simple", inputs(module), outputs=outputs(module), request_id="1"))
    check(one.infer("simple", inputs(module), model_version="1"))
    found = one.infer("simple", inputs(module), outputs=outputs(module)[:1], timeout=1_000_000, priority=1)
    assert found.as_numpy("OUTPUT1") is None
    found = one.infer("simple", inputs(module), outputs=outputs(module, class_count=2))
    assert found.as_numpy("OUTPUT0").tolist() == [[b"16:15", b"15:14"]]
    with pytest.raises(InferenceServerException, match="INPUT1 is not given"):
        one.infer("simple", inputs(module)[:1])


def test_infer_in_json_and_compressed(running: Running) -> None:
    with over_http.InferenceServerClient(running.address) as one:
        for how in (False, True):
            asked = outputs(over_http, binary_data=how)
            check(one.infer("simple", inputs(over_http, binary_data=not how), outputs=asked))
        for algorithm in ("gzip", "deflate"):
            compressed: Any = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
            check(one.infer("simple", inputs(over_http), **compressed))
    with over_grpc.InferenceServerClient(running.grpc_address) as one:
        check(one.infer("simple", inputs(over_grpc), compression_algorithm="gzip"))


def test_strings(client: tuple[Any, Any]) -> None:
    one, module = client
    texts = [np.array([str(n).encode() for n in given.flat], object).reshape(1, 16) for given in (FIRST, SECOND)]
    found = one.infer("simple_string", inputs(module, *texts, datatype="BYTES"), outputs=outputs(module))
    assert [int(text) for text in found.as_numpy("OUTPUT0").flat] == (FIRST + SECOND).ravel().tolist()
    given = module.InferInput("x", [2], "BYTES")
    given.set_data_from_numpy(np.array([b"", "dr\xe4i".encode()], object))
    assert one.infer("same_BYTES", [given]).as_numpy("y").tolist() == [b"", "dr\xe4i".encode()]


@pytest.mark.parametrize(("datatype", "dtype"), [("FP16", np.float16), ("BF16", ml_dtypes.bfloat16)])
def test_sixteen_bits(client: tuple[Any, Any], datatype: str, dtype: Any) -> None:
    one, module = client
    x = np.array([1.5, -2], dtype)
    given = module.InferInput("x", [2], datatype)
    given.set_data_from_numpy(x)
    assert (one.infer(f"same_{datatype}", [given]).as_numpy("y") == x).all()


def test_async_infer(running: Running) -> None:
    with over_http.InferenceServerClient(running.address, concurrency=2) as one:
        for pending in [one.async_infer("simple", inputs(over_http), outputs=outputs(over_http)) for _ in range(4)]:
            check(pending.get_result())
    found: queue.Queue[Any] = queue.Queue()
    with over_grpc.InferenceServerClient(running.grpc_address) as one:
        for _ in range(4):
            one.async_infer("simple", inputs(over_grpc), lambda result, error: found.put((result, error)))
        for _ in range(4):
            result, error = found.get(timeout=PATIENCE_S)
            assert error is None
            check(result)


def test_stream(running: Running) -> None:
    found: queue.Queue[Any] = queue.Queue()
    with over_grpc.InferenceServerClient(running.grpc_address) as one:
        one.start_stream(callback=lambda result, error: found.put((result, error)))
        for number in range(4):
            one.async_stream_infer(
                "simple", inputs(over_grpc), request_id=str(number), sequence_id=7, sequence_start=number == 0,
                sequence_end=number == 3,
            )  # fmt: skip
        one.async_stream_infer("wrong", inputs(over_grpc))
        for number in range(4):
            result, error = found.get(timeout=PATIENCE_S)
            assert error is None and result.get_response().id == str(number)
            check(result)
        result, error = found.get(timeout=PATIENCE_S)
        assert result is None and "there is no model wrong" in str(error)
        one.stop_stream()


def test_repository_and_statistics(client: tuple[Any, Any]) -> None:
    one, module = client
    one.load_model("asleep")
    assert one.is_model_ready("asleep")
    one.unload_model("asleep")
    assert not one.is_model_ready("asleep")
    index = one.get_model_repository_index()
    names = [model["name"] for model in index] if module is over_http else [model.name for model in index.models]
    assert "asleep" in names
    with pytest.raises(InferenceServerException, match="there is no model wrong"):
        one.load_model("wrong")
    check(one.infer("simple", inputs(module)))
    told = one.get_inference_statistics("simple")
    stats = told["model_stats"] if module is over_http else told.model_stats
    assert len(stats) == 2


def test_shared_memory(client: tuple[Any, Any]) -> None:
    one, module = client
    size = FIRST.nbytes
    one.unregister_system_shared_memory()
    one.unregister_cuda_shared_memory()
    given = shm.create_shared_memory_region("input_data", "/opweld_test_input", size * 2)
    taken = shm.create_shared_memory_region("output_data", "/opweld_test_output", size * 2)
    try:
        shm.set_shared_memory_region(given, [FIRST])
        shm.set_shared_memory_region(given, [SECOND], offset=size)
        one.register_system_shared_memory("input_data", "/opweld_test_input", size * 2)
        one.register_system_shared_memory("output_data", "/opweld_test_output", size * 2)
        ins = [module.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
        outs = outputs(module)
        for number in range(2):
            ins[number].set_shared_memory("input_data", size, offset=number * size)
            outs[number].set_shared_memory("output_data", size, offset=number * size)
        found = one.infer("simple", ins, outputs=outs)
        for number, expected in enumerate((FIRST + SECOND, FIRST - SECOND)):
            output = found.get_output(f"OUTPUT{number}")
            shape = output["shape"] if module is over_http else list(output.shape)
            got = shm.get_contents_as_numpy(taken, np.int32, shape, offset=number * size)
            assert (got == expected).all()
        assert len(getattr(status := one.get_system_shared_memory_status(), "regions", status)) == 2
        one.unregister_system_shared_memory("input_data")
        one.unregister_system_shared_memory()
    finally:
        shm.destroy_shared_memory_region(given)
        shm.destroy_shared_memory_region(taken)


def test_asyncio_over_http(running: Running) -> None:
    async def scenario() -> None:
        async with over_http_aio.InferenceServerClient(running.address) as one:
            assert await one.is_server_live() and await one.is_model_ready("simple")
            assert (await one.get_model_metadata("simple"))["name"] == "simple"
            pending = [one.infer("simple", inputs(over_http), outputs=outputs(over_http)) for _ in range(3)]
            for found in await asyncio.gather(*pending):
                check(found)
            with pytest.raises(InferenceServerException, match="there is no model wrong"):
                await one.infer("wrong", inputs(over_http))

    asyncio.run(scenario())


def test_asyncio_over_grpc(running: Running) -> None:
    async def scenario() -> None:
        async with over_grpc_aio.InferenceServerClient(running.grpc_address) as one:
            assert await one.is_server_ready() and await one.is_model_ready("simple")
            pending = [one.infer("simple", inputs(over_grpc)) for _ in range(3)]
            for found in await asyncio.gather(*pending):
                check(found)

            async def requests() -> Any:
                for number in range(3):
                    yield {"model_name": "simple", "inputs": inputs(over_grpc), "request_id": str(number)}

            numbers: list[str] = []
            answers: Any = one.stream_infer(requests())
            async for result, error in answers:
                assert error is None
                check(result)
                numbers.append(result.get_response().id)
            assert numbers == ["0", "1", "2"]

    # In a loop and thread of its own: the client's channel must not meet that of another test.
    failed: list[BaseException] = []
    thread = threading.Thread(target=_run, args=(scenario, failed))
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive() and not failed


def _run(scenario: Callable[[], Any], failed: list[BaseException]) -> None:
    try:
        asyncio.run(scenario())
    except BaseException as error:  # noqa: BLE001 - the test asks for it
        failed.append(error)

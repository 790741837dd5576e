"""MLPerf's scenarios by its own LoadGen: it decides when requests are sent and whether the run is valid."""

from __future__ import annotations

import asyncio
import re
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlperf_loadgen

from benchmarks.serving.load import closed_loop
from benchmarks.serving.requests import Feed, Load, http_request
from benchmarks.serving.transports import Transport

_loadgen: Any = mlperf_loadgen

AT_ONCE = 64
"""Requests under way where LoadGen gives more, which it does in Offline alone."""

_MORE = 1.3
"""Offline may get so many times what 16 clients get: LoadGen makes samples for its seconds by it, and needs enough."""

SCENARIOS = ("SingleStream", "Server", "Offline")


def run(
    load: Load,
    transport: Transport,
    feeds: Sequence[Feed],
    latency: float,
    part: float,
    scenarios: Sequence[str] = SCENARIOS,
    seconds: float = 60.0,
) -> None:
    """Scenarios of a model behind a transport; prints what LoadGen says of each.

    Args:
        latency: seconds that 99% of the Server scenario's requests may take.
        part: of what 16 clients get that the Server scenario asks for.
        seconds: of a scenario at least; MLPerf's rules want 600 for a submission.
    """
    requests = [http_request(load.name, feed) for feed in feeds]
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        alone = asyncio.run_coroutine_threadsafe(closed_loop(transport, requests, 1, 3.0), loop).result()
        busy = asyncio.run_coroutine_threadsafe(closed_loop(transport, requests, 16, 3.0), loop).result()
        for scenario in scenarios:
            settings = _settings(scenario, alone.quantile(0.9), busy.answered, part, latency, seconds)
            print(f"{load.name:12} {scenario:12} {_scenario(settings, transport, requests, loop)}", flush=True)
    finally:
        asyncio.run_coroutine_threadsafe(transport.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _settings(scenario: str, alone: float, rate: float, part: float, latency: float, seconds: float) -> Any:
    settings = _loadgen.TestSettings()
    settings.scenario = getattr(_loadgen.TestScenario, scenario)
    settings.mode = _loadgen.TestMode.PerformanceOnly
    settings.min_duration_ms = round(1e3 * seconds)
    settings.min_query_count = 1 if scenario == "Offline" else 100
    settings.single_stream_expected_latency_ns = round(1e9 * alone)
    settings.server_target_qps = part * rate
    settings.server_target_latency_ns = round(1e9 * latency)
    settings.server_target_latency_percentile = 0.99
    settings.offline_expected_qps = _MORE * rate
    return settings


def _scenario(settings: Any, transport: Transport, requests: Sequence[bytes], loop: asyncio.AbstractEventLoop) -> str:
    """What the summary of one scenario says."""
    room = asyncio.Semaphore(AT_ONCE)
    lost: list[int] = []
    tasks: set[asyncio.Task[None]] = set()

    async def one(sample: Any) -> None:
        async with room:
            status = await transport.send(requests[sample.index])
        if status != 200:
            lost.append(status)
        _loadgen.QuerySamplesComplete([_loadgen.QuerySampleResponse(sample.id, 0, 0)])

    def start(samples: Sequence[Any]) -> None:
        for sample in samples:
            task = loop.create_task(one(sample))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    sut = _loadgen.ConstructSUT(lambda samples: loop.call_soon_threadsafe(start, list(samples)), lambda: None)
    qsl = _loadgen.ConstructQSL(len(requests), len(requests), lambda _: None, lambda _: None)
    with tempfile.TemporaryDirectory() as folder:
        outputs = _loadgen.LogOutputSettings()
        outputs.outdir = folder
        logs = _loadgen.LogSettings()
        logs.log_output = outputs
        try:
            _loadgen.StartTestWithLogSettings(sut, qsl, settings, logs)
        finally:
            _loadgen.DestroyQSL(qsl)
            _loadgen.DestroySUT(sut)
        summary = (Path(folder) / "mlperf_log_summary.txt").read_text()
    wanted = (
        r"Result is\s*: (\w+)",
        r"(?:Samples per second|Completed samples per second|90.0th percentile latency \(ns\))\s*: ([\d.]+)",
        r"99.00 percentile latency \(ns\)\s*: (\d+)",
    )
    found = [match[0].strip() for pattern in wanted for match in [re.search(pattern, summary)] if match]
    reasons = [line.strip(" *") for line in summary.splitlines() if line.startswith(" *")]
    return "; ".join([*(" ".join(one.split()) for one in found), f"{len(lost)} without an answer", *reasons])

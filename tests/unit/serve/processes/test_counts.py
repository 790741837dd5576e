"""Sums of what processes count."""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client import Gauge
from prometheus_client.parser import text_string_to_metric_families

from opweld.serve.metrics import Metrics
from opweld.serve.processes.counts import added, kept, without


def family(kind: str, *samples: tuple[str, dict[str, str], float]) -> dict[str, Any]:
    return {"families": {"f": [kind, "What it is", [[*sample] for sample in samples]]}}


def test_what_has_the_same_labels_is_added_up() -> None:
    first = family("counter", ("f_total", {"a": "x", "b": "y"}, 2), ("f_created", {"a": "x", "b": "y"}, 70))
    second = family(
        "counter",
        ("f_total", {"b": "y", "a": "x"}, 3),
        ("f_created", {"b": "y", "a": "x"}, 60),
        ("f_total", {"a": "x", "b": "z"}, 1),
    )
    assert added([first, {}, second])["families"]["f"] == [
        "counter",
        "What it is",
        [
            ["f_total", {"a": "x", "b": "y"}, 5],
            ["f_created", {"a": "x", "b": "y"}, 60],
            ["f_total", {"a": "x", "b": "z"}, 1],
        ],
    ]


def test_statistics_of_models_are_added_up_and_the_last_call_is_the_last() -> None:
    first = {"models": {"m 1": {"calls": 2, "last_ns": 10, "running": 1}}}
    second = {"models": {"m 1": {"calls": 3, "last_ns": 7, "running": 0}, "n 1": {"calls": 1, "last_ns": 1}}}
    told = added([first, second])["models"]
    assert told == {"m 1": {"calls": 5, "last_ns": 10, "running": 1}, "n 1": {"calls": 1, "last_ns": 1}}
    assert first["models"]["m 1"]["calls"] == 2


def test_of_a_process_that_died_counters_are_kept_and_no_gauges() -> None:
    dead = kept({**family("gauge", ("f", {}, 2)), "models": {"m 1": {"calls": 2, "waiting": 4, "running": 1}}})
    assert dead == {"families": {}, "models": {"m 1": {"calls": 2, "waiting": 0, "running": 0}}}
    for kind in ("counter", "histogram"):
        assert kept(family(kind, ("f_total", {}, 2))) == {**family(kind, ("f_total", {}, 2)), "models": {}}


def test_a_model_that_is_loaded_anew_begins_at_zero() -> None:
    counts = family("counter", ("f_total", {"model": "m"}, 2), ("f_total", {"model": "m 1"}, 3), ("f_total", {}, 4))
    counts["models"] = {"m 1": {"calls": 2}, "m 1 1": {"calls": 3}}
    rest = without(counts, "m")
    assert rest["families"]["f"][2] == [["f_total", {"model": "m 1"}, 3], ["f_total", {}, 4]]
    assert rest["models"] == {"m 1 1": {"calls": 3}}


def test_metrics_of_several_processes_are_told_as_those_of_one() -> None:
    processes = [Metrics() for _ in range(3)]
    for number, metrics in enumerate(processes):
        Gauge("busy", "How much", ("model",), registry=metrics.registry).labels("m").set(number)
        for _ in range(number + 1):
            metrics.answered("GET", '/"path"', 200)

    async def everywhere() -> list[Any]:
        await asyncio.sleep(0)
        return [metrics.counts() for metrics in processes]

    processes[0].everywhere = everywhere
    told = asyncio.run(processes[0].text()).decode()
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for one in text_string_to_metric_families(told)
        for sample in one.samples
    }
    assert found["opweld_requests_total", "GET", '/"path"', "200"] == 6
    assert found["busy", "m"] == 3
    alone = asyncio.run(processes[1].text()).decode()
    assert [line for line in told.splitlines() if line[0] == "#"] == [
        line for line in alone.splitlines() if line[0] == "#"
    ]

"""The trace against the Trace Event Format, and against the run that it shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opweld.analysis.profile import ModelProfile, model_profile
from opweld.analysis.trace import WAITING, trace_json
from tests.unit.analysis.sampled import ACCOUNT, samples


@pytest.fixture(scope="module")
def profile() -> ModelProfile:
    return model_profile(samples((1.0, 1.0, 1.5)), ACCOUNT)


@pytest.fixture(scope="module")
def trace(profile: ModelProfile) -> dict[str, Any]:
    return json.loads(json.dumps(trace_json(profile, "m.onnx"), allow_nan=False))


def complete(trace: dict[str, Any], track: int) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X" and event["tid"] == track]


def test_events_are_as_the_format_says(trace: dict[str, Any]) -> None:
    assert trace["displayTimeUnit"] in ("ms", "ns")
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str) and isinstance(event["args"], dict)
        assert type(event["pid"]) is int and type(event["tid"]) is int
        assert event["ph"] in ("M", "X")
        if event["ph"] == "M":
            key = {"process_name": "name", "thread_name": "name", "thread_sort_index": "sort_index"}[event["name"]]
            assert list(event["args"]) == [key]
        else:
            assert event["cat"] and event["ts"] >= 0 and event["dur"] >= 0


def test_tracks_are_named(trace: dict[str, Any]) -> None:
    names = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert names == {0: "phases", 1: "thread 0 (caller)", 2: "thread 1"}
    assert {event["tid"] for event in trace["traceEvents"]} == {0, 1, 2}


def test_events_of_a_track_do_not_overlap_and_fill_the_run(trace: dict[str, Any], profile: ModelProfile) -> None:
    for track in (1, 2):
        events = complete(trace, track)
        at = 0.0
        for event in events:
            assert event["ts"] == pytest.approx(at), "what a thread does not compute, it waits"
            at = event["ts"] + event["dur"]
        assert at == pytest.approx(profile.typical.wall / 1000)


def test_kernels_last_as_long_as_they_were_computed(trace: dict[str, Any]) -> None:
    kernels = [(e["name"], e["dur"]) for e in complete(trace, 2) if e["cat"] == "kernel"]
    assert kernels == [("k1_contraction", 0.48), ("k2_map", 0.32)]
    assert sum(e["dur"] for e in complete(trace, 2) if e["cat"] == WAITING) == pytest.approx(1.8 - 0.8)
    (told,) = (e["args"] for e in complete(trace, 1) if e["name"] == "k1_contraction")
    assert (told["nodes"], told["sources"], told["flops"]) == (["product", "add"], ["net.py:7"], 80_000)
    assert (told["phase"], told["schedule"]) == (0, "contraction lane=i1; loop unroll=4")


def test_phases_have_a_track(trace: dict[str, Any]) -> None:
    phases = [(e["name"], e["ts"], e["dur"], e["args"]["kernels"]) for e in complete(trace, 0)]
    assert phases == [
        ("phase 0", 0.1, 0.9, ["k1_contraction", "k2_map"]),
        ("phase 1", 1.2, 0.5, ["k3_rows"]),
    ]

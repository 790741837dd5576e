"""`opweld profile` as a user calls it, on a small model and on its artifact."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.schemas import faults
from tests.unit.cli.test_main import opweld


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """softmax(relu(x @ w)), x of shape [batch, 64]; the first node has a source line."""
    weights = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    product = helper.make_node("MatMul", ["x", "w"], ["t"], name="/net/product")
    entry = product.metadata_props.add()
    entry.key, entry.value = (
        "pkg.torch.onnx.stack_trace",
        'File "/home/me/net.py", line 7, in forward\n    return x @ w',
    )
    nodes = [
        product,
        helper.make_node("Relu", ["t"], ["u"], name="/net/relu"),
        helper.make_node("Softmax", ["u"], ["y"], name="/net/softmax", axis=-1),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 64]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(weights, "w")])
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def profile(model: Path, *arguments: object) -> dict[str, Any]:
    answer = opweld("profile", model, "--runs", 6, *arguments, "--json", "-")
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def test_json_is_as_its_schema_says(model: Path) -> None:
    data = profile(model, "--dim", "batch=32", "--threads", 1)
    assert faults("profile", data) == []
    assert (data["runs"], data["latency"]["runs"], data["threads"]) == (6, 6, 1)
    assert data["inputs"] == {"x": [32, 64]}
    nodes = {name: source for k in data["kernels"] for name, source in zip(k["nodes"], k["sources"], strict=True)}
    assert set(nodes) >= {"/net/product", "/net/softmax"}
    assert nodes["/net/product"].endswith("net.py:7")
    assert 0 < data["accounted"] < 1
    assert all(kernel["seconds"]["median"] <= kernel["seconds"]["p90"] for kernel in data["kernels"])


def test_the_artifact_tells_the_same(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "small.opweld"
    assert opweld("compile", model, "-o", folder).returncode == 0
    ours, theirs = profile(model), profile(folder)
    for name in ("name", "nodes", "sources", "schedule", "flops", "bytes"):
        assert [kernel[name] for kernel in ours["kernels"]] == [kernel[name] for kernel in theirs["kernels"]]


def test_the_table_and_what_stands_below_it(model: Path) -> None:
    answer = opweld("profile", model, "--runs", 6, "--top", 1, "--sort", "order")
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    if lines[0].startswith("warning: this machine is too busy"):
        lines = lines[1:]
    assert lines[0].split()[:3] == ["kernel", "phase", "us"]
    assert lines[2].startswith("k1_")
    for text in (
        "all kernels",
        "idle around the call",
        "nodes",
        "a timed run",
        "latency without clocks",
        "of a run is in kernels",
    ):
        assert text in answer.stdout
    assert "counters" in answer.stdout or "instructions per cycle" in answer.stdout


def test_one_kernel_in_full(model: Path) -> None:
    answer = opweld("profile", model, "--runs", 6, "--kernel", "/net/product")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith(("kernel k", "warning: "))
    assert "MatMul /net/product, from " in answer.stdout and "net.py:7" in answer.stdout
    assert "schedule of region" in answer.stdout
    assert "predicted" in answer.stdout and "measured" in answer.stdout
    missing = opweld("profile", model, "--runs", 1, "--kernel", "prodct")
    assert missing.returncode == 2 and "no kernel of this run is called that" in missing.stderr


def test_files_are_written(model: Path, tmp_path: Path) -> None:
    rows, trace = tmp_path / "kernels.csv", tmp_path / "trace.json"
    data = profile(model, "--csv", rows, "--trace", trace)
    with rows.open(newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == [kernel["name"] for kernel in data["kernels"]]
    drawn = {event["name"] for event in json.loads(trace.read_text())["traceEvents"] if event.get("cat") == "kernel"}
    assert drawn == {kernel["name"] for kernel in data["kernels"] if kernel["threads"]}
    refused = opweld("profile", model, "--runs", 1, "--trace", tmp_path)
    assert refused.returncode == 2 and "--trace" in refused.stderr and "cannot write there" in refused.stderr


def test_what_every_kernel_takes_of_a_core(model: Path) -> None:
    data = profile(model, "--resources")
    assert faults("profile", data) == []
    found = {kernel["name"]: kernel["resources"] for kernel in data["kernels"]}
    assert all(taken["registers"] > 0 and taken["stack"] >= 0 for taken in found.values())
    assert all(taken["spilled"] == len(taken["spills"]) for taken in found.values())
    assert {kernel["resources"] for kernel in profile(model)["kernels"]} == {None}
    answer = opweld("profile", model, "--runs", 3, "--resources", "--top", 1)
    assert answer.returncode == 0, answer.stderr
    table = answer.stdout.split("what kernels take of a core")[1]
    assert all(f"{name} " in table for name in found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sort", "size"], "--sort 'size': expected one of time, busy"),
        (["--runs", "0"], "Invalid value for '--runs'"),
        (["--top", "-1"], "Invalid value for '--top'"),
    ],
)
def test_a_wrong_command_line_exits_with_2(arguments: list[str], message: str, model: Path) -> None:
    answer = opweld("profile", model, *arguments)
    assert answer.returncode == 2
    assert message in " ".join(answer.stderr.replace("│", " ").split())


def test_a_model_that_decides_as_it_runs_is_profiled_segment_by_segment(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [
            helper.make_node("NonZero", ["x"], ["n"], name="found"),
            helper.make_node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Softmax", ["f"], ["y"], name="after"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "count"])],
    )
    path, trace = tmp_path / "decides.onnx", tmp_path / "trace.json"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    data = profile(path, "--dim", "n=64", "--trace", trace)
    assert faults("profile", data) == []
    segments = {kernel["segment"]: set[str]() for kernel in data["kernels"]}
    for kernel in data["kernels"]:
        segments[kernel["segment"]].update(kernel["nodes"])
    assert len(segments) == 2 and "found" in segments[0] and "after" in segments[1]
    assert all(kernel["seconds"]["median"] <= kernel["seconds"]["p90"] for kernel in data["kernels"])
    drawn = {e["args"]["segment"] for e in json.loads(trace.read_text())["traceEvents"] if e.get("cat") == "kernel"}
    assert drawn == {0, 1}
    text = opweld("profile", path, "--runs", 6, "--dim", "n=64")
    assert text.returncode == 0 and " segment " in text.stdout
    (row,) = json.loads(opweld("bench", path, "--dim", "n=64", "--vs", "none", "--json", "-").stdout)["rows"]
    assert row["kernels"] == len(data["kernels"]) and row["moved_bytes"] > 0 and row["arena_bytes"] > 0

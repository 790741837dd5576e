"""The command line as a user calls it: in a process of its own, on a small model."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.patience import PATIENCE_S
from tests.report.documents import document_of
from tests.schemas import faults

SOURCE = Path(__file__).parents[3] / "src"

COMMANDS = ("compile", "run", "bench", "profile", "verify", "explain", "analyze", "report", "bisect", "lock")


def opweld(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `opweld ARGUMENTS` on a pipe."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE)} | variables
    command = [sys.executable, "-m", "opweld.cli.main", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """relu(x @ w + b), x of shape [batch, 8]."""
    random = np.random.default_rng(0)
    weights = {"w": random.standard_normal((8, 4), np.float32), "b": random.standard_normal(4, np.float32)}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["t"], name="product"),
            helper.make_node("Add", ["t", "b"], ["u"], name="bias"),
            helper.make_node("Relu", ["u"], ["y"], name="relu"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_help_teaches_with_examples() -> None:
    top = opweld("--help")
    assert top.returncode == 0
    for command in COMMANDS:
        assert command in top.stdout
        page = opweld(command, "--help")
        assert page.returncode == 0
        assert f"opweld {command} model.onnx" in page.stdout


def test_version() -> None:
    answer = opweld("--version")
    assert (answer.returncode, answer.stdout) == (0, "opweld 0.1.0\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["compile"], "Missing argument 'MODEL'"),
        (["compile", "m.onnx", "--target", "riscv"], "target is 'riscv', expected one of native"),
        (["compile", "m.onnx", "--dim", "batch"], "--dim 'batch' is not NAME=VALUE"),
        (["compile", "m.onnx", "--dim", "batch=-1"], "--dim batch=-1: expected a whole number"),
        (["compile", "m.onnx", "--dim", "a=1", "--dim", "a=2"], "--dim gives 'a' twice"),
        (["run", "m.onnx", "--threads", "-1"], "threads is -1"),
        (["run", "m.onnx", "--pin", "0123456789"], "--pin '0123456789' is not NAME=VALUE"),
        (["run", "m.onnx", "--dim-hint", "batch=0"], "--dim-hint 'batch' is 0, expected a whole number from 1"),
        (["run", "m.onnx", "--schedules", "absent.txt"], "schedules 'absent.txt': cannot be read"),
        (["run", "m.onnx", "--threads", "two"], "Invalid value for '--threads'"),
        (["bench", "m.onnx", "--levels", "some"], "--levels 'some': expected some of none, basic, extended, all"),
        (["bench", "m.onnx", "--vs", "onnxruntime,,"], "expected names separated by commas"),
        (["bench", "m.onnx", "--rounds", "0"], "Invalid value for '--rounds'"),
        (["compile", "m.onnx", "--rank", "x=two"], "--rank x=two: expected a whole number"),
    ],
)
def test_a_wrong_command_line_exits_with_2(arguments: list[str], message: str) -> None:
    answer = opweld(*arguments)
    assert answer.returncode == 2
    # Long usage errors are broken into lines of a box.
    assert message in " ".join(answer.stderr.replace("│", " ").split())
    assert "Traceback" not in answer.stderr


def test_a_bad_environment_exits_with_2() -> None:
    answer = opweld("--version", OPWELD_DEBUG="maybe")
    assert (answer.returncode, answer.stderr) == (2, "opweld: OPWELD_DEBUG is 'maybe', expected 0 or 1\n")


@pytest.mark.parametrize("command", ["compile", "run", "verify", "explain", "bench", "profile"])
def test_a_missing_model_is_one_plain_line(command: str, tmp_path: Path) -> None:
    answer = opweld(command, tmp_path / "absent.onnx")
    assert answer.returncode == 1
    assert answer.stdout == ""
    assert answer.stderr.startswith("opweld: ") and "absent.onnx" in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_a_folder_that_is_no_artifact_is_refused(tmp_path: Path) -> None:
    answer = opweld("run", tmp_path)
    assert answer.returncode == 1
    assert answer.stderr.startswith("opweld: ")


def test_compile_then_run_the_artifact(model: Path, tmp_path: Path) -> None:
    artifact = tmp_path / "small.opweld"
    compiled = opweld("compile", model, "-o", artifact, "--quiet")
    assert compiled.returncode == 0, compiled.stderr
    assert str(artifact) in compiled.stdout
    assert compiled.stderr == ""
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
    np.save(tmp_path / "x.npy", x)
    answer = opweld("run", artifact, "--input", f"x={tmp_path / 'x.npy'}", "--output", tmp_path / "out", "--json", "-")
    assert answer.returncode == 0, answer.stderr
    (output,) = json.loads(answer.stdout)["outputs"]
    assert (output["name"], output["dtype"], output["shape"]) == ("y", "float32", [3, 4])
    y = np.load(output["file"])
    weights = {t.name: numpy_helper.to_array(t) for t in onnx.load(model).graph.initializer}
    assert np.allclose(y, np.maximum(x @ weights["w"] + weights["b"], 0), atol=1e-6)


def test_damaged_files_are_found_where_asked(model: Path, tmp_path: Path) -> None:
    artifact = tmp_path / "small.opweld"
    assert opweld("compile", model, "-o", artifact).returncode == 0
    assert opweld("run", artifact, "--verify-files").returncode == 0
    weights = artifact / "weights.bin"
    weights.write_bytes(bytes(255 - byte for byte in weights.read_bytes()))
    answer = opweld("run", artifact, "--verify-files")
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "weights.bin has another content than when it was written" in answer.stderr


def test_an_artifact_names_threads_only_where_the_user_did(model: Path, tmp_path: Path) -> None:
    """Whatever was compiled before: the number of threads is no part of what the cache holds."""
    for given, expected in (([], 0), (["--threads", "2"], 2), ([], 0)):
        artifact = tmp_path / f"{len(list(tmp_path.iterdir()))}.opweld"
        assert opweld("compile", model, "-o", artifact, *given).returncode == 0
        assert json.loads((artifact / "manifest.json").read_text())["threads"] == expected


@pytest.mark.parametrize("target, machine", [("aarch64", 183), ("x86-64-v3", 62)])
def test_compile_for_another_machine(model: Path, tmp_path: Path, target: str, machine: int) -> None:
    """What is made is written, not opened: this machine may be of another kind."""
    artifact = tmp_path / "other.opweld"
    compiled = opweld("compile", model, "-o", artifact, "--target", target)
    assert compiled.returncode == 0, compiled.stderr
    for name in ("module.so", "runtime.so"):
        header = (artifact / name).read_bytes()[:20]
        assert header[:4] == b"\x7fELF" and int.from_bytes(header[18:20], "little") == machine
    if not target.startswith({"aarch64": "aarch64", "x86_64": "x86-64"}[platform.machine()]):
        refused = opweld("run", artifact)
        assert refused.returncode == 1
        assert f"was built for {target}" in refused.stderr and f"this machine is {platform.machine()}" in refused.stderr


def test_compile_does_not_overwrite_what_is_no_artifact(model: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    answer = opweld("compile", model, "-o", tmp_path)
    assert answer.returncode == 2
    assert "is no artifact" in answer.stderr
    assert (tmp_path / "precious").read_text() == "x"


def test_verify_prints_the_error_and_passes(model: Path, tmp_path: Path) -> None:
    answer = opweld("verify", model, "--dim", "batch=5", "--json", tmp_path / "v.json")
    assert answer.returncode == 0, answer.stderr + answer.stdout
    assert "against float64" in answer.stdout and "right" in answer.stdout
    data = json.loads((tmp_path / "v.json").read_text())
    assert data["passed"] is True
    assert data["outputs"][0]["shape"] == [5, 4]
    assert 0 <= data["outputs"][0]["error"] <= data["outputs"][0]["tolerance"]


def test_what_is_wrong_with_the_arguments_is_said(model: Path, tmp_path: Path) -> None:
    artifact = tmp_path / "small.opweld"
    assert opweld("compile", model, "-o", artifact).returncode == 0
    answer = opweld("verify", artifact, "--against", tmp_path / "absent.onnx")
    assert (answer.returncode, answer.stderr.count("\n")) == (1, 1) and "absent.onnx" in answer.stderr
    answer = opweld("run", artifact, "--seed", "-1")
    assert (answer.returncode, answer.stderr) == (2, "opweld: seed is -1, expected a whole number of at least 0\n")


def test_verify_fails_outside_the_tolerance(model: Path) -> None:
    answer = opweld("verify", model, "--dim", "batch=50", "--rtol", "0")
    assert answer.returncode == 1
    assert "WRONG" in answer.stdout and "tolerance 0.00e+00" in answer.stdout


def test_explain_lists_decisions_with_ids(model: Path) -> None:
    summary = opweld("explain", model)
    assert summary.returncode == 0, summary.stderr
    assert "nodes -> 1 kernels" in summary.stdout and "fused kernels cover 100%" in summary.stdout
    assert len(summary.stdout.splitlines()) < 60
    answer = opweld("explain", model, "--all")
    data = json.loads(opweld("explain", model, "--json", "-").stdout)
    assert faults("explain", data) == []
    decisions = data["decisions"]
    assert decisions
    assert all(d["id"] in answer.stdout for d in decisions if not d["part"])
    assert "kernels: 1 regions" in answer.stdout and "contraction lane=i1 vectors=" in answer.stdout
    ids = opweld("explain", model, "--ids").stdout
    assert all(d["id"] in ids for d in decisions)
    one = opweld("explain", model, "--node", decisions[0]["site"][0])
    assert one.returncode == 0 and decisions[0]["id"] in one.stdout
    heights = opweld("explain", model, "--rule", "schedule.height").stdout
    assert "predicted" in heights and "schedule.lane" not in heights
    name = data["nodes"][0]["name"]
    assert one.stdout.startswith(f"node {decisions[0]['site'][0]}: ") and "  kernel k1_" in one.stdout
    data = json.loads(opweld("explain", model, "--node", name, "--rule", "schedule.height", "--json", "-").stdout)
    assert [node["name"] for node in data["nodes"]] == [name]
    assert {decision["rule"] for decision in data["decisions"]} == {"schedule.height"}
    unknown = opweld("explain", model, "--node", f"{name}_")
    assert unknown.returncode == 2 and f"did you mean {name}" in unknown.stderr
    assert "no such rule or stage; the rules are " in opweld("explain", model, "--rule", "fuse.weld").stderr


def test_a_pin_and_a_schedules_file_are_followed(model: Path, tmp_path: Path) -> None:
    decisions = json.loads(opweld("explain", model, "--json", "-").stdout)["decisions"]
    height = next(d for d in decisions if d["rule"] == "schedule.height")
    assert height["taken"] != "1"
    pin = f"{height['id']}=1"
    told = opweld("explain", model, "--pin", pin, "--ids")
    assert f"schedule.height 1; wanted {height['taken']}, pinned" in told.stdout
    assert "no symbolic dim of that name" in opweld("explain", model, "--dim-hint", "seq=8").stderr
    artifact = tmp_path / "pinned.opweld"
    assert opweld("compile", model, "--pin", pin, "-o", artifact).returncode == 0
    schedules = artifact / "schedules.txt"
    assert " height=1 " in schedules.read_text()
    told = opweld("explain", model, "--schedules", schedules, "--all")
    assert told.returncode == 0 and " height=1 " in told.stdout
    schedules.write_text(schedules.read_text().replace(" height=1 ", " height=99 "))
    refused = opweld("verify", model, "--schedules", schedules)
    assert refused.returncode == 2
    assert "region 'relu 0', member 0: schedule.height has no alternative '99' here, only 1, 2" in refused.stderr


def test_bench_compares_levels_and_runtimes(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    answer = opweld(
        "bench", model, "--levels", "none,all", "--rounds", "1", "--threads", "1", "--json", tmp_path / "b.json"
    )
    assert answer.returncode == 0, answer.stderr
    assert "nodes -> kernels" in answer.stdout and "onnxruntime ms" in answer.stdout
    none, full = json.loads((tmp_path / "b.json").read_text())["rows"]
    assert (none["level"], full["level"]) == ("none", "all")
    assert none["nodes"] == full["nodes"] == 3
    assert none["kernels"] == 3
    assert full["kernels"] == 1, "bias and activation are in the product's epilogue"
    for row in (none, full):
        assert row["error"] < 1e-5
        for timing in row["timings"].values():
            assert 0 < timing["best_s"] <= timing["median_s"] <= timing["p90_s"]
            assert timing["spread"] == timing["p90_s"] / timing["median_s"]
        assert row["disturbance"].keys() >= {"steal", "others", "switches", "spread", "busy", "reasons"}
        steadiest = min(timing["spread"] for one in (none, full) for timing in one["timings"].values())
        assert row["disturbance"]["spread"] == steadiest
        assert (row["inputs"].keys(), row["given"]) == ({"x"}, [])
        assert row["ratio"] == row["timings"]["onnxruntime"]["median_s"] / row["timings"]["opweld"]["median_s"]


def test_bench_names_a_runtime_that_is_not_there(model: Path) -> None:
    answer = opweld("bench", model, "--vs", "tensorrt")
    assert answer.returncode == 2
    assert "--vs 'tensorrt': expected some of onnxruntime, onnxruntime-exact, openvino, openvino-bf16" in answer.stderr


def test_the_cache_is_shown_pruned_and_cleared(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert opweld("run", model, OPWELD_CACHE=str(folder)).returncode == 0
    shown = opweld("cache", "--json", "-", OPWELD_CACHE=str(folder), OPWELD_CACHE_LIMIT="5M")
    data = json.loads(shown.stdout)
    assert data["folder"] == str(folder) and data["limit"] == 5 << 20
    assert data["kinds"]["models"]["entries"] == 1 and data["kinds"]["models"]["bytes"] > 10000
    assert "models" in opweld("cache", OPWELD_CACHE=str(folder)).stdout
    pruned = opweld("cache", "prune", "--limit", "0", OPWELD_CACHE=str(folder))
    assert pruned.stdout == "removed 0 entries, 0 B\n", "all of it was just used"
    for entry in (folder / "models").glob("*/*"):
        os.utime(entry, (0, 0))
    assert opweld("cache", "prune", "--days", 1, OPWELD_CACHE=str(folder)).stdout.startswith("removed 1 entries")
    wrong = opweld("cache", "prune", "--limit", "some", OPWELD_CACHE=str(folder))
    assert wrong.returncode == 2 and "--limit is 'some', expected a number of bytes" in wrong.stderr
    assert opweld("cache", "clear", OPWELD_CACHE=str(folder)).stdout == f"{folder} is empty\n"
    assert not (folder / "objects").exists()


def test_the_package_is_the_command(model: Path) -> None:
    answer = subprocess.run([sys.executable, "-m", "opweld", "--version"], capture_output=True, text=True, check=True,
                            env=os.environ | {"PYTHONPATH": str(SOURCE)})  # fmt: skip
    assert answer.stdout == "opweld 0.1.0\n"


def test_bisect_says_that_all_is_well_or_that_it_is_no_decision(model: Path) -> None:
    answer = opweld("bisect", model, "--json", "-")
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert (found["outcome"], found["runs"], found["found"]) == ("good", 1, None)
    assert found["whole"]["figure"] < 1e-5
    answer = opweld("bisect", model, "--rtol", "0", "--dim", "batch=7")
    assert answer.returncode == 1
    assert "bad with none of them too" in answer.stdout and "no decision" in answer.stdout
    answer = opweld("bisect", model, "--optimized")
    assert answer.returncode == 0, answer.stderr
    assert "good with all of them" in answer.stdout
    answer = opweld("bisect", model, "--latency", "2", "--rtol", "1")
    assert (answer.returncode, "latency stands alone" in answer.stderr) == (2, True)


def test_verify_reads_the_values_in_memory_and_takes_artifacts(model: Path, tmp_path: Path) -> None:
    answer = opweld("verify", model, "--intermediates", "--level", "none", "--json", "-")
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)["values"]
    assert [(value["name"], value["node"]) for value in found] == [("t", "product"), ("u", "bias"), ("y", "relu")]
    assert all(value["passed"] and not value["wrong"] for value in found)
    answer = opweld("verify", model, "--first-bad")
    assert (answer.returncode, answer.stdout.count("\n")) == (0, 1)
    artifact = tmp_path / "small.opweld"
    assert opweld("compile", model, "-o", artifact).returncode == 0
    answer = opweld("verify", artifact)
    assert (answer.returncode, "--against" in answer.stderr) == (2, True)
    answer = opweld("verify", artifact, "--against", model, "--dim", "batch=3", "--json", "-")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["outputs"][0]["shape"] == [3, 4]
    answer = opweld("verify", artifact, "--against", model, "--intermediates")
    assert (answer.returncode, answer.stdout) == (2, "")


def test_lock_writes_a_file_and_notices_a_fusion_that_is_lost(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "small.lock"
    answer = opweld("lock", model, "-o", file)
    assert answer.returncode == 0, answer.stderr
    assert 'kernel "product" "bias" "relu"' in file.read_text()
    assert opweld("lock", model).stdout == file.read_text()
    assert opweld("lock", model, "--check", file).returncode == 0
    answer = opweld("lock", model, "--check", file, "--disable", "fuse.epilogue")
    assert answer.returncode == 1
    assert "lost  main: kernel product, bias, relu\n      now product | bias, relu\n" in answer.stdout
    assert "fuse.epilogue" in answer.stdout and "(switched off)" in answer.stdout
    answer = opweld("lock", model, "--check", tmp_path / "absent.lock")
    assert (answer.returncode, "cannot be read" in answer.stderr) == (2, True)


def test_analyze_counts_a_model_and_its_artifact_alike(model: Path, tmp_path: Path) -> None:
    artifact, csv = tmp_path / "small.opweld", tmp_path / "kernels.csv"
    assert opweld("compile", model, "-o", artifact).returncode == 0
    made = [json.loads(opweld("analyze", m, "--dim", "batch=16", "--json", "-").stdout) for m in (model, artifact)]
    assert all(faults("analyze", data) == [] for data in made)
    for data in made:
        assert data["before"]["macs"] == data["after"]["macs"] == {"value": 16 * 8 * 4, "formula": "32*batch"}
        assert (data["before"]["launches"], data["after"]["launches"], data["parameters"]["count"]) == (3, 1, 36)
    assert made[0]["nodes"] == made[1]["nodes"] and made[0]["buffers"] == made[1]["buffers"]
    told = opweld("analyze", artifact, "--csv", csv)
    assert "before fusion" in told.stdout and "k1_contraction" in told.stdout
    assert csv.read_text().startswith("variant,name,phase,nodes,")
    nodes = opweld("analyze", model, "--nodes", "--formulas", "--sort", "bytes").stdout
    assert "32*batch + 128 + 16*batch" in nodes and "k1_contraction" in nodes
    for arguments, message in (
        (("--dim", "rows=2"), "--dim 'rows': the inputs' symbolic dims are batch"),
        (("--sort", "size"), "--sort 'size': expected one of time, flops"),
        (("--csv", tmp_path), "cannot write there"),
    ):
        refused = opweld("analyze", model, *arguments)
        assert refused.returncode == 2 and message in refused.stderr


def test_a_report_is_one_file_with_all_of_it(model: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    answer = opweld("report", model, "-o", page, "--dim", "batch=3", "--vs", "onnxruntime")
    assert answer.returncode == 0, answer.stderr
    shown = document_of(page.read_text(encoding="utf-8"))
    assert faults("explain", shown["account"]) == []
    (kernel,) = shown["account"]["kernels"]
    assert "void opw_" in shown["sources"][f"main/{kernel['name']}"]
    assert [output["passed"] for output in shown["numerics"]["outputs"]] == [True]
    assert shown["numerics"]["outputs"][0]["shape"] == [3, 4]
    assert [peer["name"] for peer in shown["peers"]] == ["opweld", "onnxruntime"]


def test_a_report_of_an_artifact_says_what_it_cannot_have(model: Path, tmp_path: Path) -> None:
    artifact, page = tmp_path / "small.opweld", tmp_path / "report.html"
    assert opweld("compile", model, "-o", artifact).returncode == 0
    assert opweld("report", artifact, "-o", page).returncode == 0
    shown = document_of(page.read_text(encoding="utf-8"))
    assert shown["numerics"] is None and "report on the ONNX file" in shown["numerics_reason"]
    assert shown["sources"] and shown["title"] == "small"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--vs", "tensorflow"), "expected some of"),
        (("--vs", "onnxruntime", "--no-run"), "--no-run runs nothing"),
        (("-o", "no/such/folder/report.html", "--no-run"), "cannot write there"),
    ],
)
def test_a_report_refuses_in_words(model: Path, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    answer = opweld("report", model, "-o", tmp_path / "report.html", *arguments)
    assert answer.returncode == 2
    assert words in answer.stderr

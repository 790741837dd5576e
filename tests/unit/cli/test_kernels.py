"""`opweld kernels report`, with kernels of the tests in place of those of the package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.test_main import opweld
from tests.unit.codegen.triton.compiling import run_compiling

CODE = """
import contextlib, io, json, sys
from opweld.analysis import kernel_resources
from opweld.cli.main import main
from opweld.kernels.variant import Variant
from tests.unit.codegen.triton import sample

def product(name, m, n, warps=4):
    yield Variant(f"product {name}", sample.product, sample.PRODUCT, {"M": m, "N": n, "BK": 32}, warps, 2)

def wrong(arch):
    yield Variant("wrong fp32", sample.wrong, {"x_ptr": "*fp32"}, {"BLOCK": 16}, 4, 2)

kernels = {
    "product": lambda arch: product("small", 64, 64),
    "large": lambda arch: product("large", 128, 256),
    "wrong": wrong,
}
kernel_resources._modules = lambda: iter(kernels.items())
answers = []
for arguments in json.loads(sys.argv[1]):
    out, err, status = io.StringIO(), io.StringIO(), 0
    sys.argv = ["opweld", "kernels", "report", *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
    answers.append((status, out.getvalue(), err.getvalue()))
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("report")
    calls = {
        "one": ["product"],
        "json": ["--json", "-", "--arch", "sm_80", "product"],
        "findings": ["large", "wrong"],
        "unknown": ["prodcut"],
        "arch": ["--arch", "sm_75"],
    }
    return dict(zip(calls, run_compiling(CODE, folder, json.dumps(list(calls.values()))), strict=True))


def test_a_kernel_is_a_row(answers: dict[str, Any]) -> None:
    status, out, err = answers["one"]
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "sm_90: 1 configuration"
    titles = "kernel warps registers spills shared blocks limited by occupancy tensor core"
    assert " ".join(lines[1].split()) == titles
    row = lines[3].split()
    assert row[:3] == ["product", "small", "4"]
    assert row[4] == "0"  # spills
    assert row[-2] == "HGMMA"


def test_json_has_every_instruction(answers: dict[str, Any]) -> None:
    status, out, _ = answers["json"]
    found = json.loads(out)
    assert (status, found["arch"], len(found["kernels"])) == (0, "sm_80", 1)
    kernel = found["kernels"][0]
    assert kernel["tensor_core"] == {"HMMA": kernel["instructions"]["HMMA"]}
    assert kernel["blocks"] * 4 / 64 == kernel["occupancy"]
    assert kernel["constants"] == {"M": "64", "N": "64", "BK": "32"}
    assert kernel["finding"] == ""


def test_findings_end_with_a_status(answers: dict[str, Any]) -> None:
    """Spilling is one, and a kernel that does not compile keeps no other from being measured."""
    status, out, _ = answers["findings"]
    assert status == 1
    assert "product large spills " in out
    assert "wrong fp32 is not compiled: Triton rejects the kernel wrong for sm_90: at 3:4:" in out


def test_what_is_not_there_is_refused(answers: dict[str, Any]) -> None:
    assert answers["unknown"][::2] == (
        [2, "opweld: there is no kernel prodcut: expected some of product, large, wrong\n"]
    )
    assert answers["arch"][::2] == [2, "opweld: --arch sm_75: expected sm_80 or sm_90\n"]


def test_where_triton_interprets_that_is_said(cache_folder: Path) -> None:
    answer = opweld("kernels", "report", "softmax")
    assert answer.returncode == 1
    assert "TRITON_INTERPRET" in answer.stdout

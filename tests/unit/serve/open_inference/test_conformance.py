"""The table of the protocol in the guide: each row names tests, and they exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opweld.serve.open_inference.grpc.messages import METHODS

HERE = Path(__file__).parent
GUIDE = HERE.parents[3] / "docs" / "guides" / "serve-models.md"


def rows() -> list[list[str]]:
    section = GUIDE.read_text().partition("## The protocol\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_row_has_its_tests(row: list[str]) -> None:
    named = re.findall(r"`(test_\w+)::(test_\w+)`", row[4])
    assert named and len(named) == row[4].count("`") // 2
    for file, test in named:
        assert re.search(rf"^def {test}\(", (HERE / f"{file}.py").read_text(), re.MULTILINE), f"{file}::{test}"


def test_all_methods_are_in_the_table() -> None:
    told = " ".join(row[2] for row in rows())
    families = ("SystemSharedMemory", "CudaSharedMemory")
    for method in METHODS:
        assert f"`{method}`" in told or any(method.startswith(one) and one in told for one in families), method

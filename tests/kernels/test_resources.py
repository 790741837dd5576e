"""No default configuration of a kernel spills, and each can be launched: compiled for GPUs that are not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import opweld
from tests.unit.codegen.triton.compiling import run_compiling

KERNELS = sorted(
    path.stem
    for path in (Path(opweld.__file__).parent / "kernels").glob("*.py")
    if "def variants(arch: int)" in path.read_text(encoding="utf-8")
)

CODE = """
import json, sys
from opweld.analysis.kernel_resources import kernel_variants, measure_resources

arch, most, *names = sys.argv[1:]
variants = {name: some[: int(most)] for name, some in kernel_variants(int(arch), names).items()}
print(json.dumps([one.to_json() for one in measure_resources(variants, int(arch))]))
"""


def findings(arch: int, kernel: str, folder: Path, most: int = 1000) -> list[str]:
    found: list[dict[str, Any]] = run_compiling(CODE, folder, str(arch), str(most), kernel)
    assert found or (kernel, arch) == ("linear_fp8", 80)  # which has no float8
    return [f"{one['name']} {one['finding']}" for one in found if one["finding"]]


def test_kernels_are_found() -> None:
    assert {"layer_norm", "softmax"} <= set(KERNELS)


def test_a_configuration_does_not_spill(cache_folder: Path, tmp_path: Path) -> None:
    assert findings(90, "softmax", tmp_path, most=2) == []


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "most"), [(80, 4), (90, 16)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_no_default_configuration_spills(kernel: str, arch: int, most: int, cache_folder: Path, tmp_path: Path) -> None:
    """The first of each kernel: `opweld kernels report --arch sm_90` has all, in minutes."""
    assert findings(arch, kernel, tmp_path, most) == []

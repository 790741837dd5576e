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
variants = kernel_variants(int(arch), names)
found = {name: measure_resources({name: some[: int(most)]}, int(arch)) for name, some in variants.items()}
print(json.dumps({name: [one.to_json() for one in some] for name, some in found.items()}))
"""


def findings(arch: int, kernels: list[str], folder: Path, most: int) -> list[str]:
    """Of kernels that are compiled in one process: it takes longer to import the compiler than to compile one."""
    found: dict[str, list[dict[str, Any]]] = run_compiling(CODE, folder, str(arch), str(most), *kernels)
    assert set(found) == set(kernels)
    nothing = {name for name, some in found.items() if not some}
    assert nothing <= ({"linear_fp8"} if arch == 80 else set()), "sm_80 has no float8"
    return [f"{one['name']} {one['finding']}" for some in found.values() for one in some if one["finding"]]


def test_kernels_are_found() -> None:
    assert {"layer_norm", "softmax"} <= set(KERNELS)


def test_a_configuration_does_not_spill(cache_folder: Path, tmp_path: Path) -> None:
    assert findings(90, ["softmax"], tmp_path, most=2) == []


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "most"), [(80, 4), (90, 16)])
def test_no_default_configuration_spills(arch: int, most: int, cache_folder: Path, tmp_path: Path) -> None:
    """The first of each kernel: `opweld kernels report --arch sm_90` has all, in minutes."""
    assert findings(arch, KERNELS, tmp_path, most) == []

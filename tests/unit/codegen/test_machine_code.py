"""What the C compiler makes of kernels, where it mattered."""

from __future__ import annotations

import platform
import shutil
import subprocess

import pytest

from opweld.cached import compile_model
from opweld.options import Options
from tests.unit.frontend.models import model_of, node


@pytest.mark.skipif(
    platform.machine() != "x86_64" or shutil.which("objdump") is None, reason="needs objdump, of x86-64"
)
def test_the_rest_of_a_row_is_no_expansion() -> None:
    """Sums over 7 of 16 lanes: an expanding load for each row took three times as long on cores of AMD."""
    model = model_of([node("GlobalAveragePool", ["x"], "y")], {"x": (1, 64, 7, 7)}, ["y"])
    library = compile_model(model.SerializeToString(), Options(target="x86-64-v4")) / "module.so"
    text = subprocess.run(["objdump", "--disassemble", library], capture_output=True, text=True, check=True).stdout
    assert "zmm" in text and "expand" not in text

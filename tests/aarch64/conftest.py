"""The emulator, once a test run; tests skip where there is none."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.aarch64.emulated import Emulator, compiled, missing

SMALLEST = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { y = Relu(x) }"""


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    """The C example in the emulator."""
    if why := missing():
        pytest.skip(why)
    folder: Path = tmp_path_factory.mktemp("emulator")
    return Emulator.build(folder, compiled(onnx.parser.parse_model(SMALLEST), folder / "smallest.opweld"))

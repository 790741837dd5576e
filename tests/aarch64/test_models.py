"""Each of the seven models answers on AArch64 as it does here; small ones do so on one thread, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import opweld
from benchmarks.zoo import fetch, inputs
from opweld.verification.compare import compare
from tests.aarch64.emulated import Emulator, compiled

pytestmark = pytest.mark.models


@pytest.mark.parametrize(
    "name", ["ppocrv4-det", "minilm", "silero-vad", "magika", "resnet50", "mobilenetv2", "bert-base"]
)
def test_answers_as_here(name: str, emulator: Emulator, tmp_path: Path) -> None:
    source, feeds = fetch.path(name), inputs.example(name)
    made = compiled(source, tmp_path / "model.opweld")
    two = emulator.run(made, feeds, tmp_path / "two")
    here = opweld.compile(source).session.run_tensors(feeds)
    for output, other in zip(two, here, strict=True):
        # Sums are of other lengths; what is right here is tested with the models.
        found = compare(name, output, np.asarray(other))
        assert found.passed, found.problem
    if name in ("minilm", "silero-vad"):
        one = emulator.run(made, feeds, tmp_path / "one", threads=1)
        assert all(np.array_equal(*pair) for pair in zip(one, two, strict=True))

"""The zoo for GPUs, without one: models compiled for cards, and run in Triton's interpreter, by large blocks.

All of it is `python -m benchmarks.gpu_zoo`, which takes hours; here are those that the interpreter runs soonest."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu_zoo import is_right, outcome
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.models

INTERPRETED = ("silero-vad", "silero-vad-sequence", "silero-vad-fixed", "magika")
COMPILED = ("silero-vad", "magika", "minilm", "resnet50")


@pytest.mark.parametrize("name", INTERPRETED)
def test_a_model_is_right(name: str, tmp_path: Path) -> None:
    found = outcome(name, "run", PATIENCE_S, str(tmp_path))
    assert is_right(found) and found["error"] <= found["tolerance"], found


@pytest.mark.parametrize("name", ("bert-base", "llama-160m"))
def test_an_architecture_of_few_layers_is_right(name: str, tmp_path: Path) -> None:
    found = outcome(name, "small", PATIENCE_S, str(tmp_path))
    assert is_right(found) and found["error"] <= found["tolerance"], found


@pytest.mark.parametrize("architecture", ("sm_80", "sm_90"))
@pytest.mark.parametrize("name", COMPILED)
def test_no_kernel_spills(name: str, architecture: str, tmp_path: Path) -> None:
    found = outcome(name, architecture, PATIENCE_S, str(tmp_path))
    assert is_right(found) and found["kernels"], found

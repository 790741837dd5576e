"""The zoo through the door for other backends: compiled and run by the interpreter of `tests/backends`, and right.

Each model runs on its cheapest feed of the zoo. What it answers is compared with the model in float64, which shares no
code with the compiler."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import opweld
from benchmarks.zoo import fetch, inputs
from benchmarks.zoo.catalogue import MODELS
from opweld.verification.compare import compare
from tests.backends.interpret import Interpreted
from tests.models.float64 import Reference

pytestmark = [pytest.mark.models, pytest.mark.usefixtures("interpreter")]


def smallest(name: str) -> dict[str, np.ndarray]:
    """The feed of the zoo with the fewest elements, of those that the model takes."""
    feeds = [inputs.example(name, variant.label) for variant in inputs.variants(name) if variant.valid]
    return min(feeds, key=lambda feed: sum(array.size for array in feed.values()))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_right(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    source, feeds = fetch.path(name), smallest(name)
    model = opweld.compile(source, target="interpret")
    assert isinstance(model.session._opened, Interpreted)
    found, right = model.run(feeds), Reference(source).run(feeds)
    assert list(found) == [info.name for info in model.outputs]
    for (output, array), exact in zip(found.items(), right, strict=True):
        result = compare(output, array, exact)
        with capsys.disabled():
            sys.stdout.write(f"\n{name}, {output}: error {result.error:.1e}, tolerated {result.tolerance:.1e}")
        assert result.passed, result.problem

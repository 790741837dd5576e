"""Models of the zoo through the door for other backends: what the interpreter of `tests/backends` answers is what
compiled C does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import opweld
from benchmarks.zoo import fetch, inputs
from tests.backends.interpret import ENTRY_POINTS
from tests.unit.packages import installed

pytestmark = pytest.mark.models

SMALL = {"magika": 0, "silero-vad": 0, "minilm": 0}
"""Models, each with the number of a feed of the zoo that NumPy computes in seconds, element by element."""


@pytest.fixture(autouse=True)
def interpreter(tmp_path: Path) -> Iterator[None]:
    folder = tmp_path / "package"
    folder.mkdir()
    with installed(folder, ENTRY_POINTS):
        yield


@pytest.mark.parametrize("name", SMALL)
def test_a_model_is_interpreted_as_it_is_compiled(name: str) -> None:
    feeds, source = inputs.example(name, SMALL[name]), fetch.path(name)
    model = opweld.compile(source, target="interpret")
    assert model.session.manifest.backend == "interpreter"
    expected, found = opweld.compile(source).run(feeds), model.run(feeds)
    assert found.keys() == expected.keys()
    for key, array in found.items():
        assert array.shape == expected[key].shape
        np.testing.assert_allclose(array, expected[key], rtol=1e-4, atol=1e-4 * np.abs(expected[key]).max())

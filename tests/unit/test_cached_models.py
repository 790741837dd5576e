"""Compiling twice: what the cache holds is checked before it is run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import opweld
from opweld.build import artifact
from opweld.errors import InputError, ModelError
from tests.unit.frontend.models import model_of, node
from tests.unit.ops.one_node import normal


def product() -> bytes:
    return model_of([node("MatMul", ["x", "w"], "y")], {"x": [2, 8]}, ["y"], {"w": normal(8, 8)}).SerializeToString()


def test_a_damaged_entry_of_the_cache_is_made_anew(cache_folder: Path) -> None:
    x = normal(2, 8, seed=1)
    path = opweld.compile(product()).path
    for name in (artifact.WEIGHTS, artifact.MODULE):
        data = bytearray((path / name).read_bytes())
        # Not in place: the code of the open session is mapped from the file.
        (path / name).unlink()
        (path / name).write_bytes(bytes(len(data)))
        model = opweld.compile(product())
        assert (model.path / name).read_bytes() == data
        np.testing.assert_allclose(model.run({"x": x})["y"], x @ normal(8, 8), rtol=1e-5, atol=1e-5)


def test_a_sound_entry_is_not_read_again(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = opweld.compile(product()).path

    def refuse(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr("hashlib.file_digest", refuse)
    assert opweld.compile(product()).path == first


def test_a_file_that_no_model_can_be_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "m.onnx").open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(ModelError, match="2 GB"):
        opweld.compile(tmp_path / "m.onnx")


@pytest.mark.parametrize("feeds", [None, 3, [np.zeros((2, 8), np.float32)], "x"])
def test_feeds_that_are_no_dict_are_refused(feeds: object) -> None:
    with pytest.raises(InputError, match="dict of arrays"):
        opweld.compile(product()).run(feeds)  # pyright: ignore[reportArgumentType]

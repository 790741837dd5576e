"""An artifact that a node does not have is written there once, and is what was sent."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opweld
from opweld.build import artifact
from opweld.errors import OptionError
from opweld.options import Options
from tests.unit.ray.models import ROWS, write_model

pytest.importorskip("pyarrow")

from opweld.ray import shipment


class Store:
    """An object store in this process, which counts what is read from it."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self.read = 0

    def put(self, value: Any) -> int:
        self.objects.append(value)
        return len(self.objects) - 1

    def get(self, reference: int) -> Any:
        self.read += 1
        return self.objects[reference]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store()
    monkeypatch.setattr(shipment.ray, "put", store.put)
    monkeypatch.setattr(shipment.ray, "get", store.get)
    return store


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return opweld.compile(write_model(ROWS, tmp_path)).save(tmp_path / "model.opweld")


X = np.ones((2, 3), np.float32)


def test_a_node_that_has_the_artifact_reads_nothing(store: Store, saved: Path) -> None:
    sent = shipment.ship(saved, 1)
    assert sent.place() == saved
    assert store.read == 0


def test_a_node_writes_it_once(store: Store, saved: Path, cache_folder: Path) -> None:
    sent = shipment.ship(saved, 1)
    right = opweld.load(saved).run({"x": X})["y"]
    shutil.rmtree(saved)
    assert np.array_equal(sent.open(1).run({"x": X})[0], right)
    files = len(store.objects)
    assert store.read == files
    assert sent.place() == sent.place()
    assert store.read == files
    artifact.read(sent.place(), verify=True)


def test_a_copy_that_is_damaged_is_written_again(store: Store, saved: Path, cache_folder: Path) -> None:
    sent = shipment.ship(saved, 1)
    shutil.rmtree(saved)
    weights = sent.place() / artifact.WEIGHTS
    weights.write_bytes(b"\0" * weights.stat().st_size)
    artifact.read(sent.place(), verify=True)


def test_a_path_with_another_artifact_is_not_it(store: Store, saved: Path, cache_folder: Path) -> None:
    sent = shipment.ship(saved, 1)
    (saved / artifact.MANIFEST).write_text("{}")
    assert sent.place() != saved


def test_a_node_of_another_processor_compiles_the_source(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_model(ROWS, tmp_path)
    sent = replace(shipment.ship(path, 1, level="basic"), processor="another")
    compiled: list[tuple[Any, Options]] = []

    def compile_model(source: Any, options: Options) -> Path:
        compiled.append((source, options))
        return tmp_path

    monkeypatch.setattr("opweld.cached.compile_model", compile_model)
    assert sent.place() == tmp_path
    ((source, options),) = compiled
    assert (source.title, options.level) == (str(path), "basic")
    assert store.read == 0


def test_the_same_model_has_the_same_identity_on_every_machine(store: Store, tmp_path: Path) -> None:
    path = write_model(ROWS, tmp_path)
    plain = shipment.ship(path, 1)
    assert plain.identity == shipment.ship(path.read_bytes(), 2).identity
    assert plain.identity != shipment.ship(path, 1, level="basic").identity


def test_an_artifact_takes_no_options_of_compiling(store: Store, saved: Path) -> None:
    with pytest.raises(OptionError, match="level is an option of compiling"):
        shipment.ship(saved, 1, level="none")

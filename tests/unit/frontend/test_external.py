from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from opweld.errors import ModelError
from opweld.frontend.graph import graph_of
from opweld.frontend.onnx import load
from tests.unit.frontend.models import model_of, node
from tests.unit.ops.one_node import normal, run


def save(folder: Path, location: str = "weights.bin", **fields: int) -> Path:
    """A model whose weights are in an external file, which is not written."""
    model = model_of([node("MatMul", ["x", "w"], "y")], {"x": [2, 8]}, ["y"], {"w": normal(8, 8)}, opset=17)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **fields}.items():
        tensor.external_data.add(key=key, value=str(value))
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def weight(path: Path) -> np.ndarray:
    value = load(path).graph.initializers["w"].const_value
    assert value is not None
    return value.numpy()


def test_external_weights_are_read_by_reference(tmp_path: Path) -> None:
    path = save(tmp_path / "m", offset=16, length=256)
    (path.parent / "weights.bin").write_bytes(bytes(16) + normal(8, 8).tobytes())
    assert (weight(path) == normal(8, 8)).all()


@pytest.mark.parametrize(
    "location", ["../secret.bin", "/etc/hostname", "a/../../secret.bin", "", "..\\secret.bin", "a\0b", "."]
)
def test_locations_outside_of_the_folder_are_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(normal(8, 8).tobytes())
    (tmp_path / "m" / "a").mkdir(parents=True)
    with pytest.raises(ModelError, match="'w'"):
        load(save(tmp_path / "m", location))


def test_a_symbolic_link_may_not_leave_the_folder(tmp_path: Path) -> None:
    path = save(tmp_path / "m")
    (tmp_path / "secret.bin").write_bytes(normal(8, 8).tobytes())
    os.symlink(tmp_path / "secret.bin", path.parent / "weights.bin")
    with pytest.raises(ModelError, match="leads out"):
        load(path)


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "m")
    os.symlink("weights.bin", path.parent / "weights.bin")
    with pytest.raises(ModelError, match="'w'"):
        load(path)
    os.symlink("loop.onnx", tmp_path / "loop.onnx")
    with pytest.raises(ModelError, match=r"loop\.onnx"):
        load(tmp_path / "loop.onnx")


def test_links_that_stay_inside_are_legitimate(tmp_path: Path) -> None:
    path = save(tmp_path / "m")
    (path.parent / "store").mkdir()
    (path.parent / "store" / "blob").write_bytes(normal(8, 8).tobytes())
    os.symlink("store/blob", path.parent / "weights.bin")
    assert (weight(path) == normal(8, 8)).all()
    os.unlink(path.parent / "weights.bin")
    os.link(path.parent / "store" / "blob", path.parent / "weights.bin")
    assert (weight(path) == normal(8, 8)).all()


def test_a_cache_of_links_to_blobs_is_legitimate(tmp_path: Path) -> None:
    real = save(tmp_path / "blobs")
    (tmp_path / "blobs" / "w").write_bytes(normal(8, 8).tobytes())
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    os.symlink(real, snapshot / "model.onnx")
    os.symlink(tmp_path / "blobs" / "w", snapshot / "weights.bin")
    assert (weight(snapshot / "model.onnx") == normal(8, 8)).all()


@pytest.mark.parametrize(
    "fields", [{"offset": 1}, {"offset": -4}, {"length": 300}, {"length": 100}, {"offset": 2**62, "length": 256}]
)
def test_data_outside_of_its_file_is_refused(tmp_path: Path, fields: dict[str, int]) -> None:
    path = save(tmp_path / "m", "weights.bin", **fields)
    (path.parent / "weights.bin").write_bytes(normal(8, 8).tobytes())
    with pytest.raises(ModelError, match="'w'"):
        load(path)


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        load(save(tmp_path / "m", "x" * 300))


def test_a_missing_file_and_a_model_without_a_folder_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "m")
    with pytest.raises(ModelError, match="does not exist"):
        load(path)
    with pytest.raises(ModelError, match="loaded from a file"):
        load(path.read_bytes())
    with pytest.raises(ModelError, match="loaded from a file"):
        load(onnx.load(path, load_external_data=False))


def test_a_model_with_external_weights_runs(tmp_path: Path) -> None:
    path = save(tmp_path / "m")
    (path.parent / "weights.bin").write_bytes(normal(8, 8).tobytes())
    from opweld import lower
    from opweld.frontend.explore import variants

    programs = [lower.to_tensors(variant) for variant in variants(graph_of(load(path)))]
    x = normal(2, 8)
    np.testing.assert_allclose(run(programs, {"x": x})["y"], x @ normal(8, 8), rtol=1e-5, atol=1e-5)

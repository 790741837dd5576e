"""examples/ocr: its steps alone, and all of it beside ONNX Runtime doing the same."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from benchmarks.zoo import fetch, pictures
from opweld.errors import InputError
from opweld.serve.inference.model import Call
from opweld.serve.inference.program import read_program
from opweld.serve.inference.repository import ModelRepository

pytest.importorskip("PIL")

from PIL import Image
from scipy import ndimage

from examples.ocr.make_repository import make
from examples.ocr.program import detection, picture, recognition

Array = np.ndarray


@given(arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 12))))
def test_regions_are_pixels_that_touch(mask: Array) -> None:
    labels, count = cast(Any, ndimage).label(mask, structure=np.ones((3, 3)))
    found = {tuple(sorted(map(tuple, points.astype(int).tolist()))) for points in detection.regions(mask)}
    expected = set()
    for label in range(1, count + 1):
        ends = []
        for row in range(mask.shape[0]):
            inside = np.pad(labels[row] == label, 1)
            steps = np.diff(inside.astype(int))
            ends += [(x, row) for x in np.nonzero(steps == 1)[0]] + [(x - 1, row) for x in np.nonzero(steps == -1)[0]]
        expected.add(tuple(sorted((int(x), y) for x, y in ends)))
    assert found == expected


@given(st.floats(5, 60), st.floats(5, 60), st.floats(-44, 44), st.floats(-20, 20), st.floats(-20, 20))
def test_the_smallest_rectangle_of_a_rectangle_is_itself(
    width: float, height: float, degrees: float, x: float, y: float
) -> None:
    angle = np.radians(degrees)
    axes = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    sides, centre = np.array([width, height]), np.array([x, y])
    points = detection.corners(centre, axes, sides).astype(np.float32)
    found = detection.corners(*detection.smallest_rectangle(np.concatenate([points, centre[None].astype(np.float32)])))
    assert np.allclose(found, points, atol=1e-2)


def test_a_box_is_grown_and_comes_back_in_the_picture(tmp_path: Path) -> None:
    probability = np.zeros((64, 128), np.float32)
    probability[20:30, 40:100] = 0.9
    probability[50:60, 10:60] = 0.4  # not sure enough
    (box,) = detection.boxes_of(probability, (128, 256))
    width, height = 59, 9
    grown = detection.GROWTH * width * height / (2 * (width + height))
    left, top = 40 - grown, 20 - grown
    assert np.allclose(box[0], [2 * left, 2 * top], atol=0.1)
    assert np.allclose(box[2], [2 * (99 + grown), 2 * (29 + grown)], atol=0.1)


def test_no_text_is_no_box() -> None:
    assert detection.boxes_of(np.zeros((32, 32), np.float32), (32, 32)).shape == (0, 4, 2)


def test_letters_that_repeat_are_one_unless_there_is_none_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recognition, "characters", lambda: ["a", "b"])
    steps = np.eye(3, dtype=np.float32)[[0, 1, 1, 0, 1, 2, 2, 0]]
    assert recognition.text_of(steps) == ("aab", 1.0)
    assert recognition.text_of(steps[:1]) == ("", 0.0)


@pytest.mark.parametrize("data", [b"", b"GIF89a", b"\x89PNG\r\n\x1a\n" + bytes(20), "text"])
def test_what_is_no_picture_is_a_fault_of_the_client(data: bytes | str) -> None:
    with pytest.raises(InputError, match="image"):
        picture.decoded(data)


def test_a_line_askew_is_straightened() -> None:
    image = np.zeros((100, 100, 3), np.uint8)
    box = np.array([[20, 30], [60, 50], [55, 60], [15, 40]], np.float32)
    image[49:52, 57:60] = 255  # at its upper right corner
    line = recognition.straightened(image, box).copy()
    assert line.shape == (11, 45, 3)
    assert line[:4, -5:].max() > 200
    line[:4, -5:] = 0
    assert line.max() == 0


class Peers:
    """The models of a program, run by ONNX Runtime."""

    def __init__(self, **models: Path) -> None:
        import onnxruntime

        self.sessions = {name: onnxruntime.InferenceSession(path) for name, path in models.items()}

    def __getitem__(self, name: str) -> Callable[..., Awaitable[Mapping[str, Array]]]:
        async def infer(**feeds: Array) -> Mapping[str, Array]:
            session = self.sessions[name]
            names = [output.name for output in session.get_outputs()]
            return dict(zip(names, cast("list[Array]", session.run(None, feeds)), strict=True))

        return infer

    async def compute(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)


def drawn() -> Array:
    """A PNG of signs on a photograph, as the element of a tensor."""
    scene = pictures.street_signs(480, 640, np.random.default_rng(3))
    file = io.BytesIO()
    Image.fromarray((scene * 255).astype(np.uint8)).save(file, "PNG")
    return np.array([file.getvalue()], object)


@pytest.mark.models
def test_text_is_read_as_onnx_runtime_reads_it(tmp_path: Path) -> None:
    models = {"detect": fetch.path("ppocrv4-det"), "recognise": fetch.path("ppocrv4-rec")}
    make(tmp_path, models["detect"], models["recognise"])

    async def answer() -> Mapping[str, Array]:
        repository = ModelRepository([(None, tmp_path)])
        repository.load_all()
        try:
            return await repository.get("ocr").infer({"image": drawn()}, Call())
        finally:
            await repository.close()

    made = asyncio.run(answer())
    program, _ = read_program(tmp_path / "ocr" / "1" / "program.py")
    right = asyncio.run(program.answer(Peers(**models), image=drawn()))  # pyright: ignore[reportArgumentType]
    assert made["texts"].tolist() == right["texts"]
    assert len(right["texts"]) > 2
    assert {"OPEN", "HOTEL", "EXIT", "BOOKS", "NORTH", "MARKET", "2026"} & set(right["texts"])
    assert np.allclose(made["boxes"], right["boxes"], atol=1)
    assert np.allclose(made["scores"], right["scores"], atol=1e-3)

"""Files and folders as models and their versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from opweld.errors import MissingModelError, ModelError
from opweld.serve.inference.layout import Place, is_model, place_of, places_of


def artifact(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "manifest.json").touch()
    return folder


def file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_a_model_alone(tmp_path: Path) -> None:
    path = artifact(tmp_path / "a.opweld")
    assert place_of(path) == Place("a", {"1": path}, tmp_path / "a.toml")
    path = file(tmp_path / "b.onnx")
    assert place_of(path, "c") == Place("c", {"1": path}, tmp_path / "b.toml")


def test_a_folder_whose_name_has_a_dot(tmp_path: Path) -> None:
    path = artifact(tmp_path / "net.v2")
    assert place_of(path) == Place("net.v2", {"1": path}, tmp_path / "net.v2.toml")


def test_the_folder_of_a_model_is_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = file(tmp_path / "a/1/model.onnx"), tmp_path / "a/2"
    two.mkdir()
    fault = f"{two} holds neither an artifact, an .onnx file nor a program.py"
    expected = Place("a", {"1": one}, tmp_path / "a/opweld.toml", {"2": fault})
    assert is_model(tmp_path / "a") and place_of(tmp_path / "a") == expected
    monkeypatch.chdir(tmp_path / "a")
    assert place_of(Path()) == expected
    assert place_of(tmp_path / "a", "b").name == "b"
    only = file(tmp_path / "c/model.onnx")
    settings = file(tmp_path / "c/opweld.toml")
    assert is_model(tmp_path / "c") and place_of(tmp_path / "c") == Place("c", {"1": only}, settings)


@pytest.mark.parametrize("path", ["a/1/model.onnx", "1/1/model.onnx", "model.onnx", "README.md"])
def test_a_repository_is_no_model(tmp_path: Path, path: str) -> None:
    file(tmp_path / path)
    assert not is_model(tmp_path)


def test_a_repository(tmp_path: Path) -> None:
    one, two = file(tmp_path / "a/1/model.onnx"), artifact(tmp_path / "a/10")
    three = artifact(tmp_path / "b/3/weights.opweld")
    four, five = file(tmp_path / "c/model.onnx"), artifact(tmp_path / "d.opweld")
    file(tmp_path / "README.md")
    file(tmp_path / ".cache/1/model.onnx")
    assert places_of(tmp_path) == [
        Place("a", {"1": one, "10": two}, tmp_path / "a/opweld.toml"),
        Place("b", {"3": three}, tmp_path / "b/opweld.toml"),
        Place("c", {"1": four}, tmp_path / "c/opweld.toml"),
        Place("d", {"1": five}, tmp_path / "d.toml"),
    ]


def test_what_cannot_be_served_says_why(tmp_path: Path) -> None:
    file(tmp_path / "a/1/notes.txt")
    file(tmp_path / "a/2/model.onnx")
    file(tmp_path / "a/3/model.onnx")
    file(tmp_path / "a/3/other.onnx")
    (place,) = places_of(tmp_path)
    assert place.versions == {"2": tmp_path / "a/2/model.onnx"}
    assert place.faults == {
        "1": f"{tmp_path}/a/1 holds neither an artifact, an .onnx file nor a program.py",
        "3": f"{tmp_path}/a/3 holds 2 models, expected one",
    }


def test_two_of_a_name(tmp_path: Path) -> None:
    file(tmp_path / "a.onnx")
    file(tmp_path / "a/1/model.onnx")
    file(tmp_path / "a/2/model.onnx")
    file(tmp_path / "b.onnx")
    a, b = places_of(tmp_path)
    reason = "there are two models of the name 'a'; rename one of them"
    assert (a.name, a.versions, a.faults) == ("a", {}, {"1": reason, "2": reason})
    assert (b.versions, b.faults) == ({"1": tmp_path / "b.onnx"}, {})


def test_what_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        file(tmp_path / name / "model.onnx")
    listed = Path.iterdir

    def iterdir(path: Path) -> Iterator[Path]:
        if path.name in errors:
            raise errors[path.name]
        return listed(path)

    errors = {"a": PermissionError(13, "Permission denied"), "b": FileNotFoundError()}
    monkeypatch.setattr(Path, "iterdir", iterdir)
    a, c = places_of(tmp_path)
    assert (a.name, a.versions, a.faults) == ("a", {}, {"1": f"cannot read {tmp_path}/a: Permission denied"})
    assert c.versions
    errors = {tmp_path.name: PermissionError(13, "Permission denied")}
    with pytest.raises(ModelError, match=r"cannot read .*: Permission denied"):
        places_of(tmp_path)
    errors = {}
    for path in (tmp_path / "nowhere", tmp_path / "a/model.onnx"):
        with pytest.raises(MissingModelError, match=f"there is no {path}"):
            places_of(path)

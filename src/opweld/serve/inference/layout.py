"""Where the versions of models lie in files and folders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from opweld.build.artifact import MANIFEST
from opweld.errors import MissingModelError, ModelError
from opweld.serve.inference import program
from opweld.serve.inference.settings import is_version

ARTIFACT: Final = ".opweld"
ONNX: Final = ".onnx"
SETTINGS: Final = "opweld.toml"
ONLY: Final = "1"
"""The version of a model that has none."""


@dataclass(frozen=True)
class Place:
    """A model on disk.

    Attributes:
        versions: an artifact's folder, an ONNX file or a program, by version.
        settings: the file of its settings, there or not.
        faults: by version that cannot be served, why.
    """

    name: str
    versions: Mapping[str, Path]
    settings: Path
    faults: Mapping[str, str] = field(default_factory=dict[str, str])


def is_model(path: Path) -> bool:
    """Whether it is one model: an artifact, an ONNX file, or the folder that a model has in a repository."""
    return _is_whole(path) or is_folder_of_model(path)


def is_folder_of_model(path: Path) -> bool:
    """Whether it is a model's folder in a repository, and no repository: it has settings, or nothing but versions.

    Raises ModelError where it cannot be read."""
    if not path.is_dir():
        return False
    try:
        if (path / SETTINGS).is_file():
            return True
        inner = [one for one in path.iterdir() if not one.name.startswith(".")]
        return all(is_version(one.name) and one.is_dir() for one in inner) and any(map(_held, inner))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error


def _is_whole(path: Path) -> bool:
    return is_artifact(path) or (path.suffix == ONNX and path.is_file())


def is_artifact(path: Path) -> bool:
    """Whether it is the folder of an artifact, sound or not."""
    return path.is_dir() and (path.suffix == ARTIFACT or (path / MANIFEST).is_file())


def is_program(path: Path) -> bool:
    """Whether it is the code of a program, which lies in the folder of a model."""
    return path.name == program.FILE and path.is_file()


def place_of(path: Path, name: str = "") -> Place:
    """A single model: of version 1, with NAME.toml beside it, or a folder of versions; `name` instead of that of its
    file or folder. Raises ModelError where it cannot be read."""
    if not _is_whole(path) and is_folder_of_model(path):
        place = _of_folder(path.absolute())
        return replace(place, name=name or place.name)
    return _alone(path, name)


def _alone(path: Path, name: str = "") -> Place:
    base = path.stem if path.suffix in (ARTIFACT, ONNX) else path.name
    return Place(name or base, {ONLY: path}, path.with_name(f"{base}.toml"))


def places_of(folder: Path) -> list[Place]:
    """The models of a repository, by name: NAME/VERSION/..., NAME/..., NAME.opweld, NAME.onnx.

    What begins with a dot, and what is neither a folder nor a model, is passed over; what cannot be read, and two
    models of one name, have faults. Raises MissingModelError where there is no such folder, ModelError where it cannot
    be read."""
    try:
        paths = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        raise MissingModelError(
            f"there is no {folder}; give an artifact, an .onnx file, a language model, or a folder of models"
        ) from None
    except OSError as error:
        raise ModelError(f"cannot read {folder}: {error.strerror}") from error
    places = [_place(path) for path in paths if not path.name.startswith(".")]
    return list(by_name(place for place in places if place is not None).values())


def by_name(places: Iterable[Place]) -> dict[str, Place]:
    """Models by their names; of two with the same name, one that cannot be served."""
    found: dict[str, Place] = {}
    for place in places:
        if (other := found.get(place.name)) is not None:
            versions = {*other.versions, *other.faults, *place.versions, *place.faults}
            reason = f"there are two models of the name {place.name!r}; rename one of them"
            place = replace(other, versions={}, faults=dict.fromkeys(sorted(versions, key=int), reason))
        found[place.name] = place
    return found


def _place(path: Path) -> Place | None:
    """The model of a path in a repository; None where it is none."""
    try:
        if _is_whole(path):
            return _alone(path)
        return _of_folder(path) if path.is_dir() else None
    except FileNotFoundError:
        return None  # gone meanwhile
    except OSError as error:
        return replace(_alone(path), versions={}, faults={ONLY: f"cannot read {path}: {error.strerror}"})


def _of_folder(folder: Path) -> Place:
    """A model with a folder of its own: its versions, or itself."""
    numbered = [path for path in folder.iterdir() if path.is_dir() and is_version(path.name)]
    versions: dict[str, Path] = {}
    faults: dict[str, str] = {}
    for version, inner in [(path.name, path) for path in numbered] or [(ONLY, folder)]:
        models = _held(inner)
        if len(models) == 1:
            versions[version] = models[0]
        else:
            held = (
                f"{len(models)} models, expected one"
                if models
                else f"neither an artifact, an .onnx file nor a {program.FILE}"
            )
            faults[version] = f"{inner} holds {held}"
    return Place(folder.name, versions, folder / SETTINGS, faults)


def _held(folder: Path) -> list[Path]:
    """The models that the folder of a version holds, or is."""
    if is_artifact(folder):
        return [folder]
    return sorted(path for path in folder.iterdir() if _is_whole(path) or is_program(path))

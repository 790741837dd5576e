"""An artifact on its way to the nodes of a cluster: in memory once a node, on disk once a node, compiled once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from opweld.build import artifact
from opweld.build.cache import Cache
from opweld.build.stored import NAME, stored
from opweld.errors import OptionError
from opweld.ray.columns import Array
from opweld.ray.packages import ray
from opweld.runtime.session import Session
from opweld.target import Target

if TYPE_CHECKING:
    from opweld.compile import Model, ModelSource
    from opweld.frontends.source import Source
    from opweld.options import Options


@dataclass(frozen=True)
class Shipment:
    """An artifact, and where a node finds it.

    Attributes:
        key: a digest of its manifest, which has those of its files.
        identity: a digest of the model and of how it is compiled, the same on every machine.
        path: on the node that it was compiled or loaded on, or on a file system that several share.
        files: references to their bytes in the object store, uint8.
        source, options: what nodes of another processor compile; None where only the artifact is known.
        processor: that it was compiled for, where it was that of the driver; else empty.
    """

    key: str
    identity: str
    path: Path
    files: Mapping[str, Any]
    source: Source | None = None
    options: Options | None = None
    processor: str = ""

    def open(self, threads: int) -> Session:
        """The model on this node. Raises ArtifactError where it is for another processor and cannot be compiled here,
        and what compiling raises."""
        return Session(self.place(), threads=threads)

    def place(self) -> Path:
        """The artifact's folder on this node, written or compiled by the first process that asks for it; the others
        wait for that one."""
        if self.source is not None and self.options is not None and self.processor not in ("", _native()):
            from opweld.cached import compile_model

            return compile_model(self.source, self.options)
        return self.path if _key(self.path) == self.key else stored(Cache.open(), "models", self.key, self._write)

    def _write(self, entry: Path) -> None:
        for name, reference in self.files.items():
            path = entry / NAME / name
            path.parent.mkdir(parents=True, exist_ok=True)
            cast("Array", ray.get(reference)).tofile(path)


def ship(model: ModelSource | Model, threads: int, **options: Any) -> Shipment:
    """Compiles a model on this machine, if it is no artifact yet, and puts it into the object store.

    Args:
        model: a compiled model, the folder of an artifact, or what `opweld.compile` takes.
        threads: of each run.
        options: those of `opweld.compile`.

    Raises OptionError for options of an artifact, and what compiling raises."""
    from opweld.compile import Model

    folder = model.path if isinstance(model, Model) else _artifact_folder(model)
    if folder is not None:
        if options:
            raise OptionError(f"{next(iter(options))} is an option of compiling, and {folder} is compiled")
        return _shipment(folder)
    from opweld.cached import compile_model
    from opweld.frontends import source_of
    from opweld.options import Options

    source, chosen = source_of(model).settled(), Options.of(threads=threads, **options)
    said = f"{source.digest(Cache.open())} {sorted((name, repr(value)) for name, value in options.items())}"
    return replace(
        _shipment(compile_model(source, chosen)),
        identity=hashlib.sha256(said.encode()).hexdigest(),
        source=source,
        options=chosen,
        processor=_native() if chosen.target == "native" else "",
    )


def _shipment(folder: Path) -> Shipment:
    names = (artifact.MANIFEST, *artifact.read(folder).files)
    files = {name: ray.put(np.fromfile(folder / name, np.uint8)) for name in names}
    key = _key(folder)
    return Shipment(key, key, folder.absolute(), files)


def _artifact_folder(model: object) -> Path | None:
    if isinstance(model, str | os.PathLike):
        path = Path(cast("str | os.PathLike[str]", model))
        return path if path.is_dir() else None
    return None


def _key(folder: Path) -> str:
    """A digest of the manifest of an artifact; empty where there is none."""
    try:
        return hashlib.sha256((folder / artifact.MANIFEST).read_bytes()).hexdigest()
    except OSError:
        return ""


def _native() -> str:
    return Target.native().digest()

"""What opens an artifact: the runtime of the backend that compiled it, imported when one of its is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from opweld import extensions
from opweld.build.artifact import Manifest
from opweld.errors import ArtifactError
from opweld.runtime.opened import Opened

GROUP: Final = "opweld.runtimes"
"""Entry points that open artifacts, by name of the backend: a function, or a class, of what `Opened` takes. What it
imports is all that running such an artifact needs."""


def opened(folder: Path, manifest: Manifest, threads: int) -> Opened:
    """The artifact, open. Raises ArtifactError where no installed package has a runtime for its backend, and what that
    runtime does for one that does not open."""
    if manifest.backend == "c":
        from opweld.runtime.native import Native

        return Native(folder, manifest, threads)
    found = extensions.find(GROUP, manifest.backend)
    if found is None:
        raise ArtifactError(
            f"{folder} was compiled by the backend {manifest.backend!r}, and no installed package has an entry point "
            f"{manifest.backend!r} of {GROUP}: install the package of that backend, or compile the model for another "
            "target"
        )
    if not callable(found):
        raise ArtifactError(f"{folder}: the entry point {manifest.backend!r} of {GROUP} is no function that opens it")
    made: object = found(folder, manifest, threads)
    if not isinstance(made, Opened):
        raise ArtifactError(f"{folder}: the entry point {manifest.backend!r} of {GROUP} gives {made!r}, no Opened")
    return made

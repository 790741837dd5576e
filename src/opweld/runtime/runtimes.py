"""Opens an artifact by the runtime of the backend that compiled it, which is imported on demand."""

from __future__ import annotations

from pathlib import Path

from opweld import extensions
from opweld.build.artifact import Manifest
from opweld.errors import ArtifactError
from opweld.runtime.opened import Opened


def opened(folder: Path, manifest: Manifest, threads: int) -> Opened:
    """The open artifact. Raises ArtifactError if no installed package has a runtime for its backend, and the errors of
    that runtime."""
    if manifest.backend == "c":
        from opweld.runtime.native import Native

        return Native(folder, manifest, threads)
    if manifest.backend == "cuda":
        from opweld.runtime.cuda.opened import Cuda

        return Cuda(folder, manifest, threads)
    title = f"entry point {manifest.backend!r} of {extensions.RUNTIMES}"
    found = extensions.find(extensions.RUNTIMES, manifest.backend)
    if found is None:
        raise ArtifactError(
            f"{folder} was compiled by the backend {manifest.backend!r}, and no installed package has an {title}: "
            "install the package of that backend, or compile the model for another target"
        )
    if not callable(found):
        raise ArtifactError(f"{folder}: the {title} is not a function that opens it")
    made: object = found(folder, manifest, threads)
    if not isinstance(made, Opened):
        raise ArtifactError(f"{folder}: the {title} returns {made!r}, not an Opened")
    return made

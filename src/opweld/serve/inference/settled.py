"""An artifact that nobody changes while it is served.

Weights and code are mapped: where a file is truncated or written to under them, the process that reads them next is
killed by the system (SIGBUS), or computes something else. What an artifact's folder holds is its owner's to replace, so
a server maps a copy in the user's cache, which is only ever written whole and where names go away, never bytes. The
copy is compared with the artifact's digests. It is found again by them, so that it is made once, and all processes of a
machine map the same one."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Final

from opweld.build import artifact
from opweld.build.cache import Cache
from opweld.build.stored import NAME, stored

KIND: Final = "served"
"""The kind of the cache's entries."""


def settled(folder: Path) -> Path:
    """The copy of an artifact, made now if it is not there; the artifact itself where it lies in the cache.

    Raises ArtifactError where it is missing or damaged, ShortageError where there is no room for the copy."""
    cache = Cache.open()
    if folder.resolve().is_relative_to(cache.root.resolve()):
        return folder
    key = hashlib.sha256(artifact.read(folder, verify=True).to_json().encode()).hexdigest()

    def fill(entry: Path) -> None:
        shutil.copytree(folder, entry / NAME, copy_function=shutil.copyfile)

    return stored(cache, KIND, key, fill)

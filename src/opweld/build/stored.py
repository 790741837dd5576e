"""An artifact in an entry of the cache: found whole, or written now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from opweld.build import artifact
from opweld.build.cache import Cache
from opweld.errors import ArtifactError
from opweld.shortage import shortages

NAME: Final = "model.opweld"
"""Of the artifact's folder in its entry."""


def stored(cache: Cache, kind: str, key: str, fill: Callable[[Path], None]) -> Path:
    """The artifact of an entry. Where there is none, or a damaged one, `fill` writes the entry, an empty folder, while
    other processes that ask for it wait.

    Raises what `fill` raises, ArtifactError where it writes no sound artifact, ShortageError where there is no room."""
    with cache.turn(key, lambda _: None), shortages():
        if (found := cache.find_folder(kind, key)) is not None:
            if _is_sound(found / NAME):
                return found / NAME
            cache.discard(kind, key)

        def checked(entry: Path) -> None:
            fill(entry)
            artifact.read(entry / NAME, verify=True)

        folder = cache.publish_folder(kind, key, checked) / NAME
    artifact.remember(folder, cache)
    return folder


def _is_sound(folder: Path) -> bool:
    try:
        artifact.read(folder, verify=True)
    except ArtifactError:
        return False
    return True

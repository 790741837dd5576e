"""An artifact in an entry of the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from opweld.build.cache import Cache
from opweld.build.stored import NAME, stored
from opweld.errors import ArtifactError

KEY = "ab" * 32


def test_what_is_no_artifact_is_not_stored(tmp_path: Path) -> None:
    cache = Cache.open(tmp_path)
    with pytest.raises(ArtifactError):
        stored(cache, "models", KEY, lambda entry: (entry / NAME).mkdir())
    assert cache.find_folder("models", KEY) is None and cache.entries() == []

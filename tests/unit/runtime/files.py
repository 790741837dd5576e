"""What the C backend writes of an artifact, put together by hand."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from opweld.build.artifact import HEADERS, MODULE, RUNTIME, SOURCES


def files_in(
    folder: Path,
    module_so: Path,
    runtime_so: Path,
    sources: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Path:
    """A new folder below `folder` with copies of these, for `artifact.write` to take."""
    number = sum(1 for _ in folder.glob(".files-*"))
    files = folder / f".files-{number}"
    for name, texts in ((SOURCES, sources), (HEADERS, headers)):
        (files / name).mkdir(parents=True)
        for file, text in (texts or {}).items():
            (files / name / file).write_text(text)
    shutil.copyfile(module_so, files / MODULE)
    shutil.copyfile(runtime_so, files / RUNTIME)
    return files

"""What the C backend writes of an artifact, put together by hand, and what a session has open of one."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opweld.build.artifact import HEADERS, MODULE, RUNTIME, SOURCES
from opweld.runtime.bind import Plan
from opweld.runtime.native import Native
from opweld.runtime.session import Session


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


def native(session: Session) -> Native:
    """What a session of the C runtime has open."""
    assert isinstance(session._opened, Native)
    return session._opened


def plan_of(session: Session, feeds: Mapping[str, Any]) -> Plan:
    """The plan that a run takes, remembered or made."""
    return native(session)._plan(session._feed(feeds)[0])

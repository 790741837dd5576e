"""Layout of pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rapid_layout import RapidLayout

from benchmarks.programs import material


def prepare(folder: Path) -> Callable[[], Any]:
    engine = RapidLayout()
    pictures = [material.page(), material.signs()]

    def call() -> Any:
        results = [engine(picture) for picture in pictures]
        return [{"boxes": r.boxes, "classes": r.class_names, "scores": r.scores} for r in results]

    return call

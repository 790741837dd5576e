"""Text in pictures: detection, direction, recognition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rapidocr import RapidOCR

from benchmarks.programs import material


def prepare(folder: Path) -> Callable[[], Any]:
    engine = RapidOCR()
    pictures = [material.signs(), material.page(), material.line("OPWELD 2026", 320)]

    def call() -> Any:
        results = [engine(picture) for picture in pictures]
        return [{"boxes": r.boxes, "texts": r.txts, "scores": r.scores} for r in results]

    return call

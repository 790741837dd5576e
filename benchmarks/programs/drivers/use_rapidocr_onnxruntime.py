"""Text in pictures: detection, direction, recognition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rapidocr_onnxruntime import RapidOCR

from benchmarks.programs import material


def prepare(folder: Path) -> Callable[[], Any]:
    engine = RapidOCR()
    pictures = [material.signs(), material.page(), material.line("OPWELD 2026", 320)]

    def call() -> Any:
        return [engine(picture)[0] for picture in pictures]

    return call

"""Captchas: text, objects, slides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ddddocr

from benchmarks.programs import material


def prepare(folder: Path) -> Callable[[], Any]:
    text = ddddocr.DdddOcr(beta=True, show_ad=False)
    objects = ddddocr.DdddOcr(det=True, ocr=False, show_ad=False)
    slide = ddddocr.DdddOcr(det=False, ocr=False, show_ad=False)
    lines = [material.png(material.line(word, width)) for word, width in (("X7Kq", 160), ("opweld 42", 220))]
    photograph = material.photograph(240, 320)
    ground = photograph.copy()
    ground[60:120, 200:260] = 128
    piece, whole = material.png(photograph[60:120, 200:260]), material.png(photograph)

    def call() -> Any:
        return {
            "text": [text.classification(line) for line in lines],
            "probabilities": text.classification(lines[0], probability=True),
            "objects": [objects.detection(material.png(picture)) for picture in (material.signs(), photograph)],
            "slide": slide.slide_match(piece, whole, simple_target=True),
            "gap": slide.slide_comparison(material.png(ground), whole),
        }

    return call

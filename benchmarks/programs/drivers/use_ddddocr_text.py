"""Captchas: text, with the model that ddddocr takes where nobody asks for another; its LSTM is quantised."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ddddocr

from benchmarks.programs import material


def prepare(folder: Path) -> Callable[[], Any]:
    engines = [ddddocr.DdddOcr(show_ad=False, **mode) for mode in ({}, {"old": True})]
    lines = [material.png(material.line(word, width)) for word, width in (("X7Kq", 160), ("opweld 42", 220))]

    def call() -> Any:
        return [engine.classification(line) for engine in engines for line in lines]

    return call

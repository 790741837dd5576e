"""Pitch of sound."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from swift_f0 import SwiftF0

from benchmarks.programs import material


def prepare(folder: Path) -> Callable[[], Any]:
    detector = SwiftF0()
    sounds = [material.speech(seconds) for seconds in (1, 4)]

    def call() -> Any:
        results = [detector.detect(sound, material.RATE) for sound in sounds]
        return [{"pitch": r.pitch_hz, "confidence": r.confidence, "times": r.timestamps} for r in results]

    return call

"""Speech in sound: the filter in front of faster-whisper's own engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from faster_whisper.vad import get_speech_timestamps, get_vad_model

from benchmarks.programs import material


def prepare(folder: Path) -> Callable[[], Any]:
    model = get_vad_model()
    sounds = [material.speech(seconds) for seconds in (2, 4)]

    def call() -> Any:
        return {
            "speech": [get_speech_timestamps(sound) for sound in sounds],
            "scores": [model(sound[: len(sound) // 512 * 512]) for sound in sounds],
        }

    return call

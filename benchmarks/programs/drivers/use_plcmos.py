"""Quality of speech after packet loss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from speechmos import plcmos

from benchmarks.programs import material


def prepare(folder: Path) -> Callable[[], Any]:
    sounds = [material.speech(seconds) for seconds in (3, 10)]
    return lambda: [plcmos.run(sound, sr=16000) for sound in sounds]

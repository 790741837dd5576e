"""Quality of speech after packet loss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from speechmos import plcmos

from benchmarks.programs import material


def prepare(folder: Path) -> Callable[[], Any]:
    sounds = [material.speech(seconds) for seconds in (3, 10)]

    def call() -> Any:
        np.random.seed(0)
        return [plcmos.run(sound, sr=16000) for sound in sounds]

    return call

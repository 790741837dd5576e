"""Quality of speech: two of its models, in their variants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from speechmos import aecmos, dnsmos

from benchmarks.programs import material


def prepare(folder: Path) -> Callable[[], Any]:
    sound = material.speech(10)
    wide = material.speech(4, 48000)
    echo = {"lpb": sound[::-1].copy(), "mic": sound, "enh": 0.5 * sound}
    wide_echo = {"lpb": wide[::-1].copy(), "mic": wide, "enh": 0.5 * wide}

    def call() -> Any:
        return {
            "dnsmos": dnsmos.run(sound, sr=16000),
            "personalised": dnsmos.run(sound, sr=16000, model_type="dnsmos_personalized"),
            "aecmos": aecmos.run(echo, sr=16000),
            "aecmos, doubletalk": aecmos.run(echo, sr=16000, talk_type="dt"),
            "aecmos, 48 kHz": aecmos.run(wide_echo, sr=48000, talk_type="dt"),
        }

    return call

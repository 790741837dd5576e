"""Features of speech as recognisers want them, computed by Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.programs.drivers import use_onnx_asr

NAMES = ("gigaam_v2", "gigaam_v3", "kaldi", "nemo80", "nemo128", "whisper80", "whisper128", "wespeaker")


def prepare(folder: Path) -> Callable[[], Any]:
    return use_onnx_asr.features(NAMES)

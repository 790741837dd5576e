"""Features of speech as recognisers want them, computed by convolutions; and resampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx_asr.preprocessors.preprocessor import OnnxPreprocessor
from onnx_asr.preprocessors.resampler import Resampler

from benchmarks.programs import material

NAMES = ("gigaam_v2_conv", "gigaam_v3_conv", "nemo80_conv", "nemo128_conv", "whisper80_conv", "whisper128_conv")


def sounds() -> tuple[Any, Any]:
    """Two sounds [2, samples], and how much of each counts."""
    made = np.stack([material.speech(2), material.speech(2)[::-1]])
    return made, np.array([made.shape[1], made.shape[1] * 3 // 4], np.int64)


def features(names: Sequence[str]) -> Callable[[], dict[str, Any]]:
    """Computes the features of these models."""
    preprocessors = {name: OnnxPreprocessor(name, {}) for name in names}
    waves, lengths = sounds()
    return lambda: {name: made(waves, lengths) for name, made in preprocessors.items()}


def prepare(folder: Path) -> Callable[[], Any]:
    extract = features(NAMES)
    resamplers = {rate: Resampler(rate, {}) for rate in (8000, 16000)}
    waves, lengths = sounds()

    def call() -> Any:
        answers = extract()
        for target, resampler in resamplers.items():
            for rate in (8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000):
                if rate != target:
                    answers[f"{rate} to {target}"] = resampler(waves, lengths, rate)
        return answers

    return call

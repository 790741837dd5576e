"""Speech in sound: windows in turn, with state, and all windows at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from silero_vad import get_speech_timestamps, load_silero_vad

from benchmarks.programs import material


def prepare(folder: Path) -> Callable[[], Any]:
    models = [load_silero_vad(onnx=True, opset_version=opset) for opset in (15, 16)]
    sound = torch.from_numpy(material.speech())
    slow = torch.from_numpy(material.speech(rate=8000))

    def call() -> Any:
        found = [get_speech_timestamps(sound, model) for model in models]
        for model in models:
            model.reset_states()
        scores = [float(models[1](sound[i : i + 512], 16000)) for i in range(0, 512 * 20, 512)]
        return {
            "speech": found,
            "scores": scores,
            "8 kHz": get_speech_timestamps(slow, models[1], sampling_rate=8000),
            "file": models[1].audio_forward(sound, 16000).numpy(),
        }

    return call

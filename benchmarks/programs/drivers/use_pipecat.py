"""Has the speaker finished? A quantised Whisper encoder; and the detector of speech before it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pipecat.audio.turn.smart_turn.local_smart_turn_v3 import LocalSmartTurnAnalyzerV3
from pipecat.audio.vad.silero import SileroVADAnalyzer

from benchmarks.programs import material


def prepare(folder: Path) -> Callable[[], Any]:
    turn = LocalSmartTurnAnalyzerV3(sample_rate=material.RATE)
    voice = SileroVADAnalyzer(sample_rate=material.RATE)
    voice.set_sample_rate(material.RATE)
    sound = material.speech(6)
    windows = (sound * 32767).astype(np.int16)

    def call() -> Any:
        voice._model.reset_states()
        answer = turn._predict_endpoint(sound)
        heard = [voice.voice_confidence(windows[i : i + 512].tobytes()) for i in range(0, 512 * 10, 512)]
        return {
            "complete": answer["prediction"],
            "chances": [answer["probability"], 1 - answer["probability"]],
            "voice": np.asarray(heard),
        }

    return call

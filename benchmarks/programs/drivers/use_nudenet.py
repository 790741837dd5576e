"""A detector, YOLO: what the model itself answers too, as the pictures hold nothing to detect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from nudenet import NudeDetector
from nudenet.nudenet import _read_image

from benchmarks.programs import material


def prepare(folder: Path) -> Callable[[], Any]:
    detector = NudeDetector()
    pictures = [material.photograph(), material.signs()]

    def call() -> Any:
        image = _read_image(pictures[0], detector.input_width)[0]
        return {
            "found": [detector.detect(picture) for picture in pictures],
            "together": detector.detect_batch([material.signs(), material.photograph()]),
            "raw": np.asarray(detector.onnx_session.run(None, {detector.input_name: image})[0]),
        }

    return call

"""What a line of text says: its picture for the recogniser, and the letters of what that gives.

The recogniser gives, for each step along the line, the probability of each letter, and of none: connectionist temporal
classification (Graves et al., 2006), of which the most likely letter of each step is taken.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .picture import normalised, resized

Floats = NDArray[np.float32]

HEIGHT: Final = 48
NARROWEST: Final = 320
STEP: Final = 160
"""Widths are steps apart, so that lines of nearly the same length share a run."""
WIDEST: Final = 3200
UPRIGHT: Final = 1.5
"""Height over width of a box above which its text runs downwards."""


def cut_out(picture: NDArray[np.uint8], box: Floats) -> Floats:
    """A line as the recogniser takes it: float32 (1, 3, HEIGHT, width), zeros behind its end.

    `box`: its corners, clockwise from the upper left one."""
    line = straightened(picture, box)
    if line.shape[0] > UPRIGHT * line.shape[1]:
        line = np.rot90(line)
    wide = min(WIDEST, max(1, round(line.shape[1] * HEIGHT / line.shape[0])))
    room = max(NARROWEST, -(-wide // STEP) * STEP)
    x = np.zeros((1, 3, HEIGHT, room), np.float32)
    x[0, :, :, :wide] = normalised(resized(np.ascontiguousarray(line), HEIGHT, wide))
    return x


def straightened(picture: NDArray[np.uint8], box: Floats) -> NDArray[np.uint8]:
    """The pixels within a rectangle that may lie askew: (height, width, 3)."""
    first, across, down = box[0], box[1] - box[0], box[3] - box[0]
    width, height = (max(1, round(float(np.hypot(*side)))) for side in (across, down))
    (ax, ay), (bx, by) = across / width, down / height
    transform = (float(ax), float(bx), float(first[0]), float(ay), float(by), float(first[1]))
    image = Image.fromarray(picture).transform(
        (width, height), Image.Transform.AFFINE, transform, Image.Resampling.BILINEAR
    )
    return np.asarray(image)


def text_of(letters: Floats) -> tuple[str, float]:
    """The text, and the mean probability of its letters; `letters`: probabilities, (steps, letters), the first that of
    none. A letter that follows itself is one, unless there is none between."""
    best = letters.argmax(axis=1)
    taken = (best != np.concatenate([[0], best[:-1]])) & (best != 0)
    text = "".join(characters()[letter - 1] for letter in cast("list[int]", best[taken].tolist()))
    return text, float(letters.max(axis=1)[taken].mean()) if text else 0.0


@cache
def characters() -> list[str]:
    """The letters of the recogniser, in its order."""
    return (Path(__file__).parent / "characters.txt").read_text(encoding="utf-8").split("\n")

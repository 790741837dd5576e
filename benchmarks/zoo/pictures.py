"""Pictures with the statistics of photographs: smooth light, texture, edges, and legible text where a model reads it.

Noise alone is a poor input for a detector whose output is a threshold: everything stays below it. All pictures are
float32 RGB in 0..1, height x width x 3, and depend only on the generator they are given.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.zoo.font import GLYPH_HEIGHT, GLYPH_WIDTH, text_mask

Picture = NDArray[np.float32]

_WORDS = ("OPEN", "HOTEL", "STATION", "CAFE 24", "EXIT", "TOTAL 128", "BOOKS", "INVOICE", "NORTH", "MARKET", "2026")


def photograph(height: int, width: int, random: np.random.Generator) -> Picture:
    """A scene: light that falls off smoothly, soft shapes, sharp-edged blocks, and fine grain."""
    rows = np.linspace(0.0, 1.0, height, dtype=np.float32)[:, None]
    columns = np.linspace(0.0, 1.0, width, dtype=np.float32)[None, :]
    slopes = random.uniform(-0.3, 0.3, (2, 3)).astype(np.float32)
    picture = 0.5 + slopes[0] * (rows - 0.5)[..., None] + slopes[1] * (columns - 0.5)[..., None]
    for _ in range(6):
        centre_row, centre_column = random.uniform(0.0, 1.0, 2)
        radius = random.uniform(0.08, 0.35)
        distance = ((rows - centre_row) ** 2 + (columns - centre_column) ** 2) / radius**2
        picture += np.exp(-distance)[..., None] * random.uniform(-0.35, 0.35, 3)
    for _ in range(5):
        top, left = int(random.integers(0, height)), int(random.integers(0, width))
        bottom = top + 1 + int(random.integers(0, max(1, height // 4)))
        right = left + 1 + int(random.integers(0, max(1, width // 4)))
        picture[top:bottom, left:right] = random.uniform(0.1, 0.9, 3)
    picture += random.normal(0.0, 0.01, picture.shape)
    return np.clip(picture, 0.0, 1.0).astype(np.float32)


def street_signs(height: int, width: int, random: np.random.Generator) -> Picture:
    """A photograph with plates of dark text on light ground, as text detectors see."""
    picture = photograph(height, width, random)
    scale = max(1, min(height, width) // 120)
    line = (GLYPH_HEIGHT + 6) * scale
    for top in range(line // 2, height - line, 2 * line):
        word = _WORDS[int(random.integers(len(_WORDS)))]
        plate_width = ((GLYPH_WIDTH + 1) * len(word) + 5) * scale
        if plate_width >= width:
            continue
        left = int(random.integers(0, width - plate_width))
        picture[top : top + line, left : left + plate_width] = random.uniform(0.85, 1.0, 3)
        _ink(picture, word, scale, top + 3 * scale, left + 3 * scale, random.uniform(0.0, 0.2, 3))
    return picture


def text_line(height: int, width: int, text: str, random: np.random.Generator) -> Picture:
    """One line of dark text on a light, slightly uneven ground, filling the height: what a recogniser is given."""
    ground = random.uniform(0.85, 0.95) + random.normal(0.0, 0.01, (height, width, 3))
    picture = ground.astype(np.float32)
    scale = max(1, int(height * 0.7) // GLYPH_HEIGHT)
    top = (height - GLYPH_HEIGHT * scale) // 2
    _ink(picture, text, scale, top, 2 * scale, random.uniform(0.0, 0.2, 3))
    return np.clip(picture, 0.0, 1.0)


def document(height: int, width: int, random: np.random.Generator) -> Picture:
    """A page: a title, two columns of text, a table of ruled cells and a figure."""
    picture = np.full((height, width, 3), 0.97, dtype=np.float32)
    margin = width // 12
    column = (width - 3 * margin) // 2
    _paragraph(picture, margin // 2, margin, width - 2 * margin, 1, 4, random)
    for left in (margin, 2 * margin + column):
        _paragraph(picture, height // 8, left, column, 12, 1, random)
    figure_top, figure_height = height // 2, height // 4
    figure = photograph(figure_height, column, random)
    picture[figure_top : figure_top + figure_height, margin : margin + column] = figure
    table_left = 2 * margin + column
    for row in range(6):
        top = figure_top + row * (figure_height // 5)
        picture[top : top + 2, table_left : table_left + column] = 0.1
        if row < 5:
            _paragraph(picture, top + 6, table_left + 6, column - 12, 1, 1, random)
    _paragraph(picture, figure_top + figure_height + 24, margin, width - 2 * margin, 8, 1, random)
    return picture


def normalised(picture: Picture, mean: tuple[float, ...], deviation: tuple[float, ...]) -> NDArray[np.float32]:
    """(picture - mean) / deviation, channels first with a batch of one: float32 (1, channels, height, width)."""
    scaled = (picture - np.array(mean, dtype=np.float32)) / np.array(deviation, dtype=np.float32)
    return np.ascontiguousarray(scaled.transpose(2, 0, 1)[None], dtype=np.float32)


def _paragraph(
    picture: Picture, top: int, left: int, width: int, lines: int, scale: int, random: np.random.Generator
) -> None:
    step = (GLYPH_HEIGHT + 5) * scale
    for line in range(lines):
        letters = width // ((GLYPH_WIDTH + 1) * scale)
        words = " ".join(_WORDS[int(index)] for index in random.integers(0, len(_WORDS), letters))
        _ink(picture, words[:letters], scale, top + line * step, left, np.full(3, 0.08))


def _ink(picture: Picture, text: str, scale: int, top: int, left: int, colour: NDArray[np.float64]) -> None:
    """Draws into the picture, clipped at its borders, with edges softened as a lens would."""
    mask = np.pad(text_mask(text, scale), 1)
    mask = (2 * mask + np.roll(mask, 1, 1) + np.roll(mask, 1, 0)) / 4
    room = picture[max(top, 0) :, max(left, 0) :][: mask.shape[0], : mask.shape[1]]
    cover = mask[: room.shape[0], : room.shape[1], None]
    room[...] = room * (1 - cover) + colour.astype(np.float32) * cover

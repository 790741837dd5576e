"""What programs are given: pictures and sounds, the same every time. Needs NumPy alone."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from benchmarks.zoo import pictures, signals

Bytes = NDArray[np.uint8]

RATE = 16000
"""Samples a second of sounds."""


def signs(height: int = 480, width: int = 640) -> Bytes:
    """A photograph with plates of text, [height, width, 3]."""
    return _bytes(pictures.street_signs(height, width, np.random.default_rng(1)))


def page() -> Bytes:
    """A page of two columns with a table and a figure, [800, 608, 3]."""
    return _bytes(pictures.document(800, 608, np.random.default_rng(2)))


def photograph(height: int = 480, width: int = 640) -> Bytes:
    """A photograph of nothing in particular, [height, width, 3]."""
    return _bytes(pictures.photograph(height, width, np.random.default_rng(3)))


def line(text: str, width: int = 160) -> Bytes:
    """A line of text, [64, width, 3]."""
    return _bytes(pictures.text_line(64, width, text, np.random.default_rng(4)))


def speech(seconds: float = 4.0, rate: int = RATE) -> NDArray[np.float32]:
    """Vowels with pauses between them, [samples], from -1 to 1."""
    random = np.random.default_rng(5)
    part = rate // 2
    parts = [
        signals.voiced_sound(part, rate, random)[0] if i % 3 else random.normal(0, 1e-3, part)
        for i in range(int(2 * seconds))
    ]
    sound = np.concatenate(parts)
    return (0.5 * sound / np.abs(sound).max()).astype(np.float32)


def png(picture: Bytes) -> bytes:
    """The picture, [height, width, 3], as a PNG file."""
    height, width, _ = picture.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), picture.reshape(height, -1)], axis=1)
    out = io.BytesIO(b"\x89PNG\r\n\x1a\n")
    out.seek(0, io.SEEK_END)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")):
        out.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))
    return out.getvalue()


def _bytes(picture: NDArray[np.float32]) -> Bytes:
    return (picture.clip(0, 1) * 255).round().astype(np.uint8)

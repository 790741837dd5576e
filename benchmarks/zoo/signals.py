"""Inputs that are not pictures: speech-like sound, file contents and token ids. NumPy only."""

from __future__ import annotations

import io
import zipfile
import zlib

import numpy as np
from numpy.typing import NDArray

BLOCK = 4096
"""Bytes that magika reads at each end of a file before it strips whitespace."""

PADDING_TOKEN = 256
"""What magika's feature vector holds where the file has no byte."""

SOURCE_TEXT = (
    b"#!/usr/bin/env python3\n"
    b'"""Counts the words of the files given."""\n'
    b"import sys\nfrom collections import Counter\n\n\n"
    b"def words(path: str) -> Counter[str]:\n"
    b"    with open(path, encoding='utf-8') as lines:\n"
    b"        return Counter(word.lower() for line in lines for word in line.split())\n\n\n"
    b"if __name__ == '__main__':\n"
    b"    total: Counter[str] = Counter()\n"
    b"    for name in sys.argv[1:]:\n        total += words(name)\n"
    b"    for word, count in total.most_common(20):\n        print(f'{count:8} {word}')\n"
)

PAGE_TEXT = (
    b"<!DOCTYPE html>\n<html lang='en'>\n<head><title>Timetable</title></head>\n<body>\n<h1>Timetable</h1>\n<table>\n"
    + b"".join(
        b"<tr><td>%02d:%02d</td><td>Platform %d</td></tr>\n" % (h, m, p)
        for h in range(24)
        for m, p in ((5, 1), (35, 2))
    )
    + b"</table>\n</body>\n</html>\n"
)

# Ids in the uncased WordPiece vocabulary of BERT, which MiniLM shares.
_VOCABULARY: dict[str, int] = {
    "[PAD]": 0,
    "[CLS]": 101,
    "[SEP]": 102,
    ".": 1012,
    "a": 1037,
    "the": 1996,
    "of": 1997,
    "and": 1998,
    "in": 1999,
    "to": 2000,
    "was": 2001,
    "he": 2002,
    "is": 2003,
    "as": 2004,
    "for": 2005,
    "on": 2006,
    "with": 2007,
    "that": 2008,
    "it": 2009,
    "over": 2058,
    "brown": 2829,
    "dog": 3899,
    "quick": 4248,
    "fox": 4419,
    "cat": 4937,
    "jumps": 14523,
    "lazy": 13971,
    "world": 2088,
    "city": 2103,
    "music": 2189,
    "water": 2300,
    "house": 2160,
    "time": 2051,
    "new": 2047,
    "people": 2111,
    "first": 2034,
    "year": 2095,
    "school": 2082,
    "night": 2305,
    "river": 2314,
}


def voiced_sound(samples: int, rate: int, random: np.random.Generator, *, batch: int = 1) -> NDArray[np.float32]:
    """A vowel: harmonics of a gliding pitch under two formants, with breath noise; float32 (batch, samples)."""
    seconds = np.arange(samples, dtype=np.float64) / rate
    rows: list[NDArray[np.float64]] = []
    for _ in range(batch):
        pitch = random.uniform(90.0, 220.0)
        phase = 2 * np.pi * pitch * (seconds + 0.3 * seconds**2) + random.uniform(0, 2 * np.pi)
        formants = (random.uniform(300, 800), random.uniform(900, 2200))
        sound = np.zeros(samples)
        for harmonic in range(1, int(rate / 2 / pitch)):
            frequency = harmonic * pitch
            gain = sum(np.exp(-(((frequency - formant) / 150.0) ** 2)) for formant in formants) + 0.02
            sound += gain * np.sin(harmonic * phase)
        sound *= 0.3 / max(1e-9, float(np.abs(sound).max()))
        rows.append(sound + random.normal(0.0, 0.005, samples))
    return np.stack(rows).astype(np.float32)


def byte_features(content: bytes) -> NDArray[np.int32]:
    """Magika's features of a file: 1024 bytes from its stripped start, 1024 from its stripped end; int32 (2048,)."""
    start = content[:BLOCK].lstrip()[:1024]
    end = content[-BLOCK:].rstrip()[-1024:]
    features = np.full(2048, PADDING_TOKEN, dtype=np.int32)
    features[: len(start)] = np.frombuffer(start, dtype=np.uint8)
    features[2048 - len(end) :] = np.frombuffer(end, dtype=np.uint8)
    return features


def archive(random: np.random.Generator) -> bytes:
    """A small zip archive with one compressed and one stored member."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as members:
        for name, method in (("words.py", zipfile.ZIP_DEFLATED), ("noise.bin", zipfile.ZIP_STORED)):
            member = zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0))
            content = SOURCE_TEXT if method == zipfile.ZIP_DEFLATED else random.bytes(3000)
            members.writestr(member, content, compress_type=method)
    return memory.getvalue()


def portable_network_graphics(random: np.random.Generator) -> bytes:
    """A valid 48 x 48 greyscale PNG file."""
    rows = b"".join(b"\0" + random.bytes(48) for _ in range(48))
    header = (48).to_bytes(4, "big") * 2 + bytes((8, 0, 0, 0, 0))
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big") for kind, body in chunks
    )


def sentences(batch: int, length: int, random: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token ids and attention mask, int64 (batch, length): sentences of falling length, the rest is padding.

    The first row fills the length; every further one is shorter, as in a batch that was padded to its longest.
    """
    words = [number for word, number in _VOCABULARY.items() if not word.startswith("[")]
    ids = np.zeros((batch, length), dtype=np.int64)
    mask = np.zeros((batch, length), dtype=np.int64)
    for row in range(batch):
        used = max(min(length, 3), length - row * max(1, length // 4))
        ids[row, :used] = random.choice(words, used)
        ids[row, 0] = _VOCABULARY["[CLS]"]
        ids[row, used - 1] = _VOCABULARY["[SEP]"]
        mask[row, :used] = 1
    return ids, mask

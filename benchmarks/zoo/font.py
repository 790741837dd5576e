"""A 5x7 dot-matrix font: enough to draw text into test pictures without an imaging library."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GLYPH_HEIGHT = 7
GLYPH_WIDTH = 5

# Five column bytes a glyph, least significant bit on top.
_COLUMNS: dict[str, str] = {
    " ": "0000000000",
    "0": "3E5149453E",
    "1": "00427F4000",
    "2": "4261514946",
    "3": "2141454B31",
    "4": "1814127F10",
    "5": "2745454539",
    "6": "3C4A494930",
    "7": "0171090503",
    "8": "3649494936",
    "9": "064949291E",
    "A": "7E1111117E",
    "B": "7F49494936",
    "C": "3E41414122",
    "D": "7F4141221C",
    "E": "7F49494941",
    "F": "7F09090901",
    "G": "3E4149497A",
    "H": "7F0808087F",
    "I": "00417F4100",
    "J": "2040413F01",
    "K": "7F08142241",
    "L": "7F40404040",
    "M": "7F020C027F",
    "N": "7F0408107F",
    "O": "3E4141413E",
    "P": "7F09090906",
    "Q": "3E4151215E",
    "R": "7F09192946",
    "S": "4649494931",
    "T": "01017F0101",
    "U": "3F4040403F",
    "V": "1F2040201F",
    "W": "3F4038403F",
    "X": "6314081463",
    "Y": "0708700807",
    "Z": "6151494543",
}


def text_mask(text: str, scale: int) -> NDArray[np.float32]:
    """Ink coverage of one line of `text`, float32 (7 * scale, 6 * scale * len(text) - scale), 1 where there is ink.

    Letters are drawn in capitals; a character without a glyph raises KeyError.
    """
    columns: list[int] = []
    for character in text.upper():
        columns.extend(bytes.fromhex(_COLUMNS[character]))
        columns.append(0)
    bits = np.array(columns[:-1], dtype=np.uint8)
    dots = (bits[None, :] >> np.arange(GLYPH_HEIGHT, dtype=np.uint8)[:, None]) & 1
    return np.kron(dots.astype(np.float32), np.ones((scale, scale), dtype=np.float32))

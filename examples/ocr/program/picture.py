"""An image file as an array."""

from __future__ import annotations

import io
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from opweld.errors import InputError

FORMATS: Final = ("JPEG", "PNG", "WEBP")
MOST_PIXELS: Final = 40_000_000


def decoded(data: bytes | str) -> NDArray[np.uint8]:
    """The pixels of a JPEG, PNG or WebP: (height, width, 3), blue first, as the models were trained.

    Raises InputError for what is none, or has too many pixels: a small file may say that it is huge."""
    if isinstance(data, str):
        raise InputError("image holds text, expected the bytes of a JPEG, PNG or WebP")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise InputError(f"image has {image.width} x {image.height} pixels, more than {MOST_PIXELS:,}")
            return np.ascontiguousarray(np.asarray(image.convert("RGB"))[..., ::-1])
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        raise InputError(f"image is no sound {', '.join(FORMATS)}: {error}") from error


def resized(picture: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """A picture of another size."""
    return np.asarray(Image.fromarray(picture).resize((width, height), Image.Resampling.BILINEAR))


def normalised(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
    """0..255 as -1..1, channels first: (3, height, width)."""
    return np.ascontiguousarray((picture.astype(np.float32) / 127.5 - 1).transpose(2, 0, 1))

"""Reads the text of an image by two models: `detect` says where there is text, `recognise` says what each line is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.serve.inference.program import Models, program

from .detection import boxes_of, detector_input
from .picture import decoded
from .recognition import cut_out, text_of


@program(
    inputs={"image": (bytes, (1,))},
    outputs={"boxes": ("float32", ("count", 4, 2)), "texts": (str, ("count",)), "scores": ("float32", ("count",))},
    models=("detect", "recognise"),
)
async def read(models: Models, image: NDArray[Any]) -> Mapping[str, Any]:
    """JPEG, PNG or WebP to lines of text, from top to bottom: the corners of each in pixels, clockwise from its upper
    left one, its text, and the mean probability of its letters."""
    picture = await models.compute(decoded, image[0])
    (found,) = (await models["detect"](x=await models.compute(detector_input, picture))).values()
    boxes = await models.compute(boxes_of, found[0, 0], picture.shape[:2])

    async def line(box: NDArray[np.float32]) -> tuple[str, float]:
        x = await models.compute(cut_out, picture, box)
        (letters,) = (await models["recognise"](x=x)).values()
        return text_of(letters[0])

    lines = await asyncio.gather(*(line(box) for box in boxes))
    return {
        "boxes": boxes,
        "texts": [text for text, _ in lines],
        "scores": np.array([score for _, score in lines], np.float32),
    }

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opweld.errors import ModelError
from tests.unit.ops.one_node import check, make_model, normal, programs_of


def blocks(size: int, taps: int, stride: int, dilation: int, pads: int) -> int:
    return (size + pads - (taps - 1) * dilation - 1) // stride + 1


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 1, 2)])
def test_col2im(stride: int, dilation: int, pads: tuple[int, int, int, int]) -> None:
    image, block = (7, 6), (3, 2)
    count = np.prod(
        [blocks(image[a], block[a], stride, dilation, pads[a] + pads[2 + a]) for a in (0, 1)], dtype=np.int64
    )
    inputs = [normal(2, 3 * 6, int(count)), np.array(image, np.int64), np.array(block, np.int64)]
    options: dict[str, Any] = {"strides": [stride] * 2, "dilations": [dilation] * 2, "pads": pads}
    check("Col2Im", inputs, constant=(1, 2), **options)


def test_other_ranks() -> None:
    for image, block in (((6,), (2,)), ((4, 3, 5), (2, 1, 3))):
        count = int(np.prod([i - b + 1 for i, b in zip(image, block, strict=True)]))
        inputs = [normal(1, 2 * int(np.prod(block)), count), np.array(image, np.int64), np.array(block, np.int64)]
        check("Col2Im", inputs, constant=(1, 2))


def test_any_sizes() -> None:
    def arrays(batch: int, height: int, width: int) -> list[Any]:
        count = (height - 1) * (width - 1)
        return [normal(batch, 8, count), np.array([height, width], np.int64), np.array([2, 2], np.int64)]

    more = [arrays(1, 2, 2), arrays(3, 4, 7)]
    check("Col2Im", arrays(2, 5, 3), constant=(2,), dims={0: ("b", 8, "n")}, more=more)


def test_what_does_not_fit() -> None:
    inputs = [normal(1, 9, 5), np.array([4, 4], np.int64), np.array([2, 2], np.int64)]
    with pytest.raises(ModelError, match="all taps"):
        programs_of(make_model("Col2Im", inputs, constant=(1, 2)))

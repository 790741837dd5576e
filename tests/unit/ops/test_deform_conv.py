from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opweld.errors import ModelError
from tests.unit.ops.one_node import check, float64_of, make_model, normal, programs_of


def arrays(batch: int, height: int, width: int, groups: int, offset_groups: int) -> list[Any]:
    """3 x 2 taps over an image padded by one; offsets of a pixel or so."""
    out = (height, width + 1)
    return [
        normal(batch, 4, height, width),
        normal(6, 4 // groups, 3, 2, seed=1),
        normal(batch, offset_groups * 12, *out, seed=2),
        normal(6, seed=3),
        normal(batch, offset_groups * 6, *out, seed=4),
    ]


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("offset_groups", [1, 2])
@pytest.mark.parametrize("inputs", [3, 4, 5])
def test_deform_conv(groups: int, offset_groups: int, inputs: int) -> None:
    given = arrays(2, 5, 4, groups, offset_groups)[:inputs]
    options: dict[str, Any] = {"group": groups, "offset_group": offset_groups, "pads": [1, 1, 1, 1]}
    reference = float64_of("DeformConv", given, **options)
    check("DeformConv", given, reference=reference, tolerance=1e-5, **options)


def test_strides_and_dilations() -> None:
    given = [normal(1, 2, 9, 8), normal(3, 2, 2, 2, seed=1), normal(1, 8, 4, 4, seed=2)]
    options: dict[str, Any] = {"strides": [2, 2], "dilations": [2, 1]}
    check("DeformConv", given, reference=float64_of("DeformConv", given, **options), tolerance=1e-5, **options)


def test_any_sizes() -> None:
    options: dict[str, Any] = {"pads": [1, 1, 1, 1], "constant": (1, 3)}
    given, other = arrays(2, 5, 4, 1, 1), arrays(1, 3, 7, 1, 1)
    dims = {0: ("n", 4, "h", "w"), 2: ("n", 12, "a", "b"), 4: ("n", 6, "a", "b")}
    reference = float64_of("DeformConv", given, dims=dims, **options)
    check("DeformConv", given, dims=dims, more=[other], reference=reference, tolerance=1e-5, **options)


def test_offsets_that_do_not_fit() -> None:
    given = [normal(1, 2, 5, 5), normal(3, 2, 2, 2), normal(1, 6, 4, 4)]
    with pytest.raises(ModelError, match="offsets of each tap"):
        programs_of(make_model("DeformConv", given))
    with pytest.raises(ModelError, match="offset groups"):
        programs_of(make_model("DeformConv", given, offset_group=3))


def test_half_precision() -> None:
    given = [a.astype(np.float16) for a in arrays(1, 5, 4, 1, 1)]
    wide = [a.astype(np.float32) for a in given]
    options: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    reference = float64_of("DeformConv", wide, **options)
    check(
        "DeformConv",
        given,
        reference=lambda *a: reference(*(x.astype(np.float32) for x in a))[0].astype(np.float16),
        tolerance=4e-3,
        **options,
    )

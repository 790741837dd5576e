# pyright: basic, reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownVariableType=false
"""In which order programs take the tiles of a product."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def grouped(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Row and column of a tile: columns of GROUP tiles, so that programs that run together share operands in the L2."""
    first = tile // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    within = tile % (GROUP * tiles_n)
    return first + within % height, within // height

# pyright: basic, reportGeneralTypeIssues=false, reportAssignmentType=false, reportArgumentType=false
"""Tiles of attention's operands, [.., .., length, head size]: how they come from memory, and in which order programs
take them. Triton's language has no types that a checker knows."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def load_tile(
    source, batch, head, first, length, stride_row, stride_dim,
    ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, DESCRIPTOR: tl.constexpr, BOUNDED: tl.constexpr,
):  # fmt: skip
    """[ROWS, BLOCK_D]: rows from the first of one head; zeros beyond the length, if BOUNDED, and beyond HEAD_DIM.

    The source is a descriptor of the whole tensor, or a pointer to row 0 of the head. Offsets within a tile fit 32
    bits, those of a row do not."""
    if DESCRIPTOR:
        return source.load([batch, head, first, 0]).reshape([ROWS, BLOCK_D])
    else:
        base = source + tl.cast(first, tl.int64) * stride_row
        rows = tl.arange(0, ROWS)[:, None]
        dims = tl.arange(0, BLOCK_D)[None, :]
        pointers = base + rows * stride_row + dims * stride_dim
        if BOUNDED:
            inside = (rows < length - first) & (dims < HEAD_DIM)
            return tl.load(pointers, mask=inside, other=0.0)
        elif HEAD_DIM != BLOCK_D:
            return tl.load(pointers, mask=(rows >= 0) & (dims < HEAD_DIM), other=0.0)
        else:
            return tl.load(pointers)


@triton.jit
def store_tile(
    target, tile, first, length, stride_row,
    ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Stores the rows of [ROWS, BLOCK_D] that the length has; elements of a row lie side by side."""
    rows = tl.arange(0, ROWS)[:, None]
    dims = tl.arange(0, BLOCK_D)[None, :]
    pointers = target + tl.cast(first, tl.int64) * stride_row + rows * stride_row + dims
    inside = (rows < length - first) & (dims < HEAD_DIM)
    tl.store(pointers, tile.to(target.dtype.element_ty), mask=inside)


@triton.jit
def scheduled(program, tiles, heads, section, BACKWARDS: tl.constexpr):
    """Which tile of which head a program takes: heads by sections, whose operands the L2 cache holds; of a section
    first the first tile of all its heads, or, BACKWARDS, the last. So the longest, under a causal mask, come first."""
    begin = program // (tiles * section) * section
    rest = program - begin * tiles
    width = tl.minimum(section, heads - begin)
    tile = rest // width
    if BACKWARDS:
        tile = tiles - 1 - tile
    return tile, begin + rest % width


def section_of(heads: int, group: int, length: int, head_dim: int, element_size: int) -> int:
    """Heads whose keys and values the L2 cache of an A100 or H100 (40 and 50 MB) holds besides all else; a multiple of
    the group that shares them, where that is possible."""
    fitting = max(1, (24 << 20) // max(1, 2 * length * head_dim * element_size))
    return min(heads, fitting * group)


def describable(tensor: Tensor) -> bool:
    """A descriptor for the tensor memory accelerator can be made: addresses in multiples of 16 bytes, elements of a row
    side by side, nothing empty or broadcast."""
    step = 16 // tensor.element_size()
    outer = zip(tensor.shape[:-1], tensor.stride()[:-1], strict=True)
    return (
        tensor.stride(-1) == 1
        and tensor.data_ptr() % 16 == 0
        and all(size > 0 for size in tensor.shape)
        and all(size == 1 or (stride > 0 and stride % step == 0) for size, stride in outer)
    )


def descriptor(tensor: Tensor, rows: int, block_d: int) -> TensorDescriptor:
    """The descriptor of [.., .., length, head size] by tiles [rows, block_d] of one head."""
    step = 16 // tensor.element_size()
    strides = [
        stride if size > 1 else step for size, stride in zip(tensor.shape[:-1], tensor.stride()[:-1], strict=True)
    ]
    return TensorDescriptor(tensor, list(tensor.shape), [*strides, 1], [1, 1, rows, block_d])


def padded(head_dim: int) -> int:
    """The head size of tiles: the next power of two, at least 16, as products of tiles want it."""
    return max(16, power_of_two(head_dim))


def power_of_two(number: int) -> int:
    """The least that is not less."""
    return 1 << max(0, number - 1).bit_length()


def parts_of(length: int, size: int) -> int:
    """How many parts of a size a length has, the last one begun."""
    return -(-length // size)

# pyright: basic, reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownVariableType=false
"""Rotary position embedding of queries and keys, in one launch.

    y1 = x1 cos - x2 sin
    y2 = x2 cos + x1 sin

x1 and x2 are the first and the second half of a head, or, interleaved, its even and its odd elements; cos and sin are
those of the position. Backward is the rotation by the negative angle. A program rotates all heads of one position, so
that cos and sin are read once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from opweld.kernels.arguments import FLOATS, check_like, check_shape, check_tensor
from opweld.kernels.precision import wide
from opweld.kernels.registration import launch, operator
from opweld.kernels.sizes import power_of_2
from opweld.kernels.variant import Variant, variant

CANDIDATES = tuple({"heads": heads, "warps": warps} for heads in (8, 16, 32) for warps in (2, 4, 8))
"""Configurations that a benchmark may try in place of `configuration`'s."""


def configuration(heads: int, size: int) -> dict[str, int]:
    """Heads at a time, at most 4096 elements of them, and warps: 32 elements a thread."""
    block = max(1, min(power_of_2(max(1, heads)), 4096 // power_of_2(size)))
    return {"heads": block, "warps": max(1, min(4, block * power_of_2(size) // 1024))}


@triton.jit
def rotate_heads(
    x, y, c, s, heads, x_head, y_head, half, INTERLEAVED: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr
):  # fmt: skip
    """All heads of one position, HEADS at a time."""
    for first in range(0, heads, HEADS):
        head = first + tl.arange(0, HEADS)[:, None]
        if INTERLEAVED:
            # Pairs are read side by side and parted in registers.
            place = tl.arange(0, 2 * HALF)[None, :]
            inside = (head < heads) & (place < 2 * half)
            pairs = wide(tl.load(x + head.to(tl.int64) * x_head + place, mask=inside, other=0.0))
            a, b = tl.split(tl.reshape(pairs, (HEADS, HALF, 2)))
            turned = tl.reshape(tl.join(a * c - b * s, b * c + a * s), (HEADS, 2 * HALF))
            tl.store(y + head.to(tl.int64) * y_head + place, turned.to(y.dtype.element_ty), mask=inside)
        else:
            place = tl.arange(0, HALF)[None, :]
            inside = (head < heads) & (place < half)
            x_place, y_place = x + head.to(tl.int64) * x_head + place, y + head.to(tl.int64) * y_head + place
            a = wide(tl.load(x_place, mask=inside, other=0.0))
            b = wide(tl.load(x_place + half, mask=inside, other=0.0))
            tl.store(y_place, (a * c - b * s).to(y.dtype.element_ty), mask=inside)
            tl.store(y_place + half, (b * c + a * s).to(y.dtype.element_ty), mask=inside)


@triton.jit
def rotate(
    q, k, cos, sin, q_out, k_out, length, q_heads, k_heads, half,
    q_batch, q_position, q_head, k_batch, k_position, k_head,
    qo_batch, qo_position, qo_head, ko_batch, ko_position, ko_head,
    table_batch, table_position,
    INTERLEAVED: tl.constexpr, INVERSE: tl.constexpr,
    Q_HEADS: tl.constexpr, K_HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """All heads of q and of k at one position of one sequence."""
    batch = (tl.program_id(0) // length).to(tl.int64)
    position = (tl.program_id(0) % length).to(tl.int64)
    place = tl.arange(0, HALF)
    table = batch * table_batch + position * table_position + place
    c = wide(tl.load(cos + table, mask=place < half, other=0.0))[None, :]
    s = wide(tl.load(sin + table, mask=place < half, other=0.0))[None, :]
    if INVERSE:
        s = -s
    rotate_heads(
        q + batch * q_batch + position * q_position, q_out + batch * qo_batch + position * qo_position, c, s, q_heads,
        q_head, qo_head, half, INTERLEAVED, Q_HEADS, HALF,
    )  # fmt: skip
    rotate_heads(
        k + batch * k_batch + position * k_position, k_out + batch * ko_batch + position * ko_position, c, s, k_heads,
        k_head, ko_head, half, INTERLEAVED, K_HEADS, HALF,
    )  # fmt: skip


@operator("rope")
def _rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, inverse: bool) -> tuple[Tensor, Tensor]:
    """q [B, S, H, D] and k [B, S, G, D], rotated in the layouts that they have."""
    q, k = (one if one.stride(-1) == 1 else one.contiguous() for one in (q, k))
    batch, length, q_heads, size = q.shape
    q_out, k_out = torch.empty_like(q), torch.empty_like(k)
    if size == 0:
        return q_out, k_out
    queries, keys = configuration(q_heads, size), configuration(k.shape[2], size)
    cos, sin = cos.contiguous(), sin.contiguous()
    launch(
        rotate, (batch * length,), q, k, cos, sin, q_out, k_out, length, q_heads, k.shape[2], size // 2,
        *q.stride()[:3], *k.stride()[:3], *q_out.stride()[:3], *k_out.stride()[:3],
        cos.stride(0) if cos.ndim == 3 else 0, size // 2, INTERLEAVED=interleaved, INVERSE=inverse,
        Q_HEADS=queries["heads"], K_HEADS=keys["heads"], HALF=power_of_2(size // 2), num_warps=queries["warps"],
    )  # fmt: skip
    return q_out, k_out


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, _, cos, sin, ctx.interleaved, ctx.inverse = inputs
    ctx.save_for_backward(cos, sin)


def _differentiate(ctx: Any, dq: Tensor, dk: Tensor) -> tuple[Tensor | None, ...]:
    return *_rotate(dq, dk, *ctx.saved_tensors, ctx.interleaved, not ctx.inverse), *[None] * 4


_rotate.register_autograd(_differentiate, setup_context=_save)


def rope(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False, heads_first: bool = False
) -> tuple[Tensor, Tensor]:
    """q and k rotated by the angles of their positions; differentiable in q and k.

    Args:
        q: [B, S, H, D], float16, bfloat16, float32 or float64, D even; any strides.
        k: [B, S, G, D], as q; G may be less than H.
        cos: [S, D / 2], or [B, S, D / 2] where sequences have positions of their own, of any of these types.
        sin: as cos.
        interleaved: pairs are elements 2 i and 2 i + 1, as in GPT-J; not i and i + D / 2, as in Llama.
        heads_first: q is [B, H, S, D], k [B, G, S, D].

    Returns:
        Both as they came.

    Raises:
        InputError: dtypes, shapes or devices do not fit.
    """
    check_tensor("q", q, FLOATS, range(4, 5))
    check_like("k", k, "q", q)
    check_tensor("k", k, FLOATS, range(4, 5))
    if heads_first:
        q, k = q.transpose(1, 2), k.transpose(1, 2)
    batch, length, _, size = q.shape
    check_shape("k", k, (batch, length, k.shape[2], size), "sequences, positions and head size as those of q")
    if size % 2:
        check_shape("q", q, (*q.shape[:3], size - 1), "the head size is even; pad it, or rotate a part of it")
    check_tensor("cos", cos, FLOATS, range(2, 4))
    table = (length, size // 2) if cos.ndim == 2 else (batch, length, size // 2)
    check_shape("cos", cos, table, "one angle for each pair of a head, of each position")
    check_like("sin", sin, "cos", cos)
    check_shape("sin", sin, table, "as cos")
    q, k = _rotate(q, k, cos, sin, interleaved, False)
    return (q.transpose(1, 2), k.transpose(1, 2)) if heads_first else (q, k)


def variants(arch: int) -> Iterator[Variant]:
    """What is compiled ahead of time for an architecture, as 90 for sm_90: bfloat16, tables in float32."""
    types = dict.fromkeys(("q", "k", "q_out", "k_out"), "*bf16:16") | dict.fromkeys(("cos", "sin"), "*fp32:16")
    types |= dict.fromkeys(("length", "q_heads", "k_heads"), "i32") | {"half": "i32:16"}
    sides = [f"{tensor}_{axis}" for tensor in ("q", "k", "qo", "ko") for axis in ("batch", "position", "head")]
    types |= dict.fromkeys((*sides, "table_batch", "table_position"), "i32:16")
    for size in (64, 128, 256):
        for interleaved in (False, True):
            chosen = configuration(32, size)
            constants = {"INTERLEAVED": interleaved, "INVERSE": False, "HALF": size // 2}
            constants |= {"Q_HEADS": chosen["heads"], "K_HEADS": configuration(8, size)["heads"]}
            name = f"rope{' interleaved' if interleaved else ''} bf16 {size}"
            yield variant(name, rotate, types, constants, chosen["warps"])

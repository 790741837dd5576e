"""Rotary position embedding against float64, forward and backward, in Triton's interpreter."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels import rope
from tests.kernels.compared import compare, random


def table(*shape: int) -> tuple[Tensor, Tensor]:
    angles = random(*shape, dtype=torch.float64)
    return angles.cos().float(), angles.sin().float()


def rotated(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    c, s = cos.double().unsqueeze(-2), sin.double().unsqueeze(-2)
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    first, second = a * c - b * s, b * c + a * s
    return torch.stack((first, second), -1).flatten(-2) if interleaved else torch.cat((first, second), -1)


def reference(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False, heads_first: bool = False
) -> tuple[Tensor, Tensor]:
    if heads_first:
        q, k = q.transpose(1, 2), k.transpose(1, 2)
    q, k = rotated(q, cos, sin, interleaved), rotated(k, cos, sin, interleaved)
    return (q.transpose(1, 2), k.transpose(1, 2)) if heads_first else (q, k)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_rope(interleaved: bool, heads_first: bool, dtype: torch.dtype) -> None:
    for heads, keys, size in ((1, 1, 2), (5, 1, 16), (6, 2, 10)):
        cos, sin = table(3, size // 2)
        shapes = ((2, 3, heads, size), (2, 3, keys, size))
        q, k = (random(*shape, dtype=dtype) for shape in shapes)
        if heads_first:
            q, k = q.transpose(1, 2), k.transpose(1, 2)
        options = {"cos": cos, "sin": sin, "interleaved": interleaved, "heads_first": heads_first}
        compare(partial(rope, **options), partial(reference, **options), [q, k])


def test_more_heads_than_registers_hold() -> None:
    cos, sin = table(1, 128)
    options = {"cos": cos, "sin": sin}
    compare(partial(rope, **options), partial(reference, **options), [random(1, 1, 19, 256), random(1, 1, 17, 256)])


def test_positions_of_each_sequence_and_parts_of_a_projection() -> None:
    cos, sin = table(2, 3, 4)

    def parts(both: Tensor) -> tuple[Tensor, Tensor]:
        whole = both.view(2, 3, 7, 8)
        return whole[:, :, :5], whole[:, :, 5:]

    both = random(2, 3, 56)
    compare(lambda both: rope(*parts(both), cos, sin), lambda both: reference(*parts(both), cos, sin), [both])


def test_layout_stays_and_nothing() -> None:
    cos, sin = table(3, 4)
    q = random(2, 5, 3, 8).transpose(1, 2)
    rotated_q, _ = rope(q, q, cos, sin)
    assert rotated_q.stride() == q.stride()
    empty, _ = rope(random(0, 3, 2, 8), random(0, 3, 1, 8), cos, sin)
    assert empty.shape == (0, 3, 2, 8)


def test_gradcheck_and_operator() -> None:
    cos, sin = (one.double() for one in table(2, 2))
    q, k = (random(1, 2, heads, 4, dtype=torch.float64).requires_grad_() for heads in (2, 1))
    assert torch.autograd.gradcheck(lambda q, k: rope(q, k, cos, sin), [q, k])
    torch.library.opcheck(torch.ops.opweld.rope.default, (q, k, cos, sin, True, False))


def test_what_does_not_fit_is_named() -> None:
    cos, sin = table(3, 4)
    q = random(2, 3, 5, 8)
    with pytest.raises(InputError, match=r"cos has shape \(3, 4\), expected \(3, 5\): one angle for each pair"):
        rope(random(2, 3, 5, 10), random(2, 3, 5, 10), cos, sin)
    with pytest.raises(InputError, match="the head size is even"):
        rope(q[..., :7], q[..., :7], cos, sin)
    with pytest.raises(InputError, match=r"k has shape \(2, 2, 5, 8\), expected \(2, 3, 5, 8\)"):
        rope(q, q[:, :2], cos, sin)

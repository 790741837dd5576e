# pyright: basic, reportUnknownParameterType=false, reportMissingParameterType=false
"""Triton's interpreter computes what a GPU does, where it did not by itself."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from opweld.kernels.registration import launch
from tests.kernels.compared import random


@triton.jit
def round_to(x, y, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    tl.store(y + place, tl.load(x + place).to(y.dtype.element_ty))


@triton.jit
def subtract(a, b, out, less, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    x, y = tl.load(a + place), tl.load(b + place)
    tl.store(out + place, x - y)
    tl.store(less + place, (x < y).to(tl.int32))


@triton.jit
def multiply(a, b, out, SIZE: tl.constexpr):
    row = tl.arange(0, SIZE)[:, None]
    column = tl.arange(0, SIZE)[None, :]
    x, y = tl.load(a + row * SIZE + column), tl.load(b + row * SIZE + column)
    tl.store(out + row * SIZE + column, tl.dot(x, y))


@triton.jit
def count(out, start, end):
    for place in range(start, end):
        tl.store(out + place, 1)


def test_bfloat16_is_rounded_to_the_nearest() -> None:
    x = random(1024)
    x[:6] = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, float("inf"), float("nan"), 3.4e38])
    y = torch.empty(1024, dtype=torch.bfloat16)
    launch(round_to, (1,), x, y, COUNT=1024)
    torch.testing.assert_close(y, x.to(torch.bfloat16), rtol=0, atol=0, equal_nan=True)


def test_integers_as_bfloat16() -> None:
    x = torch.arange(-512, 512, dtype=torch.int32)
    y = torch.empty(1024, dtype=torch.bfloat16)
    launch(round_to, (1,), x, y, COUNT=1024)
    assert torch.equal(y, x.to(torch.bfloat16))


def test_differences_and_comparisons_of_bfloat16() -> None:
    a, b = random(64, dtype=torch.bfloat16), random(64, dtype=torch.bfloat16, seed=1)
    out, less = torch.empty_like(a), torch.empty(64, dtype=torch.int32)
    launch(subtract, (1,), a, b, out, less, COUNT=64)
    assert torch.equal(out, a - b)
    assert torch.equal(less, (a < b).int())


def test_products_of_bfloat16() -> None:
    a, b = random(16, 16, dtype=torch.bfloat16), random(16, 16, dtype=torch.bfloat16, seed=1)
    out = torch.empty(16, 16)
    launch(multiply, (1,), a, b, out, SIZE=16)
    torch.testing.assert_close(out, a.float() @ b.float())


def test_loops_with_bounds_of_the_run() -> None:
    out = torch.zeros(8, dtype=torch.int32)
    launch(count, (1,), out, 2, 5)
    assert out.tolist() == [0, 0, 1, 1, 1, 0, 0, 0]

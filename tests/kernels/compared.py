"""Kernels beside PyTorch in float64: random tensors, and how far results may be apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# Between neighbours, relative to the number. Triton's interpreter cuts to bfloat16, where GPUs round.
ROUNDING = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Normally distributed, from the seed and the shape."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def assert_close(
    got: Tensor, expected: Tensor, roundings: float = 4.0, *, scale: float = 0.1, within: torch.dtype | None = None
) -> None:
    """Every element is within some roundings, of the type of what was got or of the one within, of the scale of what
    was expected, or of the one given, where much may have cancelled."""
    assert got.shape == expected.shape
    if got.numel() == 0:
        return
    limit = roundings * ROUNDING[within or got.dtype] * max(expected.abs().max().item(), scale)
    worst = (got.double() - expected).abs().max().item()
    assert worst <= limit, f"{worst} apart, {limit} allowed"


def compare(
    kernel: Callable[..., Tensor | tuple[Tensor, ...]],
    reference: Callable[..., Tensor | tuple[Tensor, ...]],
    inputs: Sequence[Tensor],
    *,
    roundings: float = 4.0,
    scale: float = 0.1,
    within: torch.dtype | None = None,
) -> None:
    """The kernel's results and gradients are those of the reference in float64, for random gradients of the results."""
    ours = [tensor.detach().requires_grad_() for tensor in inputs]
    theirs = [tensor.detach().double().requires_grad_() for tensor in inputs]
    got, expected = _several(kernel(*ours)), _several(reference(*theirs))
    for one, other in zip(got, expected, strict=True):
        assert_close(one.detach(), other.detach(), roundings, scale=scale, within=within)
    weights = [random(*one.shape, dtype=one.dtype, seed=9 + place).to(one.device) for place, one in enumerate(got)]
    gradients = torch.autograd.grad(got, ours, weights)
    exact = torch.autograd.grad(expected, theirs, [weight.double() for weight in weights])
    for one, other, tensor in zip(gradients, exact, inputs, strict=True):
        assert one.dtype == tensor.dtype
        assert_close(one, other, 2 * roundings, scale=scale, within=within)


def _several(results: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)

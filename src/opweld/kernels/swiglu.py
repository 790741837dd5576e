"""SwiGLU: y = silu(gate) up, where silu(x) = x / (1 + exp(-x)). The kernels are in `gated`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from opweld.kernels import gated
from opweld.kernels.gated import CANDIDATES
from opweld.kernels.registration import operator
from opweld.kernels.variant import Variant

__all__ = ["CANDIDATES", "swiglu", "variants"]


@operator("swiglu")
def _forward(gate: Tensor, up: Tensor) -> Tensor:
    return gated.forward(gate, up, "silu")


@operator("swiglu_backward")
def _backward(dy: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    return gated.backward(dy, gate, up, "silu")


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
    return _backward(dy, *ctx.saved_tensors)


_forward.register_autograd(_differentiate, setup_context=_save)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) up; differentiable in both.

    Args:
        gate: [..., N], float16, bfloat16, float32 or float64; rows may be strided.
        up: as gate.

    Returns:
        y as gate.

    Raises:
        InputError: dtypes, shapes or devices do not fit.
    """
    gated.check(gate, up)
    return _forward(gate, up)


def variants(arch: int) -> Iterator[Variant]:
    """What is compiled ahead of time for an architecture, as 90 for sm_90."""
    return gated.variants("swiglu", "silu")

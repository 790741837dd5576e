"""GEGLU: y = gelu(gate) up, where gelu(x) = x (1 + erf(x / sqrt 2)) / 2, or its approximation with tanh. The kernels
are in `gated`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from torch import Tensor

from opweld.errors import InputError
from opweld.kernels import gated
from opweld.kernels.gated import CANDIDATES
from opweld.kernels.registration import operator
from opweld.kernels.variant import Variant

__all__ = ["CANDIDATES", "geglu", "variants"]


@operator("geglu")
def _forward(gate: Tensor, up: Tensor, activation: str) -> Tensor:
    return gated.forward(gate, up, activation)


@operator("geglu_backward")
def _backward(dy: Tensor, gate: Tensor, up: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    return gated.backward(dy, gate, up, activation)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.activation = inputs
    ctx.save_for_backward(*tensors)


def _differentiate(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    return *_backward(dy, *ctx.saved_tensors, ctx.activation), None


_forward.register_autograd(_differentiate, setup_context=_save)


def geglu(gate: Tensor, up: Tensor, *, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """gelu(gate) up; differentiable in both.

    Args:
        gate: [..., N], float16, bfloat16, float32 or float64; rows may be strided.
        up: as gate.
        approximate: none, or tanh: x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.

    Returns:
        y as gate.

    Raises:
        InputError: dtypes, shapes or devices do not fit.
    """
    gated.check(gate, up)
    if approximate not in ("none", "tanh"):
        raise InputError(f"approximate is {approximate!r}, expected none or tanh")
    return _forward(gate, up, "gelu" if approximate == "none" else "gelu_tanh")


def variants(arch: int) -> Iterator[Variant]:
    """What is compiled ahead of time for an architecture, as 90 for sm_90."""
    yield from gated.variants("geglu", "gelu")
    yield from gated.variants("geglu tanh", "gelu_tanh")

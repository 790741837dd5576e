"""The last linear layer of a language model and its cross-entropy, without all logits at once.

    logits = hidden weight^T + bias
    loss = cross_entropy(logits, target)

Rows are taken in chunks: logits of a chunk, their losses, the gradient in place of the logits, and its products with
weight and hidden. All gradients are there when forward ends, and backward only scales them. Memory beyond them is one
chunk of logits: about as much as hidden. Products are cuBLAS's; the loss is the kernel of `cross_entropy`.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from opweld.kernels.arguments import FLOATS, as_rows, check_like, check_shape, check_tensor
from opweld.kernels.cross_entropy import check_classification, losses_and_lse, write_gradient
from opweld.kernels.precision import wide_dtype
from opweld.kernels.registration import operator
from opweld.kernels.sizes import ceil_div, power_of_2

LEAST_ROWS = 512
"""Rows of a chunk at least: products of fewer leave a GPU idle."""


def chunk_rows(rows: int, width: int, classes: int) -> int:
    """Rows of a chunk, whose logits are about as large as hidden is."""
    return max(LEAST_ROWS, power_of_2(ceil_div(rows, ceil_div(classes, width))))


@operator("linear_cross_entropy")
def _loss_and_gradients(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    ignore_index: int,
    smoothing: float,
    mean: bool,
    wants_hidden: bool,
    wants_weight: bool,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows, width = hidden.shape
    classes = weight.shape[0]
    counted = (target != ignore_index).to(wide_dtype(hidden.dtype))
    share = counted / counted.sum() if mean else counted
    losses = torch.empty_like(share)
    dhidden = torch.empty_like(hidden) if wants_hidden else hidden.new_empty(0)
    dweight = torch.zeros_like(weight) if wants_weight else weight.new_empty(0)
    dbias = share.new_zeros(classes if wants_bias else 0)
    step = chunk_rows(rows, width, classes)
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        logits = hidden[part] @ weight.t() if bias is None else torch.addmm(bias, hidden[part], weight.t())
        losses[part], lse = losses_and_lse(logits, target[part], ignore_index, smoothing, False)
        if not (wants_hidden or wants_weight or wants_bias):
            continue
        write_gradient(share[part], logits, target[part], lse, ignore_index, smoothing)
        if wants_hidden:
            torch.mm(logits, weight, out=dhidden[part])
        if wants_weight:
            dweight.addmm_(logits.t(), hidden[part])
        if wants_bias:
            dbias += logits.sum(0, dtype=dbias.dtype)
    return (losses * share).sum(), dhidden, dweight, dbias


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, bias, *_, ctx.wants_hidden, ctx.wants_weight, ctx.wants_bias = inputs
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(*output[1:])


def _differentiate(ctx: Any, dloss: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    dhidden, dweight, dbias = ctx.saved_tensors
    return (
        dhidden.mul_(dloss) if ctx.wants_hidden else None,
        dweight.mul_(dloss) if ctx.wants_weight else None,
        dbias.mul(dloss).to(ctx.bias_dtype) if ctx.wants_bias else None,
        *[None] * 7,
    )


_loss_and_gradients.register_autograd(_differentiate, setup_context=_save)


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Literal["mean", "sum"] = "mean",
) -> Tensor:
    """Cross-entropy of a linear layer's results; differentiable once in hidden, weight and bias.

    The gradients of weight and hidden are kept in their dtypes, chunks of rows summed in that of weight; backward
    scales them where they are, so a second backward is refused.

    Args:
        hidden: [..., H], float16, bfloat16, float32 or float64.
        weight: [V, H], as hidden.
        target: [...], int64, each from 0 to V - 1 or ignore_index. The loss of any other is NaN.
        bias: [V], as hidden.
        ignore_index: rows of this target have loss and gradient 0, and do not count in the mean.
        label_smoothing: the share of the target that all classes have, from 0 to less than 1.
        reduction: the mean over rows that count (NaN of none), or the sum.

    Returns:
        A scalar, float32 (float64 of float64).

    Raises:
        InputError: dtypes, shapes or options do not fit.
    """
    check_tensor("hidden", hidden, FLOATS, range(1, 9))
    check_like("weight", weight, "hidden", hidden)
    check_tensor("weight", weight, FLOATS, range(2, 3))
    check_shape("weight", weight, (weight.shape[0], hidden.shape[-1]), "classes by columns of hidden")
    if bias is not None:
        check_like("bias", bias, "hidden", hidden)
        check_shape("bias", bias, (weight.shape[0],), "one element for each class")
    check_classification("hidden", hidden, weight.shape[0], target, label_smoothing, reduction, ("mean", "sum"))
    wants = [
        tensor is not None and tensor.requires_grad and torch.is_grad_enabled() for tensor in (hidden, weight, bias)
    ]
    rows, targets = as_rows(hidden), target.reshape(-1).contiguous()
    loss, *_ = _loss_and_gradients(
        rows, weight, bias, targets, ignore_index, label_smoothing, reduction == "mean", *wants
    )
    return loss

# pyright: basic, reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownVariableType=false
"""Cross-entropy of logits, without a matrix of probabilities.

    lse = log(sum over v of exp(x_v))
    loss = lse - (1 - s) x_target - s mean(x)         s: label smoothing
    dx_v = dloss (exp(x_v - lse) - (1 - s) [v = target] - s / V)

Forward reads the logits once, in blocks, with the largest and the sum kept while it runs, and saves lse: one number a
row. Backward reads them again and writes the gradient, into the logits themselves where the caller has no more use for
them. Memory beyond logits and gradient is linear in the rows.

At its peak a training step holds the logits and their gradient, 2 tensors of that size, where eager mode holds 4: the
logits, their log-softmax, and the gradients of both. Half of eager's is the least there is by default: autograd answers
a gradient as large as the logits, and whether somebody else still reads the logits it does not say. `reuse_logits` says
so, and leaves 1 tensor of 4; `linear_cross_entropy` never has all logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels.arguments import FLOATS, as_rows, check_shape, check_tensor
from opweld.kernels.precision import finite, wide, wide_dtype
from opweld.kernels.registration import launch, operator
from opweld.kernels.sizes import ceil_div, power_of_2
from opweld.kernels.variant import Variant, variant

Reduction = Literal["mean", "sum", "none"]

CANDIDATES = tuple(
    {"block": block, "warps": warps, "stages": stages}
    for block, warps in ((2048, 4), (4096, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16))
    for stages in (1, 2, 3)
)
"""Configurations that a benchmark may try in place of `configuration`'s."""


def configuration(classes: int) -> dict[str, int]:
    """Classes of a block, 16 a thread, and warps.

    Of 128256 classes on an H100 80GB HBM3, 2026-11-26: blocks of 4096, 8 warps and 3 stages reach 97% of a copy's
    bandwidth, with 1 stage 93%; blocks of 2048 91%, of 8192 at most 94%."""
    block = max(128, min(power_of_2(classes), 4096))
    return {"block": block, "warps": max(1, block // 512), "stages": 3}


@triton.jit
def forward(
    logits, target, losses, lse, classes, logits_stride, ignore_index, smoothing,
    SMOOTH: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Loss and lse of one row in blocks of BLOCK classes."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    logits += row * logits_stride
    x = wide(tl.load(logits + lane, mask=lane < classes, other=float("-inf")))
    largest = tl.max(x, axis=0)
    sums = tl.exp(x - finite(largest))
    plain = tl.where(lane < classes, x, 0.0)
    for start in tl.range(BLOCK, classes, BLOCK, num_stages=STAGES):
        x = wide(tl.load(logits + start + lane, mask=start + lane < classes, other=float("-inf")))
        larger = tl.maximum(largest, tl.max(x, axis=0))
        origin = finite(larger)
        sums = sums * tl.exp(largest - origin) + tl.exp(x - origin)
        largest = larger
        if SMOOTH:
            plain += tl.where(start + lane < classes, x, 0.0)
    log_sum = largest + tl.log(tl.sum(sums, axis=0))
    tl.store(lse + row, log_sum)
    label = tl.load(target + row)
    # A label that is no class reads nothing and gives NaN.
    known = (label >= 0) & (label < classes)
    chosen = wide(tl.load(logits + label, mask=known, other=float("nan")))
    loss = log_sum - chosen
    if SMOOTH:
        loss = log_sum - (1.0 - smoothing) * chosen - smoothing * (tl.sum(plain, axis=0) / classes)
    tl.store(losses + row, tl.where(label == ignore_index, 0.0, loss))


@triton.jit
def backward(
    dloss, logits, target, lse, dx, classes, logits_stride, dx_stride, ignore_index, smoothing,
    SMOOTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of one row in a block of classes; dx may be the logits: an element is read before it is written."""
    blocks = tl.cdiv(classes, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    label = tl.load(target + row)
    scale = tl.where(label == ignore_index, 0.0, tl.load(dloss + row))
    x = wide(tl.load(logits + row * logits_stride + column, mask=column < classes, other=0.0))
    d = tl.exp(x - tl.load(lse + row))
    if SMOOTH:
        d -= tl.where(column == label, 1.0 - smoothing, 0.0) + smoothing / classes
    else:
        d -= tl.where(column == label, 1.0, 0.0)
    # An ignored row may hold inf or NaN, as padding does: no product with zero.
    d = tl.where(label == ignore_index, 0.0, d * scale)
    tl.store(dx + row * dx_stride + column, d.to(dx.dtype.element_ty), mask=column < classes)


@operator("cross_entropy")
def losses_and_lse(
    logits: Tensor, target: Tensor, ignore_index: int, smoothing: float, reuse_logits: bool
) -> tuple[Tensor, Tensor]:
    """Losses and lse [M] of logits [M, V], float32 (float64 of float64); the loss of an ignored row is 0."""
    losses = logits.new_empty(logits.shape[0], dtype=wide_dtype(logits.dtype))
    lse = torch.empty_like(losses)
    chosen = configuration(logits.shape[1])
    launch(
        forward, (logits.shape[0],), logits, target, losses, lse, logits.shape[1], logits.stride(0), ignore_index,
        smoothing, SMOOTH=smoothing > 0, BLOCK=chosen["block"], STAGES=chosen["stages"], num_warps=chosen["warps"],
    )  # fmt: skip
    return losses, lse


def _write_gradient(
    dloss: Tensor, logits: Tensor, target: Tensor, lse: Tensor, dx: Tensor, ignore_index: int, smoothing: float
) -> None:
    rows, classes = logits.shape
    chosen = configuration(classes)
    launch(
        backward, (rows * ceil_div(classes, chosen["block"]),), dloss, logits, target, lse, dx, classes,
        logits.stride(0), dx.stride(0), ignore_index, smoothing,
        SMOOTH=smoothing > 0, BLOCK=chosen["block"], num_warps=chosen["warps"],
    )  # fmt: skip


@operator("cross_entropy_backward")
def gradient(dloss: Tensor, logits: Tensor, target: Tensor, lse: Tensor, ignore_index: int, smoothing: float) -> Tensor:
    """The gradient of logits [M, V]; dloss [M] dense."""
    dx = torch.empty_like(logits, memory_format=torch.contiguous_format)
    _write_gradient(dloss, logits, target, lse, dx, ignore_index, smoothing)
    return dx


@operator("cross_entropy_backward_", mutates=("logits",))
def write_gradient(
    dloss: Tensor, logits: Tensor, target: Tensor, lse: Tensor, ignore_index: int, smoothing: float
) -> None:
    """Replaces logits [M, V] by their gradient; dloss [M] dense."""
    _write_gradient(dloss, logits, target, lse, logits, ignore_index, smoothing)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    logits, target, ctx.ignore_index, ctx.smoothing, ctx.reuse_logits = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(logits, target, output[1])


def _differentiate(ctx: Any, dloss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    logits, target, lse = ctx.saved_tensors
    arguments = (dloss.contiguous(), logits, target, lse, ctx.ignore_index, ctx.smoothing)
    if ctx.reuse_logits:
        write_gradient(*arguments)
        return logits.detach(), None, None, None, None
    return gradient(*arguments), None, None, None, None


losses_and_lse.register_autograd(_differentiate, setup_context=_save)


def check_classification(
    name: str, scores: Tensor, classes: int, target: Tensor, smoothing: float, reduction: str, known: tuple[str, ...]
) -> None:
    """Each row of the scores has a target, and options are in range.

    Raises:
        InputError: one has not, or they are not.
    """
    check_tensor("target", target, (torch.int64,))
    check_shape("target", target, tuple(scores.shape[:-1]), f"one class for each row of {name}")
    if classes == 0:
        raise InputError("there are no classes: the last dimension of logits, the first of weight, is 0")
    if not 0.0 <= smoothing < 1.0:
        raise InputError(f"label_smoothing is {smoothing}, expected a number from 0 to less than 1")
    if reduction not in known:
        raise InputError(f"reduction is {reduction!r}, expected one of {', '.join(known)}")


def cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
    reuse_logits: bool = False,
) -> Tensor:
    """Cross-entropy of logits and the classes that are right; differentiable in the logits.

    Args:
        logits: [..., V], float16, bfloat16, float32 or float64; rows may be strided.
        target: [...], int64, each from 0 to V - 1 or ignore_index. The loss of any other is NaN.
        ignore_index: rows of this target have loss and gradient 0, and do not count in the mean.
        label_smoothing: the share of the target that all classes have, from 0 to less than 1.
        reduction: the mean over rows that count (NaN of none), the sum, or none.
        reuse_logits: backward writes the gradient into the memory of the logits, which nobody may read after it; a
            second backward through the same logits is refused.

    Returns:
        A scalar, of reduction none [...]; float32 (float64 of float64), whatever the logits are.

    Raises:
        InputError: dtypes, shapes or options do not fit.
    """
    check_tensor("logits", logits, FLOATS, range(1, 9))
    known = ("mean", "sum", "none")
    check_classification("logits", logits, logits.shape[-1], target, label_smoothing, reduction, known)
    rows, targets = as_rows(logits), target.reshape(-1).contiguous()
    losses, _ = losses_and_lse(rows, targets, ignore_index, label_smoothing, reuse_logits)
    if reduction == "none":
        return losses.view(target.shape)
    total = losses.sum()
    return total if reduction == "sum" else total / (targets != ignore_index).sum()


def variants(arch: int) -> Iterator[Variant]:
    """What is compiled ahead of time for an architecture, as 90 for sm_90: the default configurations in bfloat16."""
    types = dict.fromkeys(("logits", "dx"), "*bf16:16") | {"target": "*i64:16", "classes": "i32:16"}
    types |= dict.fromkeys(("losses", "lse", "dloss"), "*fp32:16") | dict.fromkeys(
        ("logits_stride", "dx_stride"), "i32:16"
    )
    types |= {"ignore_index": "i32", "smoothing": "fp32"}
    for classes in (128, 1024, 128256):
        chosen = configuration(classes)
        for smooth in (False, True):
            constants = {"SMOOTH": smooth, "BLOCK": chosen["block"], "STAGES": chosen["stages"]}
            suffix = f"bf16 {classes}{' smoothed' if smooth else ''}"
            yield variant(f"cross_entropy forward {suffix}", forward, types, constants, chosen["warps"])
            yield variant(f"cross_entropy backward {suffix}", backward, types, constants, chosen["warps"])

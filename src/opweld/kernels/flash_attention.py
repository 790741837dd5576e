"""Attention without the matrix of scores: FlashAttention (Dao 2023, arXiv 2307.08691), forward and backward."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels import registration as registration
from opweld.kernels.arguments import check_tensor
from opweld.kernels.devices import architecture
from opweld.kernels.flash_arguments import broadcastable, check_numbers, check_operands, check_starts, window_of
from opweld.kernels.flash_backward_launches import keys_launch, queries_launch, row_numbers, rows_launch
from opweld.kernels.flash_forward import forward_launch
from opweld.kernels.flash_problem import Problem
from opweld.kernels.variant import Variant


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    softcap: float | None = None,
    block_mask: Tensor | None = None,
    block_size: tuple[int, int] = (128, 128),
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    seed: int | None = None,
    input_precision: str = "ieee",
) -> Tensor:
    """dropout(softmax(scores)) value, differentiable in query, key, value and bias:

        scores = cap(scale * query key^T) + bias - alibi_slopes * |i + Lk - Lq - j|
        cap(x) = softcap * tanh(x / softcap)

    of the keys j that query i sees; one that sees none gets zeros. Query i stands at i + Lk - Lq among the keys, the
    last query at the last key. Memory is linear in Lq + Lk: backward needs output, log-sum-exp and seed, and no more.

    Args:
        query: [B, H, Lq, D], float16, bfloat16 or float32, any strides, D at most 256.
        key, value: [B, Hk, Lk, D], as the query; H is a multiple of Hk, whose heads are shared (GQA, MQA).
        causal: query i sees keys j <= i + Lk - Lq.
        window: how many keys a query sees before and after its own place; None is no bound.
        bias: added to scores, floating, broadcast to [B, H, Lq, Lk]. Its gradient is summed by atomic additions in
            float32, in no fixed order where axes are broadcast.
        mask: bool, broadcast to [B, H, Lq, Lk]; True is seen.
        alibi_slopes: float32, broadcast to [B, H].
        softcap: bounds scores, as Gemma does.
        block_mask: bool, broadcast to [B, H, ceil(Lq / rows), ceil(Lk / columns)]: which blocks of `block_size` =
            (rows, columns), powers of two of at least 16, are seen; others cost nothing.
        cu_seqlens_q, cu_seqlens_k: int32 [sequences + 1]: query is [Tq, H, D], key and value [Tk, Hk, D], sequences
            behind each other, which begin at these rows. Not with bias, mask or block_mask.
        max_seqlen_q, max_seqlen_k: lengths of the longest; without them the device is asked, which waits for it.
        scale: positive; 1 / sqrt(D) by default.
        dropout: the probability that a probability becomes 0; others are divided by 1 - dropout.
        seed: of dropout; drawn from PyTorch's generator of the processor by default.
        input_precision: of products of float32: "ieee", "tf32" or "tf32x3".

    Returns:
        As the query, contiguous.

    Raises:
        InputError: an argument does not fit; it says which and what to do.
    """
    return flash_attention_with_lse(
        query, key, value, causal=causal, window=window, bias=bias, mask=mask, alibi_slopes=alibi_slopes,
        softcap=softcap, block_mask=block_mask, block_size=block_size, cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k, max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, scale=scale, dropout=dropout,
        seed=seed, input_precision=input_precision,
    )[0]  # fmt: skip


def flash_attention_with_lse(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    softcap: float | None = None,
    block_mask: Tensor | None = None,
    block_size: tuple[int, int] = (128, 128),
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    seed: int | None = None,
    input_precision: str = "ieee",
) -> tuple[Tensor, Tensor]:
    """`flash_attention`, and log(sum(exp(scores))) of each query as float32 [B, H, Lq], or [H, Tq] of packed sequences;
    -inf where a query sees no key. The second is not differentiable."""
    packed = cu_seqlens_q is not None or cu_seqlens_k is not None
    check_operands(query, key, value, packed=packed)
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    check_numbers(scale, 0.0 if softcap is None else softcap, dropout, input_precision)
    left, right = window_of(causal, window)
    if dropout and seed is None:
        seed = int(torch.randint(2**62, ()).item())
    if packed:
        for name, tensor in (("bias", bias), ("mask", mask), ("block_mask", block_mask)):
            if tensor is not None:
                raise InputError(f"{name} is given with cu_seqlens_q: pad the sequences, or say it by window or ALiBi")
        if cu_seqlens_q is None or cu_seqlens_k is None:
            absent = "cu_seqlens_q" if cu_seqlens_q is None else "cu_seqlens_k"
            raise InputError(f"{absent} is missing: pass both, the same tensor twice for self-attention")
        check_starts("cu_seqlens_q", cu_seqlens_q)
        check_starts("cu_seqlens_k", cu_seqlens_k, cu_seqlens_q.numel() - 1)
        query, key, value = (tensor.transpose(0, 1)[None] for tensor in (query, key, value))
        length_q = _longest(cu_seqlens_q) if max_seqlen_q is None else max_seqlen_q
        length_k = _longest(cu_seqlens_k) if max_seqlen_k is None else max_seqlen_k
        sequences = cu_seqlens_q.numel() - 1
    else:
        sequences, length_q, length_k = query.shape[0], query.shape[2], key.shape[2]
    scores = (sequences, query.shape[1], length_q, length_k)
    if bias is not None:
        check_tensor("bias", bias, (torch.float16, torch.bfloat16, torch.float32))
    if mask is not None:
        check_tensor("mask", mask, (torch.bool,))
    if alibi_slopes is not None:
        check_tensor("alibi_slopes", alibi_slopes, (torch.float32,))
    if block_mask is not None:
        check_tensor("block_mask", block_mask, (torch.bool,))
        if any(size < 16 or size & (size - 1) for size in block_size):
            raise InputError(f"block_size is {block_size}, expected powers of two of at least 16")
    blocks = (*scores[:2], -(-length_q // block_size[0]), -(-length_k // block_size[1]))
    output, lse = _forward(
        query,
        key,
        value,
        broadcastable("bias", bias, scores, "[B, H, Lq, Lk] ="),
        broadcastable("mask", mask, scores, "[B, H, Lq, Lk] ="),
        broadcastable("alibi_slopes", alibi_slopes, scores[:2], "[B, H] ="),
        broadcastable("block_mask", block_mask, blocks, "[B, H, blocks of queries, blocks of keys] ="),
        list(block_size),
        cu_seqlens_q,
        cu_seqlens_k,
        [length_q, length_k],
        [left, right],
        scale,
        0.0 if softcap is None else softcap,
        dropout,
        seed or 0,
        input_precision,
    )
    return (output[0].transpose(0, 1), lse[0]) if packed else (output, lse)


def variants(arch: int) -> Iterator[Variant]:
    """The default configurations of an architecture, 80 or 90, by head size and window, and with features."""
    from opweld.kernels.flash_variants import flash_variants

    return flash_variants(arch)


def _longest(starts: Tensor) -> int:
    return int(starts.diff().max().item()) if starts.numel() > 1 else 0


def _problem(
    query: Tensor, bias: Tensor | None, mask: Tensor | None, alibi_slopes: Tensor | None, block_mask: Tensor | None,
    block_size: list[int], starts_q: Tensor | None, starts_k: Tensor | None, lengths: list[int], window: list[int],
    scale: float, softcap: float, dropout: float, seed: int, input_precision: str,
) -> Problem:  # fmt: skip
    """The arguments of an operator as what kernels are given: what broadcasts, expanded."""
    sequences = query.shape[0] if starts_q is None else starts_q.numel() - 1
    heads = (sequences, query.shape[1])
    blocks = (-(-length // size) for length, size in zip(lengths, block_size, strict=True))
    return Problem(
        bias=None if bias is None else bias.expand(*heads, *lengths),
        mask=None if mask is None else mask.expand(*heads, *lengths),
        alibi_slopes=None if alibi_slopes is None else alibi_slopes.expand(heads),
        block_mask=None if block_mask is None else block_mask.expand(*heads, *blocks),
        block_rows=block_size[0],
        block_columns=block_size[1],
        starts_q=starts_q,
        starts_k=starts_k,
        length_q=lengths[0],
        length_k=lengths[1],
        window_left=window[0],
        window_right=window[1],
        scale=scale,
        softcap=softcap,
        dropout=dropout,
        seed=seed,
        input_precision=input_precision,
    )


@torch.library.custom_op("opweld::flash_attention", mutates_args=())
def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    alibi_slopes: Tensor | None,
    block_mask: Tensor | None,
    block_size: list[int],
    starts_q: Tensor | None,
    starts_k: Tensor | None,
    lengths: list[int],
    window: list[int],
    scale: float,
    softcap: float,
    dropout: float,
    seed: int,
    input_precision: str,
) -> tuple[Tensor, Tensor]:
    problem = _problem(
        query, bias, mask, alibi_slopes, block_mask, block_size, starts_q, starts_k, lengths, window,
        scale, softcap, dropout, seed, input_precision,
    )  # fmt: skip
    output = torch.empty_like(query, memory_format=torch.contiguous_format)
    lse = query.new_empty(query.shape[:3], dtype=torch.float32)
    launch = forward_launch(output, lse, query, key, value, problem, architecture(query.device))
    launch.run(query.device)
    return output, lse


@_forward.register_fake
def _(query: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    output = torch.empty_like(query, memory_format=torch.contiguous_format)
    return output, query.new_empty(query.shape[:3], dtype=torch.float32)


@torch.library.custom_op("opweld::flash_attention_backward", mutates_args=())
def _backward(
    grad_output: Tensor,
    output: Tensor,
    lse: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    alibi_slopes: Tensor | None,
    block_mask: Tensor | None,
    block_size: list[int],
    starts_q: Tensor | None,
    starts_k: Tensor | None,
    lengths: list[int],
    window: list[int],
    scale: float,
    softcap: float,
    dropout: float,
    seed: int,
    input_precision: str,
    needs_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    problem = _problem(
        query, bias, mask, alibi_slopes, block_mask, block_size, starts_q, starts_k, lengths, window,
        scale, softcap, dropout, seed, input_precision,
    )  # fmt: skip
    arch = architecture(query.device)
    grad_query, grad_key, grad_value = (
        torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (query, key, value)
    )
    grad_bias = None if bias is None or not needs_bias else torch.zeros_like(bias, dtype=torch.float32)
    expanded_grad = None if grad_bias is None or problem.bias is None else grad_bias.expand(problem.bias.shape)
    origin, delta = row_numbers(query)
    operands = (query, key, value, grad_output, origin, delta, problem, arch)
    rows_launch(origin, delta, output, grad_output, lse).run(query.device)
    keys_launch(grad_key, grad_value, expanded_grad, *operands).run(query.device)
    queries_launch(grad_query, *operands).run(query.device)
    return grad_query, grad_key, grad_value, query.new_empty(0) if grad_bias is None else grad_bias


@_backward.register_fake
def _(grad_output: Tensor, output: Tensor, lse: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Any:
    bias, needs_bias = rest[0], rest[-1]
    grads = (torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (query, key, value))
    return (*grads, torch.zeros_like(bias, dtype=torch.float32) if needs_bias else query.new_empty(0))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, bias, mask, slopes, block_mask, size, starts_q, starts_k, *numbers = inputs
    ctx.save_for_backward(query, key, value, bias, mask, slopes, block_mask, starts_q, starts_k, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.block_size = size
    ctx.numbers = numbers


def _gradients(ctx: Any, grad_output: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    query, key, value, bias, mask, slopes, block_mask, starts_q, starts_k, output, lse = ctx.saved_tensors
    needs_bias = ctx.needs_input_grad[3]
    grad_query, grad_key, grad_value, grad_bias = _backward(
        grad_output, output, lse, query, key, value, bias, mask, slopes, block_mask, ctx.block_size,
        starts_q, starts_k, *ctx.numbers, needs_bias,
    )  # fmt: skip
    of_bias = grad_bias.to(bias.dtype) if needs_bias else None
    return grad_query, grad_key, grad_value, of_bias, *(None,) * 13


_forward.register_autograd(_gradients, setup_context=_setup_context)

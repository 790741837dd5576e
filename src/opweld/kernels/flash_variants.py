"""What of attention is compiled ahead of time: its kernels in their default configurations, as launches on tensors
without memory have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from opweld.kernels.flash_backward_launches import keys_launch, queries_launch, row_numbers, rows_launch
from opweld.kernels.flash_forward import forward_launch
from opweld.kernels.flash_problem import UNBOUNDED, Problem
from opweld.kernels.packed_attention import packed_attention
from opweld.kernels.variant import Variant

_BATCH, _HEADS, _KV_HEADS, _LENGTH = 2, 32, 8, 4096


def flash_variants(arch: int) -> Iterator[Variant]:
    """`flash_attention`, forward and backward: by head size, window and type; with features."""
    for head_dim in (64, 128, 256):
        for causal in (False, True):
            window = "causal" if causal else "full"
            yield from _passes(arch, f"bf16_d{head_dim}_{window}", head_dim, torch.bfloat16, _problem(head_dim, causal))
        yield from _passes(arch, f"fp32_d{head_dim}", head_dim, torch.float32, _problem(head_dim, True))
    yield from _passes(arch, "bf16_d80_causal", 80, torch.bfloat16, _problem(80, True))
    plain = _problem(128, True)
    starts = _empty(17, dtype=torch.int32)
    scores = (_BATCH, _HEADS, _LENGTH, _LENGTH)
    blocks = torch.ones((1, 1, _LENGTH // 128, _LENGTH // 128), dtype=torch.bool).expand(*scores[:2], -1, -1)
    featured = {
        "window": replace(plain, window_left=1024),
        "packed": replace(plain, starts_q=starts, starts_k=starts),
        "blocks": replace(plain, block_mask=blocks),
        "alibi": replace(plain, alibi_slopes=_empty(*scores[:2], dtype=torch.float32)),
        "softcap": replace(plain, softcap=50.0),
        "bias": replace(plain, bias=_empty(*scores)),
        "mask": replace(plain, mask=_empty(*scores, dtype=torch.bool)),
        "dropout": replace(plain, dropout=0.1),
    }
    for name, problem in featured.items():
        yield from _passes(arch, f"bf16_d128_{name}", 128, torch.bfloat16, problem)


def decode_variants(arch: int) -> Iterator[Variant]:
    """`flash_decode` by head size and type, and what combines splits."""
    for head_dim in (64, 128, 256):
        yield from _packed(f"flash_decode_bf16_d{head_dim}", head_dim, torch.bfloat16, 1, None)
    yield from _packed("flash_decode_fp32_d128", 128, torch.float32, 1, None)


def paged_variants(arch: int) -> Iterator[Variant]:
    """`paged_attention` by head size and page: of single tokens and of prompts."""
    for head_dim in (64, 128, 256):
        for page in (16, 128):
            yield from _packed(f"paged_attention_bf16_d{head_dim}_page{page}", head_dim, torch.bfloat16, 1, page)
        yield from _packed(f"paged_attention_bf16_d{head_dim}_prompt", head_dim, torch.bfloat16, 512, 16)


def _problem(head_dim: int, causal: bool) -> Problem:
    return Problem.plain(_LENGTH, _LENGTH, head_dim, causal=causal)


def _passes(arch: int, name: str, head_dim: int, dtype: torch.dtype, problem: Problem) -> Iterator[Variant]:
    """All kernels of one problem; keys and values are shared by four heads."""
    query = _empty(_BATCH, _HEADS, _LENGTH, head_dim, dtype=dtype)
    key = _empty(_BATCH, _KV_HEADS, _LENGTH, head_dim, dtype=dtype)
    lse = _empty(_BATCH, _HEADS, _LENGTH, dtype=torch.float32)
    origin, delta = row_numbers(query)
    bias = None if problem.bias is None else _empty(*problem.bias.shape, dtype=torch.float32)
    backward = (query, key, key, query, origin, delta, problem, arch)
    yield forward_launch(query, lse, query, key, key, problem, arch).variant(f"flash_attention_{name}")
    yield keys_launch(key, key, bias, *backward).variant(f"flash_attention_keys_{name}")
    yield queries_launch(query, *backward).variant(f"flash_attention_queries_{name}")
    if problem.is_plain and problem.is_causal:
        yield rows_launch(origin, delta, query, query, lse).variant(f"flash_attention_rows_{name}")


def _packed(name: str, head_dim: int, dtype: torch.dtype, length: int, page: int | None) -> Iterator[Variant]:
    """The kernels of one decoding step or prompt, by splits where it is one query."""
    packed = page is not None
    query = _empty(1 if packed else 4, _HEADS, 4 * length if packed else length, head_dim, dtype=dtype)
    shape = (4, _KV_HEADS, _LENGTH, head_dim) if page is None else (1024, _KV_HEADS, page, head_dim)
    key = _empty(*shape, dtype=dtype)
    launches = packed_attention(
        torch.empty_like(query),
        query,
        key,
        key,
        block_table=None if page is None else _empty(4, _LENGTH // page, dtype=torch.int32),
        starts_q=_empty(5, dtype=torch.int32) if packed else None,
        lengths=_empty(4, dtype=torch.int32),
        alibi_slopes=None,
        sequences=4,
        max_length_q=length,
        max_length_k=_LENGTH,
        window_left=UNBOUNDED,
        scale=head_dim**-0.5,
        softcap=0.0,
        splits=8 if length == 1 else 1,
        input_precision="ieee",
    )
    for launch, kernel in zip(launches, ("", "_combine"), strict=False):
        yield launch.variant(name + kernel)


def _empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")

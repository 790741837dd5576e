"""What attention means, in float64 and with all its scores, on any device."""

from __future__ import annotations

import torch
from torch import Tensor


def attention(
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
    scale: float | None = None,
    keep: Tensor | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of [B, H, L, D]; a query that sees no key has zeros and -inf. `keep` is dropout's mask."""
    query, key, value = query.double(), key.double(), value.double()
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    length_q, length_k = query.shape[2], key.shape[2]
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    place = torch.arange(length_q, device=query.device)[:, None] + length_k - length_q
    columns = torch.arange(length_k, device=query.device)[None]
    if alibi_slopes is not None:
        scores = scores - alibi_slopes.double()[..., None, None] * (place - columns).abs()
    if bias is not None:
        scores = scores + bias.double()
    seen = torch.ones_like(scores, dtype=torch.bool)
    left, right = window or (None, None)
    right = 0 if causal else right
    if left is not None:
        seen = seen & (columns >= place - left)
    if right is not None:
        seen = seen & (columns <= place + right)
    if mask is not None:
        seen = seen & mask
    scores = scores.masked_fill(~seen, float("-inf"))
    log_sum_exp = torch.logsumexp(scores, -1) if length_k else scores.new_full(scores.shape[:-1], float("-inf"))
    origin = log_sum_exp.masked_fill(log_sum_exp == float("-inf"), float("inf"))
    probabilities = torch.exp(scores - origin[..., None])
    if keep is not None:
        probabilities = probabilities * keep / (1 - dropout)
    return probabilities @ value, log_sum_exp


def of_blocks(block_mask: Tensor, block_size: tuple[int, int], length_q: int, length_k: int) -> Tensor:
    """The mask of elements that a mask of blocks stands for."""
    rows = block_mask.repeat_interleave(block_size[0], -2)
    return rows.repeat_interleave(block_size[1], -1)[..., :length_q, :length_k]

"""What callers of attention give, checked."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels.arguments import check_like, check_shape, check_tensor
from opweld.kernels.flash_problem import UNBOUNDED

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
PRECISIONS = ("ieee", "tf32", "tf32x3")
MAX_HEAD_DIM = 256


def check_operands(query: Tensor, key: Tensor, value: Tensor, *, packed: bool) -> None:
    """Query, key and value belong together: [B, H, L, D], or [T, H, D] where sequences are packed.

    Raises:
        InputError: they do not; it names the argument and the remedy.
    """
    rank = 3 if packed else 4
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        check_tensor(name, tensor, DTYPES, range(rank, rank + 1))
    check_like("key", key, "query", query)
    check_like("value", value, "query", query)
    check_shape("value", value, tuple(key.shape), "as the key")
    if not packed and key.shape[0] != query.shape[0]:
        raise InputError(f"key has a batch of {key.shape[0]}, query one of {query.shape[0]}: expand key and value")
    if key.shape[-1] != query.shape[-1]:
        raise InputError(f"key has a head size of {key.shape[-1]}, query one of {query.shape[-1]}: project to one size")
    if not 1 <= query.shape[-1] <= MAX_HEAD_DIM:
        raise InputError(f"query has a head size of {query.shape[-1]}, expected 1 to {MAX_HEAD_DIM}: split the heads")
    heads, kv_heads = query.shape[1], key.shape[1]
    if kv_heads == 0 or heads % kv_heads:
        raise InputError(
            f"query has {heads} heads, which is no multiple of the {kv_heads} of key: repeat key and value's heads"
        )


def check_numbers(scale: float, softcap: float, dropout: float, input_precision: str) -> None:
    """The numbers are such as kernels compute with.

    Raises:
        InputError: one is not.
    """
    if not (scale > 0 and math.isfinite(scale)):
        raise InputError(f"scale is {scale}, expected a positive number: negate the query for a negative one")
    if not (softcap >= 0 and math.isfinite(softcap)):
        raise InputError(f"softcap is {softcap}, expected a positive number, or None for no cap")
    if not 0 <= dropout < 1:
        raise InputError(f"dropout is {dropout}, expected a probability of at least 0 and less than 1")
    if input_precision not in PRECISIONS:
        raise InputError(f"input_precision is {input_precision!r}, expected one of {', '.join(PRECISIONS)}")


def window_of(causal: bool, window: tuple[int | None, int | None] | None) -> tuple[int, int]:
    """Keys before and after a query's own place that it sees, `UNBOUNDED` where all.

    Raises:
        InputError: a bound is negative.
    """
    left, right = (UNBOUNDED if bound is None else bound for bound in window or (None, None))
    if window is not None and any(bound is not None and bound < 0 for bound in window):
        raise InputError(f"window is {window}, expected numbers of keys of at least 0, or None for no bound")
    return left, 0 if causal else right


def broadcastable(name: str, tensor: Tensor | None, shape: tuple[int, ...], meaning: str) -> Tensor | None:
    """An optional tensor that broadcasts to the shape, with as many axes; leading ones may be missing.

    Raises:
        InputError: it does not broadcast.
    """
    if tensor is None:
        return None
    missing = len(shape) - tensor.ndim
    fits = missing >= 0 and all(have in (1, want) for have, want in zip(tensor.shape, shape[missing:], strict=True))
    if not fits:
        raise InputError(f"{name} has shape {tuple(tensor.shape)}, expected {meaning} {shape}, or 1 on some axes")
    return tensor.reshape((1,) * missing + tuple(tensor.shape))


def check_starts(name: str, starts: Tensor, sequences: int | None = None) -> None:
    """Starts of packed sequences: int32 [sequences + 1].

    Raises:
        InputError: they are something else.
    """
    check_tensor(name, starts, (torch.int32,), range(1, 2))
    if starts.numel() < 1 or (sequences is not None and starts.numel() != sequences + 1):
        expected = "1 or more" if sequences is None else str(sequences + 1)
        raise InputError(
            f"{name} has {starts.numel()} elements, expected {expected}: where each sequence begins, and the end"
        )
    if starts.stride(0) != 1:
        raise InputError(f"{name} is not contiguous: pass {name}.contiguous()")

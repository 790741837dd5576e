"""Decoding in Triton's interpreter, over keys in a row and in pages, beside all scores in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels.flash_decode import flash_decode
from opweld.kernels.packed_attention import split_count
from opweld.kernels.paged_attention import paged_attention
from tests.kernels.attention_oracle import attention
from tests.kernels.compared import assert_close, random


def exact(query: Tensor, key: Tensor, value: Tensor, window: int | None = None, **options: Any) -> Tensor:
    """[H, Lq, D] of one sequence, whose queries are its last tokens."""
    bounds = None if window is None else (window, None)
    return attention(query[None], key[None], value[None], causal=True, window=bounds, **options)[0][0]


def compare(
    heads: tuple[int, int], length_q: int, length_k: int, lengths: tuple[int, ...] | None = None, head_dim: int = 16,
    dtype: torch.dtype = torch.float32, **options: Any,
) -> None:  # fmt: skip
    """`flash_decode` of two sequences beside the oracle."""
    query = random(2, heads[0], length_q, head_dim, dtype=dtype, seed=1)
    key, value = (random(2, heads[1], length_k, head_dim, dtype=dtype, seed=seed) for seed in (2, 3))
    given = None if lengths is None else torch.tensor(lengths, dtype=torch.int32)
    got = flash_decode(query, key, value, lengths=given, **options)
    options.pop("splits", None)
    for sequence, length in enumerate(lengths or (length_k, length_k)):
        expected = exact(query[sequence], key[sequence, :, :length], value[sequence, :, :length], **options)
        assert_close(got[sequence], expected)


@pytest.mark.parametrize("splits", [None, 1, 2, 5])
@pytest.mark.parametrize("length_k", [1, 5, 123, 129])
def test_lengths(length_k: int, splits: int | None) -> None:
    compare((4, 2), 1, length_k, splits=splits)


@pytest.mark.parametrize(("heads", "length_q"), [((6, 2), 1), ((3, 1), 4), ((2, 2), 2), ((20, 1), 1)])
def test_heads_that_share_keys(heads: tuple[int, int], length_q: int) -> None:
    compare(heads, length_q, 37, splits=2)


def test_more_rows_than_a_tile_has() -> None:
    compare((2, 1), 19, 37)


def test_each_sequence_has_its_length() -> None:
    compare((4, 2), 2, 133, (2, 133), splits=3)


def test_a_sequence_without_keys_gets_zeros() -> None:
    compare((4, 2), 1, 40, (0, 33), splits=2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("head_dim", [24, 64])
def test_16_bit_types(dtype: torch.dtype, head_dim: int) -> None:
    compare((4, 2), 1, 77, head_dim=head_dim, dtype=dtype, splits=2)


@pytest.mark.parametrize(
    "options", [{"window": 20}, {"softcap": 2.0}, {"scale": 0.1}, {"alibi_slopes": torch.tensor([0.5, 0.1])}], ids=str
)
def test_features(options: dict[str, Any]) -> None:
    compare((2, 1), 3, 70, (70, 41), splits=2, **options)


def test_strides() -> None:
    """[B, L, H, D] as [B, H, L, D], and every other element of a row."""
    query = random(1, 1, 4, 32).transpose(1, 2)[..., ::2]
    key = random(1, 40, 2, 16, seed=2).transpose(1, 2)
    value = random(1, 2, 16, 40, seed=3).mT
    assert_close(flash_decode(query, key, value)[0], exact(query[0], key[0], value[0]))


def test_no_queries() -> None:
    assert flash_decode(torch.zeros(0, 2, 1, 16), torch.zeros(0, 1, 9, 16), torch.zeros(0, 1, 9, 16)).shape[0] == 0


def test_no_keys() -> None:
    assert not flash_decode(torch.ones(1, 2, 1, 16), torch.ones(1, 1, 0, 16), torch.ones(1, 1, 0, 16)).any()


def test_splits_fill_the_device_and_no_more() -> None:
    assert split_count(programs=264, tiles=100, slots=264) == 1
    assert split_count(programs=8, tiles=100, slots=264) * 8 in range(224, 265)
    assert split_count(programs=8, tiles=3, slots=264) == 3
    assert split_count(programs=1, tiles=10**6, slots=264) <= 128


class Cache:
    """Pages of keys and values in no order, and one sequence after the other in them."""

    def __init__(self, lengths: tuple[int, ...], page: int, kv_heads: int, dtype: torch.dtype = torch.float32) -> None:
        counts = [-(-length // page) for length in lengths]
        pages = sum(counts) + 2
        self.keys, self.values = (random(pages, page, kv_heads, 16, dtype=dtype, seed=seed) for seed in (2, 3))
        order = iter(torch.randperm(pages, generator=torch.Generator().manual_seed(0)).tolist())
        # What lies beyond a sequence's pages must not be read: it is no page.
        self.table = torch.full((len(lengths), max(counts)), 2**30, dtype=torch.int32)
        for sequence, count in enumerate(counts):
            self.table[sequence, :count] = torch.tensor([next(order) for _ in range(count)])
        self.lengths = torch.tensor(lengths, dtype=torch.int32)
        self.counts = counts

    def of(self, sequence: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a sequence, [Hk, L, D]."""
        pages = self.table[sequence, : self.counts[sequence]].long()
        length = int(self.lengths[sequence])
        keys, values = (tensor[pages].flatten(0, 1)[:length].transpose(0, 1) for tensor in (self.keys, self.values))
        return keys, values


def compare_paged(
    queries: tuple[int, ...], lengths: tuple[int, ...], page: int, heads: tuple[int, int] = (4, 2),
    dtype: torch.dtype = torch.float32, **options: Any,
) -> None:  # fmt: skip
    cache = Cache(lengths, page, heads[1], dtype)
    starts = torch.tensor((0, *queries)).cumsum(0).int()
    query = random(sum(queries), heads[0], 16, dtype=dtype, seed=1)
    got = paged_attention(
        query, cache.keys, cache.values, cache.table, cache.lengths, starts, max_seqlen_q=max(queries), **options
    )
    options.pop("splits", None)
    for sequence, (one, its_query) in enumerate(zip(got.split(queries), query.split(queries), strict=True)):
        assert_close(one.transpose(0, 1), exact(its_query.transpose(0, 1), *cache.of(sequence), **options))


@pytest.mark.parametrize("page", [1, 16, 64])
@pytest.mark.parametrize("splits", [1, 3])
def test_pages(page: int, splits: int) -> None:
    compare_paged((1, 1, 1), (37, 1, 129), page, splits=splits)


def test_prompts_and_single_tokens_in_one_batch() -> None:
    compare_paged((5, 1, 0, 19), (5, 40, 3, 33), 16)


def test_a_prompt_behind_cached_keys() -> None:
    compare_paged((19,), (70,), 16, (6, 2), splits=2)


@pytest.mark.parametrize("options", [{"window": 20}, {"softcap": 2.0}], ids=str)
def test_features_in_pages(options: dict[str, Any]) -> None:
    compare_paged((3, 1), (70, 9), 16, splits=2, **options)


def test_pages_of_16_bit_types() -> None:
    compare_paged((1, 2), (37, 5), 16, dtype=torch.bfloat16)


def test_are_operators_of_torch() -> None:
    query, key = random(2, 2, 1, 16), random(2, 1, 9, 16)
    lengths = torch.tensor([9, 3], dtype=torch.int32)
    tests = ("test_schema", "test_faketensor")
    arguments = (query, key, key, lengths, None, -1, 0.0, 0.25, 0, "ieee")
    torch.library.opcheck(torch.ops.opweld.flash_decode.default, arguments, test_utils=tests)
    cache = Cache((9, 3), 16, 1)
    starts = torch.tensor([0, 1, 2], dtype=torch.int32)
    arguments = (
        query[:, :, 0], cache.keys, cache.values, cache.table, cache.lengths, starts, 1, None, -1, 0.0, 0.25, 0, "ieee",
    )  # fmt: skip
    torch.library.opcheck(torch.ops.opweld.paged_attention.default, arguments, test_utils=tests)


def test_refuses() -> None:
    query, key = torch.zeros(2, 2, 1, 16), torch.zeros(2, 1, 9, 16)
    with pytest.raises(InputError, match="lengths is int64"):
        flash_decode(query, key, key, lengths=torch.tensor([9, 9]))
    with pytest.raises(InputError, match="lengths has shape"):
        flash_decode(query, key, key, lengths=torch.tensor([9], dtype=torch.int32))
    with pytest.raises(InputError, match="window is"):
        flash_decode(query, key, key, window=-1)
    cache = Cache((9, 3), 16, 1)
    starts = torch.tensor([0, 1, 2], dtype=torch.int32)
    rest = (cache.table, cache.lengths, starts)
    with pytest.raises(InputError, match="pages of 12 keys"):
        paged_attention(query[:, :, 0], cache.keys[:, :12], cache.values[:, :12], *rest, max_seqlen_q=1)
    with pytest.raises(InputError, match="block_table is int64"):
        paged_attention(
            query[:, :, 0], cache.keys, cache.values, cache.table.long(), cache.lengths, starts, max_seqlen_q=1
        )
    with pytest.raises(InputError, match="block_table has shape"):
        paged_attention(query[:, :, 0], cache.keys, cache.values, cache.table[:1], *rest[1:], max_seqlen_q=1)

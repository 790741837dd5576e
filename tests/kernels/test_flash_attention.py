"""FlashAttention in Triton's interpreter, forward and backward, beside all scores in float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels import flash_backward_launches, flash_forward
from opweld.kernels.flash_attention import flash_attention, flash_attention_with_lse
from opweld.kernels.flash_problem import Configuration
from tests.kernels.attention_oracle import attention, of_blocks
from tests.kernels.compared import ROUNDING, assert_close, random

# Tiles of 16, the least that products of tiles have, so that short sequences have several.
SMALL = Configuration(16, 16, 4, 2)
DESCRIBED = Configuration(16, 16, 4, 2, descriptors=True)
OVERLAPPED = Configuration(16, 16, 4, 2, overlapped=True)


@pytest.fixture(params=[SMALL], autouse=True)
def configuration(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Configuration]:
    """What all kernels of attention run in."""
    for module in (flash_forward, flash_backward_launches):
        monkeypatch.setattr(module, "configuration", lambda *_: request.param)
    yield request.param


def operands(
    length_q: int, length_k: int, head_dim: int = 16, heads: int = 1, kv_heads: int = 1, batch: int = 1,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Query, key, value."""
    return (
        random(batch, heads, length_q, head_dim, dtype=dtype, seed=1),
        random(batch, kv_heads, length_k, head_dim, dtype=dtype, seed=2),
        random(batch, kv_heads, length_k, head_dim, dtype=dtype, seed=3),
    )


def assert_gradients_close(got: Sequence[Tensor], exact: Sequence[Tensor]) -> None:
    """Within 16 roundings of the largest, or of what is summed up, which is of the scale of one."""
    for one, other in zip(got, exact, strict=True):
        assert one.shape == other.shape
        limit = 16 * ROUNDING[one.dtype] * max(1.0, other.abs().max().item() if other.numel() else 0.0)
        assert bool(((one.double() - other).abs() <= limit).all())


def compare(
    inputs: tuple[Tensor, ...], options: dict[str, Any], oracle: dict[str, Any] | None = None, *, scale: float = 0.1
) -> None:
    """Output, log-sum-exp and gradients of inputs (query, key, value, and the bias if it is one) beside the oracle's,
    which has other options where it says the same in another way. `scale`: of values that cancel in the output."""
    names = ("query", "key", "value", "bias")
    ours = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    theirs = [tensor.detach().double().requires_grad_() for tensor in inputs]
    got, lse = flash_attention_with_lse(**dict(zip(names, ours, strict=False)), **options)
    expected, exact_lse = attention(**dict(zip(names, theirs, strict=False)), **(options if oracle is None else oracle))
    assert_close(got.detach(), expected.detach(), scale=scale)
    finite = torch.isfinite(exact_lse)
    assert torch.equal(torch.isfinite(lse), finite)
    assert bool((lse[~finite] == float("-inf")).all())
    assert_close(lse[finite], exact_lse[finite].detach(), 8.0)
    weights = random(*got.shape, dtype=got.dtype, seed=7)
    gradients = torch.autograd.grad(got, ours, weights)
    exact = torch.autograd.grad(expected, theirs, weights.double())
    assert_gradients_close(gradients, exact)


@pytest.mark.parametrize(("length_q", "length_k"), [(1, 1), (1, 37), (5, 5), (33, 17)])
@pytest.mark.parametrize("causal", [False, True])
def test_lengths(length_q: int, length_k: int, causal: bool) -> None:
    compare(operands(length_q, length_k), {"causal": causal})


def test_longer_than_many_tiles() -> None:
    compare(operands(123, 129, heads=1), {"causal": True})


@pytest.mark.parametrize("configuration", [DESCRIBED], indirect=True)
@pytest.mark.parametrize(("length_q", "length_k"), [(33, 37), (32, 32)])
@pytest.mark.parametrize("causal", [False, True])
def test_descriptors(length_q: int, length_k: int, causal: bool) -> None:
    compare(operands(length_q, length_k, head_dim=24), {"causal": causal})


@pytest.mark.parametrize("configuration", [OVERLAPPED], indirect=True)
@pytest.mark.parametrize(("length_q", "length_k"), [(1, 1), (5, 16), (33, 37), (32, 64), (49, 17), (0, 5)])
@pytest.mark.parametrize("causal", [False, True])
def test_values_weighed_one_tile_later(length_q: int, length_k: int, causal: bool) -> None:
    compare(operands(length_q, length_k, heads=2), {"causal": causal})


@pytest.mark.parametrize("configuration", [OVERLAPPED], indirect=True)
def test_options_do_not_overlap() -> None:
    compare(operands(33, 37), {"window": (9, 3)})
    compare(operands(33, 37), {"softcap": 2.0})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_types(dtype: torch.dtype) -> None:
    compare(operands(17, 21, dtype=dtype), {"causal": True})


@pytest.mark.parametrize("head_dim", [1, 40, 72])
def test_head_sizes_between_powers_of_two(head_dim: int) -> None:
    # Averages of 19 values may all be small where there is one feature; the values are rounded as what they are.
    compare(operands(5, 19, head_dim), {}, scale=0.25)


@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (4, 2), (3, 1)])
def test_shared_heads(heads: int, kv_heads: int) -> None:
    compare(operands(5, 17, heads=heads, kv_heads=kv_heads, batch=2), {"causal": True})


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [(5, 3), (0, 0), (20, None)])
def test_window(window: tuple[int | None, int | None], causal: bool) -> None:
    compare(operands(37, 41), {"window": window, "causal": causal})


def test_queries_that_see_nothing() -> None:
    """Without keys for the first of them, and behind a mask for another: zeros, -inf, and gradients of zero."""
    mask = torch.ones(20, 9, dtype=torch.bool)
    mask[-1] = False
    compare(operands(20, 9), {"causal": True, "mask": mask})


@pytest.mark.parametrize("shape", [(2, 2, 19, 21), (2, 1, 1, 21), (1, 2, 19, 1), (21,)], ids=str)
def test_bias(shape: tuple[int, ...]) -> None:
    compare((*operands(19, 21, heads=2, batch=2), random(*shape, seed=5)), {"causal": True})


def test_bias_of_minus_infinity_is_a_mask() -> None:
    bias = random(19, 21, seed=5)
    bias[:, ::2] = float("-inf")
    bias[3] = float("-inf")
    inputs = operands(19, 21)
    compare(inputs, {"bias": bias}, {"mask": bias > float("-inf"), "bias": bias.clamp_min(-1e6)})


@pytest.mark.parametrize("shape", [(2, 2, 19, 21), (2, 1, 1, 21), (19, 1)], ids=["all", "keys", "queries"])
def test_mask(shape: tuple[int, ...]) -> None:
    compare(operands(19, 21, heads=2, batch=2), {"mask": random(*shape, seed=5) > 0})


@pytest.mark.parametrize("shape", [(2,), (2, 2)])
def test_alibi(shape: tuple[int, ...]) -> None:
    compare(operands(5, 37, heads=2, batch=2), {"alibi_slopes": random(*shape, seed=5).abs(), "causal": True})


def test_soft_cap() -> None:
    compare(operands(19, 21), {"softcap": 2.0})


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("configuration", [Configuration(32, 16, 4, 2), DESCRIBED], indirect=True)
def test_mask_of_blocks(causal: bool) -> None:
    blocks = torch.tensor([[True, False], [False, False], [True, True]])
    options: dict[str, Any] = {"causal": causal}
    inputs = operands(70, 50, heads=1)
    ours = options | {"block_mask": blocks, "block_size": (32, 32)}
    compare(inputs, ours, options | {"mask": of_blocks(blocks, (32, 32), 70, 50)})


def test_all_of_it_at_once() -> None:
    inputs = (*operands(19, 37, heads=2, batch=2), random(1, 2, 19, 37, seed=5))
    options = {"softcap": 2.0, "alibi_slopes": random(2, seed=6).abs(), "mask": random(37, seed=8) > -1}
    compare(inputs, options | {"window": (9, 2), "scale": 0.3})


def packed_options(starts_q: Tensor, starts_k: Tensor) -> dict[str, Any]:
    return {"cu_seqlens_q": starts_q, "cu_seqlens_k": starts_k}


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (3, 1), "softcap": 2.0}], ids=str)
def test_packed_sequences(options: dict[str, Any]) -> None:
    lengths_q, lengths_k = (5, 0, 20, 1), (7, 3, 17, 0)
    starts_q, starts_k = (torch.tensor((0, *lengths)).cumsum(0).int() for lengths in (lengths_q, lengths_k))
    query, key, value = (
        tensor[0].transpose(0, 1).contiguous().requires_grad_()
        for tensor in operands(sum(lengths_q), sum(lengths_k), heads=2)
    )
    got, lse = flash_attention_with_lse(query, key, value, **packed_options(starts_q, starts_k), **options)
    expected, exact_lse = [], []
    exact = [tensor.detach().double().requires_grad_() for tensor in (query, key, value)]
    for (begin, end), (begin_k, end_k) in zip(pairwise(starts_q), pairwise(starts_k), strict=True):
        parts = (exact[0][begin:end], exact[1][begin_k:end_k], exact[2][begin_k:end_k])
        one, its_lse = attention(*(part.transpose(0, 1)[None] for part in parts), **options)
        expected.append(one[0].transpose(0, 1))
        exact_lse.append(its_lse[0])
    joined = torch.cat(expected)
    assert got.shape == query.shape
    assert_close(got.detach(), joined.detach())
    whole = torch.cat(exact_lse, 1)
    assert torch.equal(torch.isfinite(lse), torch.isfinite(whole))
    weights = random(*got.shape, seed=7)
    gradients = torch.autograd.grad(got, (query, key, value), weights)
    assert_gradients_close(gradients, torch.autograd.grad(joined, exact, weights.double()))


def recovered(length_q: int, length_k: int, dropout: float, seed: int) -> Tensor:
    """Dropout's mask, [B, H, Lq, Lk], by a kernel whose values are the identity and whose probabilities are alike."""
    query = torch.zeros(2, 2, length_q, 64)
    key, value = torch.zeros(2, 2, length_k, 64), torch.eye(64)[:length_k].expand(2, 2, -1, -1)
    return flash_attention(query, key, value, dropout=dropout, seed=seed)[..., :length_k] > 0


def test_dropout() -> None:
    inputs = operands(19, 37, head_dim=64, heads=2, batch=2)
    keep = recovered(19, 37, 0.4, 11)
    assert 0.5 < keep.double().mean() < 0.7
    assert not torch.equal(keep[0, 0], keep[0, 1])
    assert not torch.equal(keep[0, 0], keep[1, 0])
    compare(inputs, {"dropout": 0.4, "seed": 11}, {"keep": keep, "dropout": 0.4})


def test_dropout_is_a_function_of_the_seed() -> None:
    first, again, other = (recovered(9, 33, 0.5, seed) for seed in (3, 3, 2**40 + 3))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_dropout_without_a_seed_draws_from_the_generator_of_torch() -> None:
    query, key, value = operands(9, 9)
    results: list[Tensor] = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(flash_attention(query, key, value, dropout=0.5))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_strides() -> None:
    """[B, L, H, D] as [B, H, L, D], every other element of a row, a broadcast batch; a gradient that is broadcast."""
    query = random(2, 19, 3, 32, seed=1).transpose(1, 2)[..., ::2].requires_grad_()
    key = random(1, 1, 21, 16, seed=2).expand(2, 3, -1, -1).requires_grad_()
    value = random(2, 3, 16, 21, seed=3).mT.requires_grad_()
    got = flash_attention(query, key, value)
    expected, _ = attention(query, key, value)
    assert_close(got.detach(), expected.detach())
    gradients = torch.autograd.grad(got.sum(), (query, key, value))
    assert_gradients_close(gradients, torch.autograd.grad(expected.sum(), (query, key, value)))


@pytest.mark.parametrize("shape", [(0, 2, 5, 16), (1, 2, 0, 16), (2, 0, 5, 16)])
def test_empty(shape: tuple[int, ...]) -> None:
    query = torch.zeros(shape, requires_grad=True)
    key = torch.ones(shape[0], max(1, shape[1]), 7, 16, requires_grad=True)
    got = flash_attention(query, key, key)
    assert got.shape == shape
    gradients = torch.autograd.grad(got.sum(), (query, key))
    assert not gradients[1].any()


def test_no_keys_at_all() -> None:
    query, key = torch.ones(1, 1, 5, 16, requires_grad=True), torch.zeros(1, 1, 0, 16)
    got = flash_attention(query, key, key)
    assert not got.any()
    assert not torch.autograd.grad(got.sum(), query)[0].any()


@pytest.mark.filterwarnings("ignore:Input #")
def test_gradcheck() -> None:
    """By differences, where float32 can be differentiated so: gradients that are right in the first digits."""
    inputs = tuple(tensor.requires_grad_() for tensor in operands(2, 3, head_dim=2))
    assert torch.autograd.gradcheck(
        lambda *tensors: flash_attention(*tensors, causal=True), inputs, eps=1e-2, atol=2e-3, rtol=2e-2
    )


def test_saves_nothing_of_the_size_of_scores() -> None:
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    inputs = tuple(tensor.requires_grad_() for tensor in operands(64, 64, heads=1))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        flash_attention(*inputs, dropout=0.5, seed=1, causal=True)
    assert sum(tensor.numel() for tensor in saved) == 4 * 64 * 16 + 64


def test_is_an_operator_of_torch() -> None:
    query, key, value = operands(5, 9)
    arguments = (
        query.requires_grad_(), key.requires_grad_(), value.requires_grad_(), random(1, 1, 5, 9).requires_grad_(),
        None, None, None, [128, 128], None, None, [5, 9], [-1, 0], 0.25, 0.0, 0.0, 0, "ieee",
    )  # fmt: skip
    torch.library.opcheck(
        torch.ops.opweld.flash_attention.default,
        arguments,
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("key is torch.float16", {"key": torch.zeros(1, 1, 3, 16, dtype=torch.float16)}),
    ("query has 3 dimensions", {"query": torch.zeros(2, 3, 16)}),
    ("query is float64", {"query": torch.zeros(1, 2, 3, 16, dtype=torch.float64)}),
    ("value has shape", {"value": torch.zeros(1, 1, 4, 16)}),
    ("key has a head size of 8", {"key": torch.zeros(1, 1, 3, 8), "value": torch.zeros(1, 1, 3, 8)}),
    ("key has a batch of 2", {"key": torch.zeros(2, 1, 3, 16), "value": torch.zeros(2, 1, 3, 16)}),
    ("no multiple of the 3 of key", {"key": torch.zeros(1, 3, 3, 16), "value": torch.zeros(1, 3, 3, 16)}),
    ("scale is -1", {"scale": -1.0}),
    ("softcap is -2", {"softcap": -2.0}),
    ("dropout is 1", {"dropout": 1.0}),
    ("input_precision is 'fast'", {"input_precision": "fast"}),
    (r"window is \(-1, 0\)", {"window": (-1, 0)}),
    ("bias has shape", {"bias": torch.zeros(4, 3)}),
    ("mask is float32", {"mask": torch.zeros(3, 3)}),
    ("alibi_slopes has shape", {"alibi_slopes": torch.zeros(3)}),
    (r"block_size is \(24, 16\)", {"block_mask": torch.ones(1, 1, dtype=torch.bool), "block_size": (24, 16)}),
    ("block_mask has shape", {"block_mask": torch.ones(2, 1, dtype=torch.bool)}),
]


@pytest.mark.parametrize(("message", "changes"), REFUSED, ids=[message for message, _ in REFUSED])
def test_refuses(message: str, changes: dict[str, Any]) -> None:
    arguments: dict[str, Any] = dict(zip(("query", "key", "value"), operands(3, 3), strict=True))
    with pytest.raises(InputError, match=message):
        flash_attention(**(arguments | changes))


def test_refuses_half_of_packed_sequences() -> None:
    query = torch.zeros(3, 2, 16)
    starts = torch.tensor([0, 3], dtype=torch.int32)
    with pytest.raises(InputError, match="cu_seqlens_k is missing"):
        flash_attention(query, query, query, cu_seqlens_q=starts)
    with pytest.raises(InputError, match="bias is given with cu_seqlens_q"):
        flash_attention(query, query, query, **packed_options(starts, starts), bias=torch.zeros(3, 3))
    with pytest.raises(InputError, match="cu_seqlens_k has 3 elements"):
        flash_attention(query, query, query, cu_seqlens_q=starts, cu_seqlens_k=torch.tensor([0, 1, 3]).int())

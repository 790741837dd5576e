"""Layers that PyTorch runs as one operator in eval mode, against that operator."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opweld

pytestmark = pytest.mark.usefixtures("interpreter")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


OPTIONS: dict[str, Any] = {"strict": True, "target": "interpret"}
LATER = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
PADDING = torch.arange(5) >= torch.tensor([[5], [3]])
EACH = normal(2, 4, 5, 5, seed=9) > 0.5
MASKS = {"nothing": (None, None), "later": (LATER, 0), "padding": (PADDING, 1), "each": (EACH, 2)}
EACH_ONCE = list(zip(MASKS, itertools.product([False, True], repeat=2), strict=True))
PACKED = tuple(0.3 * normal(*shape, seed=seed) for seed, shape in enumerate([(48, 16), (48,), (16, 16), (16,)], 1))
NORMS = tuple(normal(16, seed=seed) for seed in range(5, 9))
WIDER = tuple(0.3 * normal(*shape, seed=seed) for seed, shape in enumerate([(32, 16), (32,), (16, 32), (16,)], 10))
X = normal(2, 5, 16)


def _encoder(*options: bool, mask: Tensor | None, kind: int | None) -> Tensor:
    layer = torch.ops.aten._transformer_encoder_layer_fwd.default
    return layer(X, 16, 4, *PACKED, *options, 1e-5, *NORMS, *WIDER, mask, kind)


def _attention(*options: bool, mask: Tensor | None, kind: int | None) -> tuple[Tensor, Tensor | None]:
    return torch.ops.aten._native_multi_head_attention.default(X, X, X, 16, 4, *PACKED, mask, *options, kind)


@pytest.mark.parametrize("layer", [_encoder, _attention])
@pytest.mark.parametrize(("mask", "options"), EACH_ONCE, ids=str)
def test_a_layer(layer: Callable[..., Any], options: tuple[bool, bool], mask: str) -> None:
    """Options: gelu and normalisation first, of an encoder's; weights and their mean over heads, of attention."""
    hidden, kind = MASKS[mask]
    run = torch.compile(layer, backend="opweld", options=OPTIONS)
    with torch.no_grad():
        found, expected = run(*options, mask=hidden, kind=kind), layer(*options, mask=hidden, kind=kind)
    torch.testing.assert_close(found, expected)


def test_a_query_that_sees_no_key_has_nan() -> None:
    hidden = torch.tensor([[False] * 5, [True] * 5])
    run = torch.compile(_attention, backend="opweld", options=OPTIONS)
    with torch.no_grad():
        found, expected = run(True, True, mask=hidden, kind=1), _attention(True, True, mask=hidden, kind=1)
    assert bool(expected[0][1].isnan().all())
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_an_encoder_of_padded_texts_by_both_doors() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    with torch.no_grad():
        expected = module(X, src_key_padding_mask=PADDING)
        found = torch.compile(module, backend="opweld", options=OPTIONS)(X, src_key_padding_mask=PADDING)
        model = opweld.compile(module, {"src": X, "src_key_padding_mask": PADDING}, target="interpret")
    (own,) = model.run({"src": X.numpy(), "src_key_padding_mask": PADDING.numpy()}).values()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.from_numpy(own.copy()), found)

"""flex_attention through both doors, against what eager mode answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention
from torch.utils import _pytree as pytree

import opweld
from tests.pytorch.function import Function

pytestmark = [
    pytest.mark.usefixtures("interpreter", "inference"),
    pytest.mark.filterwarnings("ignore:flex_attention called without"),
]


def operands(length: int = 8, heads: int = 2, size: int = 4) -> tuple[Tensor, ...]:
    return (torch.randn(2, 4, length, size), *(torch.randn(2, heads, length, size) for _ in range(2)))


SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])
DOCUMENTS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
MASK = create_block_mask(lambda b, h, q, k: (q >= k) & (DOCUMENTS[q] == DOCUMENTS[k]), None, None, 8, 8, device="cpu")


def tensors(answer: Any) -> list[Tensor]:
    return [own for own in pytree.tree_leaves(answer) if isinstance(own, Tensor)]


def alibi(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return score - SLOPES[h] * (q - k).abs()


def capped(score: Tensor, *_: Tensor) -> Tensor:
    return 2 * torch.tanh(score / 2)


FORMS: dict[str, dict[str, Any]] = {
    "slopes of heads": {"score_mod": alibi},
    "documents": {"block_mask": MASK, "scale": 0.3},
    "both": {"score_mod": capped, "block_mask": MASK},
    "sums of exponentials": {"score_mod": capped, "return_aux": AuxRequest(lse=True)},
}


@pytest.mark.parametrize("title", FORMS)
def test_functions_of_scores(title: str) -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v, enable_gqa=True, **FORMS[title])  # pyright: ignore[reportDeprecated]

    given = operands()
    right = function(*given)
    model = opweld.compile(Function(function).eval(), given, target="interpret")
    fed = {info.name: x.numpy() for info, x in zip(model.inputs, given, strict=True)}
    for own, answer in zip(model.run(fed).values(), tensors(right), strict=True):
        torch.testing.assert_close(torch.as_tensor(own), answer)
    run = torch.compile(function, backend="opweld", options={"target": "interpret", "strict": True})
    for own, answer in zip(tensors(run(*given)), tensors(right), strict=True):
        torch.testing.assert_close(own, answer)


def test_any_length() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, score_mod=alibi)

    run: Callable[..., Tensor] = torch.compile(
        function, backend="opweld", dynamic=True, options={"target": "interpret", "strict": True}
    )
    for length in (8, 5, 11):
        given = operands(length, heads=4)
        torch.testing.assert_close(run(*given), function(*given))

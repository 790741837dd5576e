"""Operators of OpInfo: none is wrong, and most are wholly inside."""

from __future__ import annotations

import pytest
import torch

from tests.pytorch.opinfo import all_judged, is_nearer, operators

EVERY = 8
"""One in so many is judged here; `python -m tests.pytorch.opinfo` does all of them, in ten minutes."""

INSIDE = 0.65
"""The part of operators of which nothing may stay in eager mode."""


@pytest.mark.models
@pytest.mark.filterwarnings("ignore")  # what PyTorch says of its own samples
@pytest.mark.usefixtures("interpreter")
def test_none_is_wrong_and_most_are_inside() -> None:
    found = list(all_judged(operators()[::EVERY], torch.float32, 2, {"target": "interpret"}))
    bad = [f"{f.name} {f.verdict}: {f.what}" for f in found if f.verdict in ("wrong", "failed")]
    assert not bad, "\n".join(bad)
    assert sum(f.verdict == "inside" for f in found) >= INSIDE * len(found)


def test_rows_of_nothing_do_not_judge_the_others() -> None:
    x = torch.tensor([[-torch.inf, -torch.inf], [0.5, 3.0]], dtype=torch.bfloat16)

    def call(x: torch.Tensor) -> torch.Tensor:
        return x.log_softmax(1)

    right = call(x)
    close = call(x.double()).bfloat16()
    assert is_nearer(close, right, call, (x,))
    assert not is_nearer(right + 0.5, right, call, (x,))
    assert not is_nearer(close.nan_to_num(0.0), right, call, (x,))

"""Attention of PyTorch whose rows are all masked: 0, where others that are no numbers stay so."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import opweld


class Attention(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@pytest.mark.parametrize(("length", "in_columns"), [(40, False), (700, True)])
def test_rows_that_are_all_masked_are_zero(length: int, in_columns: bool) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, length, 32).unbind()
    mask = torch.ones(length, length).tril().bool()
    mask[3] = False
    q[0, 0, 7, 3] = torch.nan
    compiled = opweld.compile(Attention().eval(), (q, k, v, mask))
    feeds = dict(zip(compiled.session.input_names, (t.numpy() for t in (q, k, v, mask)), strict=True))
    (found,) = compiled.run(feeds).values()
    np.testing.assert_allclose(found, Attention()(q, k, v, mask).numpy(), 1e-5, 1e-5)
    assert not found[0, 0, 3].any() and np.isnan(found[0, 0, 7]).all()
    # A row that is long is passed over some columns at a time, with the test of its maximum, too.
    assert ("columns=" in (compiled.path / "schedules.txt").read_text(encoding="utf-8")) is in_columns

"""The loops that `benchmarks.gpu_attention_tune` times beside the shipped one compute the same."""

from __future__ import annotations

import pytest
import torch

from benchmarks.attention_candidates import candidate_launch
from opweld.kernels.flash_problem import Configuration
from tests.kernels.attention_oracle import attention


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(32, 32), (64, 32), (32, 64)])
@pytest.mark.parametrize(
    ("order", "deferred", "factor"),
    [("in order", False, 1), ("in order", True, 2), ("ahead", False, 1), ("behind", False, 1), ("behind", True, 1)],
)
def test_candidates_compute_attention(
    order: str, deferred: bool, factor: int, rows: int, columns: int, causal: bool
) -> None:
    generator = torch.Generator().manual_seed(1)
    # Scores that grow by more than what is deferred, and less.
    query, key, value = (4.0 * torch.randn(1, 2, 128, 64, generator=generator) for _ in range(3))
    output, lse = torch.empty_like(query), torch.empty(1, 2, 128)
    chosen = Configuration(rows, columns, 4, 1, descriptors=True)
    candidate_launch(output, lse, query, key, value, causal, 0.125, chosen, order, deferred, factor).run(query.device)
    expected, expected_lse = attention(query.double(), key.double(), value.double(), causal=causal)
    torch.testing.assert_close(output.double(), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(lse.double(), expected_lse, atol=1e-4, rtol=1e-4)

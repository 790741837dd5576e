"""What tests of PyTorch's door share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def inference() -> Iterator[None]:
    """Nothing compiled before, the same random numbers, no gradients."""
    torch.compiler.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield

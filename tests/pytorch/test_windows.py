"""Sliding windows along axes of which only a run tells the size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import opweld
from tests.pytorch.function import Function

pytestmark = pytest.mark.usefixtures("interpreter", "inference")


def spectrum(x: Tensor) -> Tensor:
    return torch.stft(x, 8, 4, window=torch.hann_window(8), return_complex=True).abs()


@pytest.mark.parametrize("function", [spectrum, lambda x: x.unfold(1, 4, 3), lambda x: x.unfold(-1, 2, 5) + 1])
def test_windows_of_any_length(function: Callable[[Tensor], Tensor]) -> None:
    module = Function(function).eval()
    model = opweld.compile(module, (torch.randn(2, 20),), dynamic_shapes=(({1: "samples"},),), target="interpret")
    for samples in (20, 31, 48):
        x = torch.randn(2, samples)
        torch.testing.assert_close(torch.as_tensor(model.run({"inputs_0": x.numpy()})["output"]), module(x))

"""How many elements are distinct depends on data: through torch.export, and where Dynamo keeps such graphs whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import opweld
from tests.pytorch.function import Function

pytestmark = pytest.mark.usefixtures("interpreter")


def drawn(*shape: int, high: int = 3, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, high, shape)).to(dtype)


def elements(x: torch.Tensor) -> Any:
    return torch.unique(x, return_inverse=True, return_counts=True)


def runs(x: torch.Tensor) -> Any:
    return torch.unique_consecutive(x, return_inverse=True, return_counts=True)


def slices(x: torch.Tensor) -> Any:
    return torch.unique(x, return_inverse=True, return_counts=True, dim=1)


def runs_of_slices(x: torch.Tensor) -> Any:
    return torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=-1)


@pytest.mark.parametrize("function", [elements, runs, slices, runs_of_slices])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.uint8])
def test_distinct_elements_runs_and_slices(function: Any, dtype: torch.dtype) -> None:
    module = Function(function).eval()
    x = drawn(2, 9, dtype=dtype)
    model = opweld.compile(module, (x,), dynamic_shapes=(({0: "m", 1: "n"},),), target="interpret")
    name = model.inputs[0].name
    for fed in (x, drawn(2, 9, high=1, dtype=dtype), drawn(4, 12, dtype=dtype), drawn(3, 5, high=2, dtype=dtype)):
        for own, right in zip(model.run({name: fed.numpy()}).values(), function(fed), strict=True):
            np.testing.assert_array_equal(own, right.numpy())


def test_where_the_tracer_keeps_them_they_are_compiled() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):  # pyright: ignore[reportPrivateUsage]
        run = torch.compile(
            lambda x: torch.unique(x) * 2, backend="opweld", options={"target": "interpret", "strict": True}
        )
        for x in (drawn(7), drawn(11, high=8)):
            np.testing.assert_array_equal(run(x).numpy(), (torch.unique(x) * 2).numpy())


def test_how_often_whole_numbers_are_there() -> None:
    def counted(x: torch.Tensor, weights: torch.Tensor) -> Any:
        return torch.bincount(x), torch.bincount(x, minlength=6), torch.bincount(x, weights)

    shapes = {0: "n"}, {0: "n"}
    x, weights = drawn(9), torch.rand(9)
    model = opweld.compile(Function(counted).eval(), (x, weights), dynamic_shapes=(shapes,), target="interpret")
    names = [info.name for info in model.inputs]
    for fed in (x, drawn(12, high=9)):
        weights = torch.rand(len(fed))
        found = model.run(dict(zip(names, (fed.numpy(), weights.numpy()), strict=True)))
        for own, right in zip(found.values(), counted(fed, weights), strict=True):
            np.testing.assert_allclose(own, right.numpy(), rtol=1e-6)

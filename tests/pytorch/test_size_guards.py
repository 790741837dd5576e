"""Sizes that torch.export has followed a module for: an artifact answers these, and refuses others."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.export import Dim

import opweld
from opweld.errors import AssumptionError

pytestmark = pytest.mark.usefixtures("interpreter")

X = torch.ones(4, 3)


class Branching(torch.nn.Module):
    """Takes one branch for even lengths above 3, at most twice the width of what is nested, else another one."""

    def forward(self, x: Tensor, given: dict[str, list[Tensor]]) -> Tensor:
        size, width = x.shape[0], given["own"][0].shape[1]
        return x + 1 if size > 3 and size % 2 == 0 and size <= 2 * width else x + 2


GIVEN = {"own": [torch.ones(2, 4)]}
SHAPES: Any = {"x": {0: Dim.DYNAMIC}, "given": {"own": [{1: Dim.DYNAMIC}]}}


def reloaded(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    data = io.BytesIO()
    torch.export.save(program, data)
    data.seek(0)
    return torch.export.load(data)


@pytest.mark.parametrize("kept", [lambda program: program, reloaded])
def test_sizes_of_the_branch_that_was_followed_are_answered_and_others_refused(kept: Any) -> None:
    program = torch.export.export(Branching().eval(), (X, GIVEN), dynamic_shapes=SHAPES)
    model = opweld.compile(kept(program))

    def answer(size: int, width: int = 4) -> np.ndarray[Any, Any]:
        return model.run({"x": np.ones((size, 3), np.float32), "given_own_0": np.ones((2, width), np.float32)})[
            "output"
        ]

    for size, width in ((4, 4), (6, 4), (8, 4), (6, 3), (10, 5)):
        np.testing.assert_array_equal(answer(size, width), np.full((size, 3), 2, np.float32))
    for size, width in ((2, 4), (7, 4), (10, 4), (6, 2)):
        with pytest.raises(AssumptionError, match=r"sizes that would fit: .*shape\[\d\]"):
            answer(size, width)


def test_a_batch_of_one_is_not_refused_for_the_tracer_s_sake() -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 2, 2), torch.nn.Flatten(2)).eval()
    model = opweld.compile(module, (torch.ones(4, 3, 8, 8),), dynamic_shapes={"input": {0: "n", 2: "h"}})
    for batch, height in ((1, 2), (1, 8), (3, 6)):
        x = torch.ones(batch, 3, height, 8)
        (found,) = model.run({"input": x.numpy()}).values()
        np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-5, atol=1e-6)


class Unequal(torch.nn.Module):
    """Takes one branch for odd lengths other than 9 and the width, else another one."""

    def forward(self, x: Tensor) -> Tensor:
        size, width = x.shape
        return x + 1 if size % 2 != 0 and size != 9 and size != width else x + 2


def test_what_a_size_is_not_is_asked_too() -> None:
    shapes = {"x": {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}}
    model = opweld.compile(Unequal().eval(), (torch.ones(5, 3),), dynamic_shapes=shapes)
    for shape in ((3, 4), (5, 3), (7, 3), (1, 3)):
        (found,) = model.run({"x": np.ones(shape, np.float32)}).values()
        np.testing.assert_array_equal(found, np.full(shape, 2, np.float32))
    for shape in ((4, 3), (9, 3), (7, 7)):
        with pytest.raises(AssumptionError, match="sizes that would fit"):
            model.run({"x": np.ones(shape, np.float32)})

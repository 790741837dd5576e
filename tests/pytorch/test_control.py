"""Branches and loops that depend on data, where PyTorch traces them whole, through both doors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch._higher_order_ops import while_loop

import opweld
from opweld.errors import UnsupportedError
from tests.pytorch.function import Function

pytestmark = pytest.mark.usefixtures("interpreter")

STRICT: dict[str, Any] = {"target": "interpret", "strict": True}


class Branched(torch.nn.Module):
    """A branch reads parameters, and what its caller has made."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def yes(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.linear(a).sin() + b, a.sum()

        def no(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return a.cos() - 1, b.mean()

        first, second = torch.cond(x.sum() > 0, yes, no, (x, y * 2))
        return first * 2, second


def grown(x: torch.Tensor, y: torch.Tensor) -> Any:
    def goes_on(steps: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        return (steps < 20) & (own.abs().max() < 50)

    return while_loop(goes_on, lambda steps, own: (steps + 1, own * 1.5 + y), (torch.tensor(0), x))


def nested(x: torch.Tensor, y: torch.Tensor) -> Any:
    def step(steps: torch.Tensor, own: torch.Tensor) -> Any:
        return steps + 1, torch.cond(own.sum() > 3, lambda a: a - y, lambda a: a + y, (own,))

    return while_loop(lambda steps, _: steps < 5, step, (torch.tensor(0), x))


MODULES = {"a branch": Branched(), "a loop": Function(grown), "a branch in a loop": Function(nested)}


def feeds() -> list[tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    x, y = torch.rand(3, 4), torch.rand(3, 4)
    return [(x, y), (-x, y), (torch.rand(6, 4), torch.rand(6, 4)), (-torch.rand(2, 4), torch.rand(2, 4))]


@pytest.mark.parametrize("title", MODULES)
def test_the_tracer_keeps_them_whole(title: str) -> None:
    module = MODULES[title].eval()
    with torch.no_grad():
        run = torch.compile(module, backend="opweld", fullgraph=True, options=STRICT)
        for fed in feeds():
            for own, right in zip(run(*fed), module(*fed), strict=True):
                torch.testing.assert_close(own, right)


@pytest.mark.parametrize("title", MODULES)
def test_an_artifact_has_them(title: str) -> None:
    module = MODULES[title].eval()
    shapes = {0: "n"}, {0: "n"}
    dynamic = shapes if title == "a branch" else (shapes,)
    model = opweld.compile(module, feeds()[0], dynamic_shapes=dynamic, target="interpret")
    names = [info.name for info in model.inputs]
    with torch.no_grad():
        for fed in feeds():
            found = model.run(dict(zip(names, (own.numpy() for own in fed), strict=True)))
            for own, right in zip(found.values(), module(*fed), strict=True):
                np.testing.assert_allclose(own, right.numpy(), rtol=1e-5, atol=1e-5)


def test_a_body_is_part_of_what_the_cache_asks_for() -> None:
    x = (torch.tensor([1.0, -2.0]),)
    for factor in (2.0, 3.0):

        def branched(x: torch.Tensor, factor: float = factor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda a: a.clone(), lambda a: a * factor, (x,))

        model = opweld.compile(Function(branched).eval(), x, target="interpret")
        (found,) = model.run({model.inputs[0].name: x[0].numpy()}).values()
        np.testing.assert_array_equal(found, x[0].numpy() * factor)


def test_what_is_asserted_in_a_branch_has_no_place() -> None:
    def branched(x: torch.Tensor) -> torch.Tensor:
        def yes(a: torch.Tensor) -> torch.Tensor:
            torch.ops.aten._assert_async.msg((a > 0).all(), "all are positive")
            return a * 2

        return torch.cond(x.sum() > 0, yes, lambda a: a * 3, (x,))

    with pytest.raises(UnsupportedError, match="assertion in a branch"):
        opweld.compile(Function(branched).eval(), (torch.ones(3),), target="interpret")

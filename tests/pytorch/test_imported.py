"""What names a graph in the cache: its nodes, and the content of all that it stores."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch

from opweld.frontend.torch.exported import exported, imported


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.last = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.nn.functional.gelu(self.first(x)))


NET = Net().eval()


def digest(net: Net) -> str:
    return imported(exported(net, (torch.ones(2, 4),), None)).digest()


def swapped(net: Net) -> None:
    net.first.weight, net.last.weight = net.last.weight, net.first.weight


def one_element(net: Net) -> None:
    net.last.weight[3, 3] += 1e-6


def strides(net: Net) -> None:
    net.first.weight = torch.nn.Parameter(net.first.weight.T.contiguous().T)


@pytest.mark.parametrize(("change", "same"), [(swapped, False), (one_element, False), (strides, True)])
def test_the_content_of_weights_is_part_of_it(change: Callable[[Net], None], same: bool) -> None:
    with torch.no_grad():
        other = copy.deepcopy(NET)
        assert digest(other) == digest(NET)
        change(other)
        assert (digest(other) == digest(NET)) is same

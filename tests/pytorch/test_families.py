"""How models are made small for the families' command."""

from __future__ import annotations

import torch

from tests.pytorch.families.family import shortened


def _sizes(module: torch.nn.Sequential) -> list[tuple[int, int]]:
    return [(own.in_features, own.out_features) for own in module if isinstance(own, torch.nn.Linear)]


def test_the_first_two_of_equal_blocks_are_kept() -> None:
    blocks = [torch.nn.Linear(2, 4), *(torch.nn.Linear(4, 4) for _ in range(5)), torch.nn.Linear(4, 3)]
    first = blocks[1]
    module = shortened(torch.nn.Sequential(*blocks))
    assert isinstance(module, torch.nn.Sequential)
    assert _sizes(module) == [(2, 4), (4, 4), (4, 4), (4, 3)]
    assert module[1] is first
    assert module(torch.ones(2)).shape == (3,)


def test_blocks_that_differ_in_more_than_weights_are_all_kept() -> None:
    module = torch.nn.Sequential(*(torch.nn.Conv1d(2, 2, 3, dilation=d) for d in (1, 2, 4)), torch.nn.ReLU())
    assert len(list(shortened(module).children())) == 4


def test_blocks_within_blocks_are_shortened() -> None:
    inner = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(4))
    outer = torch.nn.ModuleDict({"stage": inner})
    shortened(outer)
    assert len(inner) == 2

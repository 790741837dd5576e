"""How models are made small for the families' command."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from tests.pytorch.families.configurations import small
from tests.pytorch.families.family import shortened


@dataclass
class _Plain:
    attribute_map: ClassVar[dict[str, str]] = {"n_layer": "num_hidden_layers"}
    model_type: ClassVar[str] = "plain"
    hidden_size: int = 4096
    num_hidden_layers: int = 40
    own: int = 7


@dataclass
class _Mixed(_Plain):
    model_type: ClassVar[str] = "mixed"
    layer_types: list[str] = field(default_factory=lambda: [*["sliding"] * 5, "full"] * 4)
    mlp_layer_types: list[str] = field(default_factory=lambda: ["dense"] * 24)
    text_config: Any = None


def test_a_configuration_is_small_by_the_names_that_it_has() -> None:
    assert small(_Plain()) == {"hidden_size": 32, "num_hidden_layers": 1, "n_layer": 1}


def test_a_configuration_has_a_layer_of_each_kind_and_small_ones_within_it() -> None:
    found = small(_Mixed(text_config=_Plain()))
    assert found["layer_types"] == ["sliding", "full"]
    assert found["mlp_layer_types"] == ["dense", "dense"]
    assert found["num_hidden_layers"] == found["n_layer"] == 2
    assert found["text_config"] == {"model_type": "plain", **small(_Plain())}


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

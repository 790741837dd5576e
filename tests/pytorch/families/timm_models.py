"""Of each family of timm its smallest model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from tests.pytorch.families.family import Family, Inputs, pictures, shortened
from tests.pytorch.families.packages import imported

_SIDES = (64, 96, 128)
"""Of pictures, where a model takes others than those that it was made for."""


def families() -> Iterator[Family]:
    """A family is a module of timm.models."""
    package = imported("timm")
    found: dict[str, list[str]] = {}
    for name in package.list_models():
        module = str(package.models.model_entrypoint(name).__module__)
        found.setdefault(module.rpartition(".")[2], []).append(name)
    for family, names in found.items():

        def make(names: Sequence[str] = names) -> tuple[torch.nn.Module, list[Inputs]]:
            name, shape = _smallest(package, names)
            options, shape = _for_small_pictures(package, name, shape)
            return _made(lambda: package.create_model(name, pretrained=False, num_classes=10, **options).eval(), shape)

        yield Family("timm", family, make)


def _made(make: Callable[[], torch.nn.Module], shape: tuple[int, ...]) -> tuple[torch.nn.Module, list[Inputs]]:
    """A model with no more than two equal blocks in a row, where it runs like that, and its inputs."""
    try:
        with torch.device("meta"):
            module = shortened(make())
            module(torch.randn(2, *shape))
    except Exception:  # noqa: BLE001 - one that counts its blocks, or cannot be made without data
        module = make()
    else:
        module = shortened(make())
    return module, pictures(module, shape)


def _smallest(package: Any, names: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    """The model with the least parameters times pixels, and the shape of its picture; the first one, where none can be
    made without data."""
    sized: list[tuple[int, str, tuple[int, ...]]] = []
    for name in names[:40]:
        try:
            with torch.device("meta"):
                model = package.create_model(name, pretrained=False, num_classes=10)
        except Exception:  # noqa: BLE001 - a model that needs what is not installed
            continue
        shape = tuple((getattr(model, "pretrained_cfg", None) or {}).get("input_size", (3, 224, 224)))
        sized.append((sum(p.numel() for p in model.parameters()) * shape[1] * shape[2], name, shape))
    return min(sized)[1:] if sized else (names[0], (3, 224, 224))


def _for_small_pictures(package: Any, name: str, shape: tuple[int, ...]) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Options of a model, and the smallest shape of pictures that it then takes."""
    for side in _SIDES:
        small = (shape[0], side, side)
        for options in ({"img_size": side}, {}):
            try:
                with torch.device("meta"):
                    model = package.create_model(name, pretrained=False, num_classes=10, **options).eval()
                    model(torch.randn(2, *small))
            except Exception:  # noqa: BLE001 - one that has no such option, or takes no such pictures
                continue
            return options, small
    return {}, shape

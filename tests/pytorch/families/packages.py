"""Importing what is built on torchvision, where that was built for another torch and lacks its operators."""

from __future__ import annotations

import importlib
from typing import Any

import torch


def imported(name: str) -> Any:
    """A package, whether torchvision finds its operators or not: classification needs none of them."""
    register = torch.library.register_fake

    def registered(operator: Any, *arguments: Any, **keywords: Any) -> Any:
        if isinstance(operator, str) and operator.startswith("torchvision::"):
            return lambda function: function  # pyright: ignore[reportUnknownLambdaType, reportUnknownVariableType]
        return register(operator, *arguments, **keywords)

    torch.library.register_fake = registered
    try:
        return importlib.import_module(name)
    finally:
        torch.library.register_fake = register

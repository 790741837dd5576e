"""Importing what is built on torchvision, where that was built for another torch and lacks its operators."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

from tests.pytorch.torchvision_operators import define_operators


def imported(name: str) -> Any:
    """A package, whether torchvision finds its operators or not: those that its detectors call are then in Python."""
    with _without_operators():
        package = importlib.import_module(name)
    if name == "torchvision" and not package.extension._has_ops():
        define_operators()
        package.ops.boxes._assert_has_ops = package.ops.roi_align._assert_has_ops = lambda: None
        package.ops.roi_align._has_ops = lambda: True
    return package


@contextmanager
def _without_operators() -> Generator[None]:
    """What torchvision says of the shapes of operators that do not exist is not heard."""
    register = torch.library.register_fake

    def registered(operator: Any, *arguments: Any, **keywords: Any) -> Any:
        if isinstance(operator, str) and operator.startswith("torchvision::"):
            return lambda function: function  # pyright: ignore[reportUnknownLambdaType, reportUnknownVariableType]
        return register(operator, *arguments, **keywords)

    torch.library.register_fake = registered
    try:
        yield
    finally:
        torch.library.register_fake = register

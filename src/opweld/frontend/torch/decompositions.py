"""What PyTorch decomposes before a graph is imported: every operator without a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

import torch

from opweld.frontend.torch.fast_paths import fast_paths
from opweld.frontend.torch.rows import rows


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's own decompositions without those of operators that have a row, and those that it lacks."""
    table = {**cast("Mapping[Any, Callable[..., Any]]", torch.export.default_decompositions()), **fast_paths()}
    return {operator: body for operator, body in table.items() if str(operator) not in rows()}

"""What configurations depend on of the device that a tensor is on."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import torch


@lru_cache
def _properties(index: int | None) -> tuple[int, int]:
    properties: Any = cast(Any, torch.cuda).get_device_properties(index)
    return 10 * properties.major + properties.minor, properties.multi_processor_count


def architecture(device: torch.device) -> int:
    """80 for sm_80, 90 for sm_90; where no GPU can be asked, as in the interpreter, 80: what runs on all."""
    return _properties(device.index)[0] if device.type == "cuda" and torch.cuda.is_available() else 80


def processors(device: torch.device) -> int:
    """Multiprocessors of the device; where no GPU can be asked, as in the interpreter, 2."""
    return _properties(device.index)[1] if device.type == "cuda" and torch.cuda.is_available() else 2

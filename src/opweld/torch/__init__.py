"""PyTorch's door: `torch.compile(module, backend="opweld")`, and what becomes of a module there.

The backend is found by its entry point. Each public name brings in what it needs when it is first used: what was saved
is loaded without the compiler."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opweld.torch.backend import opweld as opweld
    from opweld.torch.explained import TorchExplanation as TorchExplanation
    from opweld.torch.explained import explain as explain
    from opweld.torch.transformers import register_attention as register_attention

_HOMES = {
    "TorchExplanation": "explained",
    "explain": "explained",
    "opweld": "backend",
    "register_attention": "transformers",
}

__all__ = ["TorchExplanation", "explain", "opweld", "register_attention"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

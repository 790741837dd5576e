"""PyTorch's door: `torch.compile(module, backend="opweld")`.

The backend is found by its entry point; importing this package imports PyTorch."""

from opweld.torch.backend import opweld

__all__ = ["opweld"]

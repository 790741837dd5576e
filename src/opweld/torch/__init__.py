"""PyTorch's door: `torch.compile(module, backend="opweld")`, and what becomes of a module there.

The backend is found by its entry point; importing this package imports PyTorch."""

from opweld.torch.backend import opweld
from opweld.torch.explained import TorchExplanation, explain
from opweld.torch.transformers import register_attention

__all__ = ["TorchExplanation", "explain", "opweld", "register_attention"]

"""What a program of PyTorch means in float64: run node by node, with every smaller float widened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from opweld.frontend.torch.dtypes import as_tensor

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def float64_outputs(program: ExportedProgram, feeds: Mapping[str, Any]) -> list[Any]:
    """The flat outputs of a program in float64, for arrays by name of the input."""
    from opweld.frontend.torch.exported import is_value, user_inputs

    signature = program.graph_signature
    stored = {**program.state_dict, **program.constants}
    arguments: list[Any] = []
    own = dict(user_inputs(program))
    for spec in signature.input_specs:
        name = getattr(spec.arg, "name", "")
        if name in own:
            arguments.append(_wide(as_tensor(np.asarray(feeds[own[name]])) if own[name] in feeds else None))
        elif spec.target is not None and spec.target in stored:
            arguments.append(_wide(stored[spec.target]))
        else:
            arguments.append(getattr(spec.arg, "value", None))
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            returned = pytree.tree_leaves(_Widened(program.graph_module).run(*arguments))
            return [value for value in returned if is_value(value)]
    finally:
        torch.set_default_dtype(before)


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to(torch.float64) if value.dtype in _FLOATS else value.detach().clone()
    return torch.float64 if value in _FLOATS else value


class _Widened(fx.Interpreter):
    """Runs a graph; casts to smaller floats, and tensors made of them, are of float64."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A node, with its dtypes widened."""
        args, kwargs = pytree.tree_map(_wide_dtype, (args, kwargs))
        return super().call_function(target, args, kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A stored tensor, widened."""
        return _wide(super().get_attr(target, args, kwargs))


def _wide_dtype(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _FLOATS else value

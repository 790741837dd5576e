"""Triton's interpreter, with what it lacks beside a new NumPy."""

from __future__ import annotations

from typing import Any

from triton import knobs
from triton.runtime import interpreter

INTERPRETED: bool = knobs.runtime.interpret
"""Kernels run in the interpreter, on tensors of the processor: TRITON_INTERPRET was set when Triton was imported."""

_patch_tensors = interpreter._patch_lang_tensor  # pyright: ignore[reportPrivateUsage, reportUnknownVariableType, reportUnknownMemberType]


def _patch_tensors_and_index(tensor: Any, scope: Any) -> None:
    """Scalars are arrays of one element to the interpreter, of which NumPy from 2.4 makes no index: bounds of loops."""
    _patch_tensors(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType]


def mend() -> None:
    """Makes kernels whose loops have bounds known at run time work in the interpreter; twice does no harm."""
    interpreter._patch_lang_tensor = _patch_tensors_and_index  # pyright: ignore[reportPrivateUsage]

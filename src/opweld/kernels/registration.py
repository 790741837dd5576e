"""How functions that launch kernels become operators of PyTorch, and how a kernel is launched from within one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch._library.triton import is_wrap_triton_enabled
from torch._subclasses.fake_tensor import FakeTensor
from torch.library import custom_op, triton_op, wrap_triton  # pyright: ignore[reportUnknownVariableType]

from opweld.kernels import interpreter

if interpreter.INTERPRETED:
    interpreter.mend()


def operator(name: str, *, mutates: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Registers a function as `torch.ops.opweld.<name>`; its annotations are the schema.

    torch.compile sees the launches within. The interpreter's kernels cannot be traced: there the operator is opaque,
    and its shapes are those that the function allocates."""

    def register(function: Callable[..., Any]) -> Any:
        if not interpreter.INTERPRETED:
            return cast(Any, triton_op)(f"opweld::{name}", function, mutates_args=mutates)
        definition = custom_op(f"opweld::{name}", function, mutates_args=mutates)
        definition.register_fake(function)
        return definition

    return register


def is_traced() -> bool:
    """Launches go into a graph, where tensors have no addresses: nothing for tensor descriptors."""
    return not interpreter.INTERPRETED and is_wrap_triton_enabled()


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Launches a kernel on the device of its first tensor; an empty grid launches nothing."""
    if any(size == 0 for size in grid):
        return
    first = next(argument for argument in arguments if isinstance(argument, torch.Tensor))
    if interpreter.INTERPRETED:
        if not isinstance(first, FakeTensor):
            kernel[grid](*arguments, **constants)
        return
    traced = wrap_triton(kernel)
    if traced is not kernel:
        traced[grid](*arguments, **constants)
        return
    with torch.cuda.device(first.device):
        kernel[grid](*arguments, **constants)

"""What becomes of a module at each of PyTorch's doors."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

import opweld
from opweld.errors import OpweldError
from tests.pytorch.families.family import Inputs
from tests.pytorch.opinfo import left_in_eager, said, widened

TOLERANCE = 1e-3
"""Of the largest element. Networks with random weights amplify rounding: where more is missing, float64 judges."""

Verdict = tuple[str, str, str]
"""(door, verdict, what there is to say)."""


def judged(
    module: torch.nn.Module, inputs: Sequence[Inputs], options: dict[str, Any], *, once: bool = False
) -> Iterator[Verdict]:
    """Of each door: *right* where every answer at both shapes is as close to eager mode as float32 lets it be, *in
    part* where nodes stayed in eager mode, *in graphs* where Dynamo made several of the module. once: `torch.compile`
    is told which sizes differ, and need not trace again at the second shape."""
    with torch.no_grad():
        expected = [_tensors(module(**fed)) for fed in inputs]
        if once:
            pytree.tree_map(_mark, inputs[0], inputs[1])
        for door, run in (("torch.compile", _by_torch), ("opweld.compile", _by_opweld)):
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    found, note = run(module, inputs, options)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a defect
                yield door, "failed", said(error)
                continue
            told = left_in_eager(caught)
            worst, close = _worst(module, inputs, found, expected)
            if not close:
                yield door, "wrong", worst
            elif told:
                yield door, "in part", told[0]
            else:
                yield door, "in graphs" if door == "torch.compile" and note else "right", f"{worst} {note}".strip()


def _by_torch(module: torch.nn.Module, inputs: Sequence[Inputs], options: dict[str, Any]) -> Any:
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()  # pyright: ignore[reportPrivateUsage]
    run = torch.compile(module, backend="opweld", options=options)
    found = [_tensors(run(**fed)) for fed in inputs]
    breaks = torch._dynamo.utils.counters["graph_break"]  # pyright: ignore[reportPrivateUsage]
    return found, f"breaks: {' '.join(next(iter(breaks)).split())[:200]}" if breaks else ""


def _by_opweld(module: torch.nn.Module, inputs: Sequence[Inputs], options: dict[str, Any]) -> Any:
    shapes = pytree.tree_map(_dynamic, inputs[0], inputs[1])
    try:
        model = opweld.compile(module, inputs[0], dynamic_shapes=shapes, **options)
        return [_run(model, fed) for fed in inputs], ""
    except OpweldError as error:
        reason = said(error)
    models = (opweld.compile(module, fed, **options) for fed in inputs)
    return [_run(model, fed) for model, fed in zip(models, inputs, strict=True)], f"apart: {reason[:160]}"


def _dynamic(first: Any, second: Any) -> Any:
    """What `dynamic_shapes` says of an argument: the axes whose sizes differ."""
    if not isinstance(first, torch.Tensor):
        return None
    return dict.fromkeys(_differ(first, second), torch.export.Dim.AUTO)


def _mark(first: Any, second: Any) -> None:
    if isinstance(first, torch.Tensor):
        torch._dynamo.maybe_mark_dynamic(first, _differ(first, second))


def _differ(first: torch.Tensor, second: torch.Tensor) -> list[int]:
    return [axis for axis, (a, b) in enumerate(zip(first.shape, second.shape, strict=True)) if a != b]


def _run(model: opweld.Model, fed: Inputs) -> list[torch.Tensor]:
    leaves = [(pytree.keystr(path), leaf) for path, leaf in pytree.tree_flatten_with_path(fed)[0]]
    values = {_plain(path): leaf.numpy() for path, leaf in leaves if isinstance(leaf, torch.Tensor)}
    feeds = {own.name: values[own.name] for own in model.inputs}
    return [torch.from_numpy(np.array(array)) for array in model.run(feeds).values()]


def _plain(path: str) -> str:
    """['images'][0] as torch.export calls it, images_0."""
    return "_".join(part.strip("'") for part in path.strip("[]").split("]["))


def _tensors(found: Any) -> list[torch.Tensor]:
    return [own for own in pytree.tree_leaves(found) if isinstance(own, torch.Tensor)]


def _worst(module: torch.nn.Module, inputs: Any, found: Any, expected: Any) -> tuple[str, bool]:
    """The largest error of an answer, and whether float32 may be as far off."""
    worst, close = 0.0, True
    for fed, own, right in zip(inputs, found, expected, strict=True):
        if len(own) != len(right):
            return f"{len(own)} answers where eager mode has {len(right)}", False
        off = [_error(*pair) for pair in zip(own, right, strict=True)]
        worst = max(worst, *off, 0.0)
        if all(error <= TOLERANCE for error in off):
            continue
        exact = _exact(module, fed)
        if not exact:
            return f"{worst:.1e}", False
        eager = max(_error(*pair) for pair in zip(right, exact, strict=True))
        mine = max(_error(*pair) for pair in zip(own, exact, strict=True))
        close = close and mine <= 4 * eager
        if not close:
            return f"{worst:.1e}; from float64 {mine:.1e}, eager mode {eager:.1e}", False
    return f"{worst:.1e}" + (", as eager mode from float64" if worst > TOLERANCE else ""), close


def _exact(module: torch.nn.Module, fed: Inputs) -> list[torch.Tensor]:
    """The answers in float64; none where the module insists on float32."""
    try:
        return _tensors(copy.deepcopy(module).double()(**pytree.tree_map(widened, fed)))
    except Exception:  # noqa: BLE001 - a module that mixes float32 with its parameters
        return []


def _error(found: torch.Tensor, right: torch.Tensor) -> float:
    """The largest difference, of the largest element; what is infinite or not a number has to be so in both."""
    if found.shape != right.shape or found.is_complex() != right.is_complex():
        return float("inf")
    if right.numel() == 0:
        return 0.0
    mine, other = (own if own.is_complex() else own.double() for own in (found, right))
    known = other.isfinite()
    if not torch.equal(mine.isfinite(), known):
        return float("inf")
    if not bool(known.any()):
        return 0.0
    return float((mine - other)[known].abs().max() / other[known].abs().max().clamp_min(1e-30))

"""PyTorch's own table of operators, OpInfo, through `torch.compile(backend="opweld")`: python -m tests.pytorch.opinfo.

Each operator runs on a few of its sample inputs. What it answers is compared with eager mode by the tolerance of
PyTorch's own tests; beyond it, an answer is right that is no further from float64 than eager mode's, or that names
another place of an equal element. The operator is *inside* where nothing stayed in eager mode, *in part* where some
nodes did and were named, *untraced* where PyTorch's own `aot_eager` fails on it, or answers the same and not what eager
mode does. With the interpreter of tensor programs, which is what a row means; `--native` compiles.
"""

from __future__ import annotations

import argparse
import collections
import json
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

FLOAT32 = (1.3e-5, 3e-5)
"""(rtol, atol): PyTorch's, and as much beyond as another order of a sum makes."""

RANDOM = (
    "empty",
    "new_empty",
    "normal",
    "rand",
    "uniform",
    "cauchy",
    "exponential",
    "geometric",
    "log_normal",
    "multinomial",
)
"""Beginnings of operators whose answer is another one every time, or nobody's."""


@dataclass(frozen=True)
class Found:
    """What became of an operator: inside, in part, untraced, wrong or failed; and why."""

    name: str
    verdict: str
    what: str = ""


def operators() -> list[Any]:
    """The entries of OpInfo that eager mode answers with the same every time."""
    from torch.testing._internal import common_methods_invocations as table

    return [op for op in table.op_db if not op.name.rpartition(".")[2].startswith(RANDOM)]


def title(operator: Any) -> str:
    """The operator's name, with that of the variant."""
    return f"{operator.name}.{operator.variant_test_name}" if operator.variant_test_name else operator.name


def judged(operator: Any, dtype: torch.dtype, samples: int, options: dict[str, Any]) -> Found | None:
    """What became of an operator; None where it has no such dtype."""
    if not operator.supports_dtype(dtype, "cpu"):
        return None
    inputs = list(operator.sample_inputs("cpu", dtype, requires_grad=False))[:40]
    chosen = inputs[:: max(1, len(inputs) // samples)][:samples]
    verdicts = [found for sample in chosen if (found := _sample(operator, sample, dtype, options)) is not None]
    order = ("failed", "wrong", "untraced", "in part", "inside")
    verdict, what = min(verdicts, key=lambda found: order.index(found[0]), default=("inside", "it has no samples"))
    return Found(title(operator), verdict, what)


def _sample(operator: Any, sample: Any, dtype: torch.dtype, options: dict[str, Any]) -> tuple[str, str] | None:
    torch.compiler.reset()
    function = operator.get_op()

    def call(first: Any, args: Any, kwargs: Any) -> Any:
        return function(first, *args, **kwargs)

    given = (sample.input, sample.args, sample.kwargs)
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            right = call(*given)
        except Exception:  # noqa: BLE001 - a sample that eager mode does not take
            return None
        try:
            found = torch.compile(call, backend="opweld", dynamic=False, options=options)(*given)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a defect
            return ("untraced" if _traced(call, given) is None else "failed"), said(error)
        try:
            rtol, atol = FLOAT32 if dtype in (torch.float32, torch.complex64) else (None, None)
            torch.testing.assert_close(found, right, equal_nan=True, rtol=rtol, atol=atol)
        except AssertionError as error:
            if not is_nearer(found, right, call, given) and not _places_equals(found, right, sample.input):
                if _is_same(found, _traced(call, given)):
                    return "untraced", "PyTorch's aot_eager answers the same, eager mode something else"
                return "wrong", " ".join(str(error).split())[:300]
    told = left_in_eager(caught)
    return ("in part", told[0]) if told else ("inside", "")


def _traced(call: Callable[..., Any], given: Any) -> Any:
    """What PyTorch's own backend answers, which traces and runs eager mode; None where it fails."""
    torch.compiler.reset()
    try:
        return torch.compile(call, backend="aot_eager", dynamic=False)(*given)
    except Exception:  # noqa: BLE001 - PyTorch raises what it likes
        return None


def _is_same(found: Any, other: Any) -> bool:
    try:
        torch.testing.assert_close(found, other, equal_nan=True)
    except AssertionError:
        return False
    return True


def is_nearer(found: Any, right: Any, call: Callable[..., Any], given: Any) -> bool:
    """Whether no answer is further from what eager mode makes of the same inputs in float64 than eager mode's own,
    which is off by more than a tolerance where it cancels."""
    try:
        wide = call(*pytree.tree_map(widened, given))
    except Exception:  # noqa: BLE001 - operators that have no float64
        return False
    for own, plain, exact in zip(
        *(map(_real, pytree.tree_leaves(answer)) for answer in (found, right, wide)), strict=True
    ):
        if not all(isinstance(one, torch.Tensor) and one.is_floating_point() for one in (own, plain, exact)):
            if isinstance(own, torch.Tensor) and torch.equal(own, plain):
                continue
            return False
        if own.shape != exact.shape:
            return False
        apart = [(one.double() - exact).abs().nan_to_num(0.0) for one in (own, plain)]
        same = own.isnan() == exact.isnan()
        rounding = max(1e-6, torch.finfo(own.dtype).eps) * exact.abs().nan_to_num(0.0)
        if not bool(((apart[0] <= apart[1] + rounding) & same).all()):
            return False
    return True


def _real(value: Any) -> Any:
    """Complex numbers as pairs of floats; anything else as it is."""
    return torch.view_as_real(value.resolve_conj()) if isinstance(value, torch.Tensor) and value.is_complex() else value


def _places_equals(found: Any, right: Any, source: Any) -> bool:
    """Whether places, alone or after values, are other places of equal elements, of which PyTorch names any."""
    *values, places = pytree.tree_leaves(found)
    *expected, plain = pytree.tree_leaves(right)
    if not all(isinstance(own, torch.Tensor) and own.dtype == torch.int64 for own in (places, plain)):
        return False
    if not isinstance(source, torch.Tensor) or places.shape != plain.shape or len(values) > 1:
        return False
    if not all(torch.equal(*pair) for pair in zip(values, expected, strict=True)):
        return False
    for axis in range(source.dim()):
        mine, other = (own if own.dim() == source.dim() else own.unsqueeze(axis) for own in (places, plain))
        fits = mine.dim() == source.dim() and all(
            a <= b for i, (a, b) in enumerate(zip(mine.shape, source.shape, strict=True)) if i != axis
        )
        bounds = bool((mine >= 0).all()) and bool((mine < source.shape[axis]).all())
        bounds = bounds and bool((other < source.shape[axis]).all())
        if fits and bounds and torch.equal(source.gather(axis, mine), source.gather(axis, other)):
            return True
    return False


def widened(value: Any) -> Any:
    """A tensor of floats in float64, and its dtype; anything else as it is."""
    if isinstance(value, torch.dtype):
        return torch.float64 if value.is_floating_point else torch.complex128 if value.is_complex else value
    if isinstance(value, torch.Tensor) and value.is_complex():
        return value.to(torch.complex128)
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def said(error: Exception) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def left_in_eager(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """What was said of nodes that stay in eager mode."""
    return [text for text in (str(own.message) for own in caught) if text.startswith("opweld leaves")]


def all_judged(
    chosen: Sequence[Any], dtype: torch.dtype, samples: int, options: dict[str, Any], results: Path | None = None
) -> Iterator[Found]:
    """What became of operators, one after the other. results: a file of JSON lines that keeps it; what it has is not
    run again."""
    done: dict[str, Any] = {}
    if results is not None and results.exists():
        done = dict(json.loads(line) for line in results.read_text().splitlines())
    torch._dynamo.config.recompile_limit = 1000  # pyright: ignore[reportPrivateUsage]
    logging.getLogger("torch").setLevel(logging.ERROR)
    for operator in chosen:
        key = f"{dtype} {title(operator)}"
        if key in done:
            found = Found(title(operator), *done[key]) if done[key] else None
        else:
            if results is not None:  # a crash of the process is a finding, which the next line replaces
                _add(results, key, ["failed", "the process ended"])
            found = judged(operator, dtype, samples, options)
            if results is not None:
                _add(results, key, found and [found.verdict, found.what])
        if found is not None:
            yield found


def _add(path: Path, key: str, found: Any) -> None:
    with path.open("a") as file:
        file.write(json.dumps([key, found]) + "\n")


def main() -> int:
    """Prints what is not inside as it comes, then counts; the status is 1 where anything is wrong or failed."""
    from tests.backends.interpret import ENTRY_POINTS
    from tests.unit.packages import installed

    parser = argparse.ArgumentParser(prog="python -m tests.pytorch.opinfo", description=__doc__)
    parser.add_argument("names", nargs="*", help="operators; all where none is named")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samples", type=int, default=4, help="inputs of each operator")
    parser.add_argument("--results", type=Path, help="a file of JSON lines; what it has is not run again")
    parser.add_argument("--native", action="store_true", help="compiled for this processor")
    given = parser.parse_args()
    chosen = [op for op in operators() if not given.names or {op.name, title(op)} & set(given.names)]
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder, installed(Path(folder), ENTRY_POINTS):
        os.environ.setdefault("OPWELD_CACHE", f"{folder}/cache")
        options: dict[str, Any] = {} if given.native else {"target": "interpret"}
        for found in all_judged(chosen, getattr(torch, given.dtype), given.samples, options, given.results):
            counts[found.verdict] += 1
            if found.verdict != "inside":
                print(f"{found.name:40} {found.verdict:8} {found.what}", flush=True)
    print(f"{counts.total()} operators of {given.dtype}:", dict(counts))
    return 1 if counts["wrong"] or counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())

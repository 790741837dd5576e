"""User kernels: functions of other packages, in C or Triton, that a lowering calls for what expressions cannot compute.

Such a function is opaque to opweld. The operators around it are fused as usual; several threads call one of C for
independent rows, and programs of a GPU divide the rows among them as one of Triton says."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from opweld import extensions
from opweld.tensor.dtype import DType
from opweld.tensor.externs import EXTERNS
from opweld.tensor.function import Function, Numbers, TritonKernel
from opweld.tensor.semantics import Array

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def kernel(
    name: str,
    *,
    source: str = "",
    triton: Callable[[Numbers, Any], TritonKernel | None] | None = None,
    parts: Callable[[Numbers], tuple[Any, ...]],
    work: Callable[[Numbers], Any],
    scratch: Callable[[Numbers], tuple[tuple[DType, Any], ...]] = lambda numbers: (),
    tables: int = 0,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers a C function, one of Triton, or both for `Lowering.extern`, with the reference semantics in NumPy: the
    decorated function. Processors take the former. GPUs take the latter; where it has none for the sizes of a call, the
    processor computes the reference in between.

    For each type T of the first operand that a lowering calls it with, `source` defines

        static void NAME_T(const A *operand, ..., B *result, ..., C *scratch, ..., int64_t number, ..., int64_t *error)

    T is f32, f64, i32, i64, b8 and so on; pointers are to the dense elements of a row; `*error = OPW_BAD_INDEX` ends
    the run with an error. Several threads may call it at once. The NumPy function takes the same arguments but scratch
    and error, as flat arrays (of float64 where the model is evaluated in float64), and fills the results.

    Args:
        triton: the function of Triton for the numbers of a call and its rows, which may be symbolic (then
            `number.constant` is None), see `TritonKernel`; or None.
        parts: elements of each operand, then of each result, as functions of the numbers, which may be symbolic.
            work: approximate operations of a row, as a function of the numbers; decides how rows are divided among
                threads.
            scratch: (dtype, elements) of temporary memory of a call, as a function of the numbers.
            tables: how many of the last operands are read as a whole by every row.

    Raises ValueError for a name that is not a C identifier, or that another module has registered."""
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not a name of a C function: use lower-case letters, digits and underscores")
    if not source.strip() and triton is None:
        raise ValueError(f"kernel {name!r} has no source")

    def register(function: Callable[..., None]) -> Callable[..., None]:
        before = _owners.get(name, "opweld" if name in EXTERNS else function.__module__)
        if before != function.__module__:
            raise ValueError(f"kernel {name!r} is registered by {before} and by {function.__module__}")

        def compute(operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
            function(*operands, *results, *numbers)

        _owners[name] = function.__module__
        EXTERNS[name] = Function(parts, work, compute, scratch, tables, source, triton=triton)
        extensions.note(function.__module__, **{name: source})
        return function

    return register


_owners: dict[str, str] = {}

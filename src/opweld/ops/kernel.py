"""Kernels of other packages: C functions that a lowering calls where no expression says what is computed.

opweld does not look into such a function. What is around it is fused as ever, and several threads call it for rows that
do not depend on each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from opweld import extensions
from opweld.tensor.dtype import DType
from opweld.tensor.externs import EXTERNS, Function, Numbers
from opweld.tensor.semantics import Array

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def kernel(
    name: str,
    *,
    source: str,
    parts: Callable[[Numbers], tuple[Any, ...]],
    work: Callable[[Numbers], Any],
    scratch: Callable[[Numbers], tuple[tuple[DType, Any], ...]] = lambda numbers: (),
    tables: int = 0,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers a C function for `Lowering.extern`, with what it means in NumPy: the function that is decorated.

    For each type T of the first operand that a lowering calls it with, `source` defines

        static void NAME_T(const A *operand, ..., B *result, ..., C *scratch, ..., int64_t number, ..., int64_t *error)

    T is f32, f64, i32, i64, b8 and so on; pointers are to the dense elements of a row; `*error = OPW_BAD_INDEX` ends
    the run with an error. Several threads may call it at once. In NumPy it takes the same but scratch and error, as
    flat arrays, of float64 where the model is computed in that, and fills the results.

    Args:
        parts: elements of each operand, then of each result, by the numbers, which may be symbolic.
        work: operations of a row, roughly, by the numbers: with it the kernel is divided among threads.
        scratch: (dtype, elements) of memory that a call needs for itself, by the numbers.
        tables: how many operands, the last ones, every row reads whole.

    Raises ValueError for a name that is none in C, or that another module has registered."""
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no name of a C function: lower-case letters, digits and underscores")
    if not source.strip():
        raise ValueError(f"kernel {name!r} has no source")

    def register(function: Callable[..., None]) -> Callable[..., None]:
        before = _owners.get(name, "opweld" if name in EXTERNS else function.__module__)
        if before != function.__module__:
            raise ValueError(f"kernel {name!r} is that of {before}; {function.__module__} has it too")

        def compute(operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
            function(*operands, *results, *numbers)

        _owners[name] = function.__module__
        EXTERNS[name] = Function(parts, work, compute, scratch, tables, source)
        extensions.note(function.__module__, **{name: source})
        return function

    return register


_owners: dict[str, str] = {}

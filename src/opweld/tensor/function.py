"""What an extern function is: the C behind a name, what it means in NumPy, and the memory and work that it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from opweld.tensor.dtype import DType
from opweld.tensor.semantics import Array

Numbers = Sequence[Any]
"""Integers, or `Dim`s at compile time."""


@dataclass(frozen=True)
class TritonKernel:
    """A function of Triton that computes an extern.

    Attributes:
        text: Python that defines a function of the extern's name, decorated with `triton.jit`; `triton` and
            `triton.language as tl` are imported. It takes pointers to the operands and to the results, which lie dense,
            `error` where `errors` has any, the numbers of the call, and the number of its rows.
        grid: how many programs run, which may depend on sizes: `tl.program_id(0)` numbers them.
        warps: of a program. stages: of its loads.
        errors: messages: `tl.atomic_max(error, n)` ends the run with the n-th, counted from 1.
    """

    text: str
    grid: Any
    warps: int = 4
    stages: int = 2
    errors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Function:
    """The properties of an extern function, as functions of the numbers of a call.

    Attributes:
        parts: elements of each operand, then of each result.
        work: approximate operations.
        compute: fills the flat results from the flat operands.
        scratch: (dtype, elements) of temporary memory of a call.
        tables: the number of last operands that every row reads as a whole; the others are divided among rows.
        shared_results: whether every row is given all of the results, of which it writes a part that no other writes.
        in_place: whether the first result may lie in the memory of the first operand, which it replaces.
        source: C text that defines it, for a function of another package.
        triton: the function of Triton for the numbers of a call and its rows; None where it has none for them.
    """

    parts: Callable[[Numbers], tuple[Any, ...]]
    work: Callable[[Numbers], Any]
    compute: Callable[[Sequence[Array], Sequence[Array], Numbers], None]
    scratch: Callable[[Numbers], tuple[tuple[DType, Any], ...]] = lambda numbers: ()
    tables: int = 0
    source: str = ""
    shared_results: bool = False
    in_place: bool = False
    triton: Callable[[Numbers, Any], TritonKernel | None] | None = None

    def whole(self, operands: int, results: int) -> range:
        """The positions, among operands and then results, of what every row is given as a whole."""
        return range(operands - self.tables, operands + (results if self.shared_results else 0))

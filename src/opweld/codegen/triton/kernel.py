"""A kernel of generated Triton: its text, what it is given, and how it is launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from opweld.codegen.triton.body import INDENT, Operands
from opweld.codegen.triton.operators import MEMORY
from opweld.tensor.cost import Count
from opweld.tensor.dim import Dim
from opweld.tensor.dtype import DType

NAME = "kernel_name"
"""What stands in a text for the name of its kernel: kernels of one text are one kernel."""


@dataclass(frozen=True)
class Launched:
    """How a kernel is launched, as decided for its region.

    Attributes:
        block: elements of a block along each dimension of the template. warps: of a program. stages: of its pipeline.
    """

    block: tuple[int, ...]
    warps: int = 4
    stages: int = 2


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel and its operands.

    Attributes:
        text: a function decorated with `triton.jit`, called `NAME`.
        pointers: (parameter, memory that it points to, type of an element, whether it is written).
        sizes: (parameter, size).
        errors: messages of the run-time errors that it reports, by their number - 1.
        grid: programs along each dimension. launched: warps and stages.
        wide: whether sizes and indices have 64 bits.
        template: which one made it. origin: names of the graph nodes that it computes. count: its operations.
        moved: bytes that it reads and writes; None where that is all of what its pointers point to.
    """

    text: str
    pointers: tuple[tuple[str, str, DType, bool], ...]
    sizes: tuple[tuple[str, Dim], ...]
    errors: tuple[str, ...]
    grid: tuple[Dim, ...]
    launched: Launched
    wide: bool
    template: str
    origin: tuple[str, ...]
    count: Count = field(default_factory=Count)
    moved: tuple[Dim, Dim] | None = None

    @property
    def signature(self) -> dict[str, str]:
        """The type of each parameter, in order."""
        types = {name: "*" + MEMORY[dtype] for name, _, dtype, _ in self.pointers}
        if self.errors:
            types["error"] = "*i32"
        return types | dict.fromkeys((name for name, _ in self.sizes), "i64" if self.wide else "i32")


def kernel_of(
    lines: Sequence[str],
    operands: Operands,
    written: Sequence[str],
    grid: tuple[Dim, ...],
    launched: Launched,
    template: str,
    origin: tuple[str, ...],
    comment: str,
    *,
    moved: tuple[Dim, Dim] | None = None,
) -> Kernel:
    """The kernel of these statements; `comment` becomes its docstring."""
    pointers = tuple((p, name, dtype, name in written) for name, (p, dtype) in operands.pointers.items())
    sizes = tuple((name, atom.dim) for atom, name in operands.symbols.items())
    parameters = [p for p, _, _, _ in pointers]
    parameters += ["error"] if operands.errors else []
    parameters += [name for name, _ in sizes]
    head = ["@triton.jit", f"def {NAME}({', '.join(parameters)}):", f'{INDENT}"""{comment}"""']
    text = "\n".join([*head, *(INDENT + line for line in lines)]) + "\n"
    errors = tuple(operands.errors)
    return Kernel(text, pointers, sizes, errors, grid, launched, operands.wide, template, origin, moved=moved)

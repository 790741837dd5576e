"""Kernels of Triton of other packages: their text, with the name and the parameters that the launch gives it."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping

from opweld.codegen.triton.kernel import NAME, Kernel, Launched
from opweld.errors import ToolchainError
from opweld.place.storage import Storage
from opweld.tensor.dim import as_dim
from opweld.tensor.function import TritonKernel
from opweld.tensor.program import Extern


def own_kernel(made: TritonKernel, extern: Extern, storages: Mapping[str, Storage], wide: bool) -> Kernel:
    """The kernel of an extern that another package wrote.

    Raises ToolchainError where its text does not define the function, or with other parameters."""
    text = textwrap.dedent(made.text).strip() + "\n"
    defined = _defined(extern.function, text)
    results = [result.name for result in extern.results]
    memory = [*extern.operands, *results]
    sizes = [*extern.numbers, as_dim(extern.rows)]
    names = [argument.arg for argument in defined.args.args]
    count = len(memory) + bool(made.errors) + len(sizes)
    if len(names) != count:
        raise ToolchainError(
            f"the kernel {extern.function!r} takes {len(names)} parameters ({', '.join(names)}), expected {count}: "
            f"{len(memory)} pointers, {'error, ' if made.errors else ''}{len(extern.numbers)} numbers, and the rows"
        )
    pointers = tuple(
        (parameter, storages[name].root, storages[name].dtype, name in results)
        for parameter, name in zip(names, memory, strict=False)
    )
    lines = text.splitlines(keepends=True)
    line = lines[defined.lineno - 1]
    lines[defined.lineno - 1] = line.replace(f"def {extern.function}", f"def {NAME}", 1)
    return Kernel(
        "".join(lines),
        pointers,
        tuple(zip(names[count - len(sizes) :], sizes, strict=True)),
        made.errors,
        (as_dim(made.grid),),
        Launched((), made.warps, made.stages),
        wide,
        extern.function,
        extern.origin,
    )


def _defined(name: str, text: str) -> ast.FunctionDef:
    try:
        found = ast.parse(text).body
    except SyntaxError as error:
        raise ToolchainError(f"the kernel {name!r} is no Python: {error}") from error
    for node in found:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    raise ToolchainError(f"the kernel {name!r} has a text that defines no function of this name")

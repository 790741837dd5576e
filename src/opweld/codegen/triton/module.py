"""All kernels of a model as one Python file, each once."""

from __future__ import annotations

from opweld.codegen.triton.kernel import NAME, Kernel

_HEAD = '''"""Kernels that opweld generated. Indices are of elements; a mask says which of a block exist."""

import triton
import triton.language as tl

from opweld.codegen.triton.functions import (
    acos, acosh, asin, asinh, atan, atan2, atanh, cosh, floor_quotient, floor_remainder, fmod, from_float8e4m3,
    from_float8e5m2, log1p, multiplied, narrow_product, pow, power_of_integers, remainder, remainder_of_integers, rint,
    sigmoid, sign, sinh, softplus, tan, tanh, to_float8, truncated_quotient, truncated_remainder,
)
'''  # fmt: skip


class Texts:
    """Kernels by their text: twelve layers of a transformer need one of each."""

    def __init__(self) -> None:
        self.kernels: dict[str, Kernel] = {}
        """The kernels by their name in the file."""
        self._names: dict[tuple[object, ...], str] = {}

    def add(self, kernel: Kernel) -> str:
        """The name of the kernel of this text."""
        key = kernel.text, tuple(kernel.signature.items()), kernel.launched
        found = self._names.get(key)
        if found is None:
            found = self._names[key] = f"{kernel.template}_{len(self.kernels)}"
            self.kernels[found] = kernel
        return found

    def text(self) -> str:
        """The file."""
        parts = [kernel.text.replace(NAME, name) for name, kernel in self.kernels.items()]
        return "\n\n".join([_HEAD, *parts])

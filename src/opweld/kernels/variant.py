"""What it takes to compile a kernel ahead of time, in one of its configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Variant:
    """A kernel with the types of its arguments, the values of its constants, and its configuration.

    Attributes:
        name: what reports call it: the kernel, dtype and shape class.
        kernel: a function of `triton.jit`.
        signature: argument -> type as Triton writes it: "*bf16", "i32", "constexpr", "tensordesc<bf16[128, 64]>".
            A suffix ":16", as in "*bf16:16" and "i32:16", says that the address or number is a multiple of 16, which
            Triton sees for itself when it launches a kernel: without it accesses are not vectorised.
        constants: argument -> value, for each argument that is "constexpr".
        warps: warps of 32 threads of one program.
        stages: stages of the software pipeline of its loops.
    """

    name: str
    kernel: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    warps: int
    stages: int


def variant(
    name: str, kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any], warps: int, stages: int = 3
) -> Variant:
    """The variant of a kernel whose arguments are among those of `types` and `constants`, which may have more."""
    used = {argument: constants[argument] for argument in kernel.arg_names if argument in constants}
    signature = {argument: "constexpr" if argument in used else types[argument] for argument in kernel.arg_names}
    return Variant(name, kernel, signature, used, warps, stages)

"""The parameters of a compiled Triton kernel, in the order in which a launch passes them.

Constants are compiled in and are no parameters. Tensor descriptors are several. Every kernel of Triton 3.6 ends with
two pointers that its function does not name: scratch memory in global memory, and that of Triton's profiler.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from opweld.errors import ToolchainError

CONSTANT: Final = "constexpr"
"""The type of an argument that is compiled in."""

TENSOR_MAP: Final = "tensormap"
"""The type of a parameter that is a `CUtensorMap`, 128 bytes, 64 bytes aligned: what a descriptor is on sm_90."""

GLOBAL_SCRATCH: Final = "global_scratch"
PROFILE_SCRATCH: Final = "profile_scratch"
"""The names of the parameters at the end. May be null where the binary says that it needs no scratch memory."""

_POINTER_BYTES: Final = 8

_BYTES: Final = {
    "i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "u1": 1, "u8": 1, "u16": 2, "u32": 4, "u64": 8,
    "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8, TENSOR_MAP: 128,
}  # fmt: skip

_DESCRIPTOR = re.compile(r"tensordesc<([^\[>]*)\[([^\]]*)\](?:,.*)?>")
_ENTRY = re.compile(r"\.visible\s+\.entry\s+\w+\s*\(([^)]*)\)")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.[usbf](\d+)[^,\[]*(?:\[(\d+)\])?")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a launch.

    Attributes:
        name: the argument of the kernel's function; of a tensor descriptor `a`, what it is passed as: "a",
            "a.shape[0]", "a.stride[0]". The last two are `GLOBAL_SCRATCH` and `PROFILE_SCRATCH`.
        type: as Triton writes it: a pointer begins with "*"; or `TENSOR_MAP`.
    """

    name: str
    type: str

    @property
    def bytes(self) -> int:
        """Size of the value that a launch passes."""
        return _POINTER_BYTES if self.type.startswith("*") else _BYTES[self.type]


def parameters_of(kernel: str, signature: Mapping[str, str], *, maps: bool) -> tuple[Parameter, ...]:
    """The parameters of a kernel whose arguments have these types, in order.

    Args:
        kernel: its name, for errors.
        signature: argument -> type as Triton writes it, in the order of the arguments, `CONSTANT` among them.
        maps: whether descriptors are `CUtensorMap`s, as on sm_90, or a pointer with sizes and strides.

    Raises ToolchainError for a type that cannot be passed.
    """
    found: list[Parameter] = []
    for name, kind in signature.items():
        if kind == CONSTANT:
            continue
        if match := _DESCRIPTOR.fullmatch(kind):
            found += _descriptor(name, match[1], match[2].count(",") + 1, maps)
        elif kind.startswith("*") or kind in _BYTES:
            found.append(Parameter(name, kind))
        else:
            raise ToolchainError(f"the kernel {kernel} cannot be launched: its argument {name} has the type {kind!r}")
    return (*found, Parameter(GLOBAL_SCRATCH, "*i8"), Parameter(PROFILE_SCRATCH, "*i8"))


def check_parameters(kernel: str, parameters: tuple[Parameter, ...], ptx: str) -> None:
    """Compares parameters with those that the PTX text of the kernel declares.

    Raises ToolchainError where they differ: a launch would pass a kernel what it does not take."""
    entry = _ENTRY.search(ptx)
    declared = [] if entry is None else [int(m[1]) // 8 * int(m[2] or 1) for m in _PARAMETER.finditer(entry[1])]
    expected = [parameter.bytes for parameter in parameters]
    if declared != expected:
        raise ToolchainError(
            f"the kernel {kernel} was compiled to take parameters of {declared} bytes, where "
            f"{', '.join(parameter.name for parameter in parameters)} have {expected}: "
            "this version of Triton passes them in another way; install opweld[cuda]"
        )


def _descriptor(name: str, dtype: str, rank: int, maps: bool) -> Iterator[Parameter]:
    """What Triton passes in place of a tensor descriptor: where it is no map, sizes and strides come twice."""
    if maps:
        yield Parameter(name, TENSOR_MAP)
    else:
        yield Parameter(name, f"*{dtype}")
        yield from (Parameter(f"{name}.shape[{axis}]", "i64") for axis in range(rank))
        yield from (Parameter(f"{name}.stride[{axis}]", "i64") for axis in range(rank))
        yield Parameter(f"{name}.padded_with_nan", "i1")
    yield from (Parameter(f"{name}.shape[{axis}]", "i32") for axis in range(rank))
    yield from (Parameter(f"{name}.stride[{axis}]", "i64") for axis in range(rank))

"""The launch of a kernel as a value: it is run, or compiled ahead of time with the types that running it would have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from opweld.kernels.variant import Variant

_TYPES = {
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
}


@dataclass(frozen=True)
class Launch:
    """A kernel and all it is launched with.

    Attributes:
        kernel: a function of `triton.jit` or `gluon.jit`.
        programs: how many run.
        arguments: tensors, descriptors, numbers, None where an operand is absent, and values of constants, by name.
        warps: warps of a program. stages: of its loops' pipelines.
    """

    kernel: Any
    programs: int
    arguments: Mapping[str, Any]
    warps: int
    stages: int

    def run(self, device: torch.device) -> None:
        """Runs it on the device."""
        if self.programs == 0:
            return
        with torch.cuda.device(device if device.type == "cuda" else -1):
            self.kernel[(self.programs,)](**self.arguments, num_warps=self.warps, num_stages=self.stages)

    def compile(self) -> None:
        """Compiles it for the current device into Triton's cache, without running it; tensors may be of the device
        "meta"."""
        self.kernel.warmup(**self.arguments, grid=(1,), num_warps=self.warps, num_stages=self.stages)

    def variant(self, name: str) -> Variant:
        """What compiles it ahead of time; tensors may be of the device "meta"."""
        signature: dict[str, str] = {}
        constants: dict[str, Any] = {}
        for parameter in self.kernel.params:
            value = self.arguments[parameter.name]
            specialized = not parameter.do_not_specialize
            if parameter.is_constexpr or value is None or (specialized and type(value) is int and value == 1):
                signature[parameter.name] = "constexpr"
                constants[parameter.name] = value
            else:
                signature[parameter.name] = _type_of(value, specialized)
        return Variant(name, self.kernel, signature, constants, self.warps, self.stages)


def _type_of(value: Any, specialized: bool) -> str:
    """As Triton sees it at a launch."""
    if isinstance(value, TensorDescriptor):
        return f"tensordesc<{_TYPES[value.base.dtype]}{list(value.block_shape)}>"
    if isinstance(value, GluonDescriptor):
        return f"tensordesc<{_TYPES[value.base.dtype]}{list(value.block_shape)},{value.layout!r}>"
    if isinstance(value, Tensor):
        return f"*{_TYPES[value.dtype]}" + (":16" if value.data_ptr() % 16 == 0 else "")
    if isinstance(value, int):
        return ("i32" if -(2**31) <= value < 2**31 else "i64") + (":16" if specialized and value % 16 == 0 else "")
    return "fp32"

"""Tensors of PyTorch on a GPU through a compiled model: no copy to the host, in the order of PyTorch's stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from opweld.compile import Model
from opweld.errors import InputError
from opweld.runtime.cuda.device import is_interpreted
from opweld.runtime.cuda.opened import Cuda

INTERPRETED = torch.device("cpu")
"""Where tensors are for Triton's interpreter (TRITON_INTERPRET=1)."""


class OnGpu:
    """Calls a model that was compiled for a GPU with CUDA tensors, by position.

    fast = OnGpu(opweld.compile(module, (example,), target="cuda"))
    y, = fast(x)

    Numbers, tensors of the CPU without axes, may be among them. Under TRITON_INTERPRET=1 tensors are those of the CPU.
    """

    def __init__(self, model: Model) -> None:
        """Raises InputError for a model of another target."""
        opened = model.session._opened  # pyright: ignore[reportPrivateUsage]
        if not isinstance(opened, Cuda):
            raise InputError(
                f"the model was compiled for {model.session.manifest.target}; compile it with target='cuda'"
            )
        self.model, self._opened = model, opened
        self._interpreted = is_interpreted()

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The outputs, as new tensors on the GPU of the inputs, the first one where there are none.

        Raises InputError for a tensor elsewhere or of another dtype, RunError for what kernels reported in an earlier
        call."""
        return tuple(self.run(tensors))

    def run(
        self, tensors: Sequence[torch.Tensor | np.ndarray[Any, Any]], device: torch.device | None = None
    ) -> list[torch.Tensor]:
        """The same of tensors and arrays of the host; `device` is that of the outputs, where there are no tensors."""
        infos = self._opened.manifest.inputs
        if len(tensors) != len(infos):
            raise InputError(f"expected {len(infos)} tensors, got {len(tensors)}")
        where = self._device(tensors, device)
        given: list[Any] = []
        for tensor, info in zip(tensors, infos, strict=True):
            if isinstance(tensor, np.ndarray):
                given.append(np.asarray(tensor, info.dtype))
                continue
            is_number = tensor.device.type == "cpu" and not tensor.dim()
            if (tensor.device != where and not is_number) or str(tensor.dtype).removeprefix("torch.") != info.dtype:
                raise InputError(
                    f"input {info.name!r} must be a tensor of {info.dtype} on {where}, but is one of {tensor.dtype} on "
                    f"{tensor.device}"
                )
            given.append(tensor.to(where).contiguous())

        def empty(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
            made: Any = torch.empty(shape, dtype=getattr(torch, dtype), device=where)
            return made

        stream = None if self._interpreted else torch.cuda.current_stream(where).cuda_stream
        return self._opened.run_on_device(given, empty, stream, where.index or 0)

    def _device(self, tensors: Sequence[Any], device: torch.device | None) -> torch.device:
        """The GPU of the first tensor on one."""
        if self._interpreted:
            return INTERPRETED
        found = (t.device for t in tensors if isinstance(t, torch.Tensor) and t.device.type == "cuda")
        return next(found, device or torch.device("cuda", 0))

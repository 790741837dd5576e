"""Tensors of PyTorch on a GPU through a compiled model: no copy to the host, in the order of PyTorch's stream."""

from __future__ import annotations

from typing import Any

import torch

from opweld.compile import Model
from opweld.errors import InputError
from opweld.runtime.cuda.opened import Cuda


class OnGpu:
    """Calls a model that was compiled for a GPU with CUDA tensors, by position.

    fast = OnGpu(opweld.compile(module, (example,), target="cuda"))
    y, = fast(x)
    """

    def __init__(self, model: Model) -> None:
        """Raises InputError for a model of another target."""
        opened = model.session._opened  # pyright: ignore[reportPrivateUsage]
        if not isinstance(opened, Cuda):
            raise InputError(
                f"the model was compiled for {model.session.manifest.target}; compile it with target='cuda'"
            )
        self.model, self._opened = model, opened

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The outputs, as new tensors on the GPU. Raises InputError for a tensor elsewhere or of another dtype."""
        infos = self._opened.manifest.inputs
        if len(tensors) != len(infos):
            raise InputError(f"expected {len(infos)} tensors, got {len(tensors)}")
        dense: list[torch.Tensor] = []
        for tensor, info in zip(tensors, infos, strict=True):
            if tensor.device != torch.device("cuda", 0) or str(tensor.dtype).removeprefix("torch.") != info.dtype:
                raise InputError(
                    f"input {info.name!r} must be a tensor of {info.dtype} on cuda:0, but is one of {tensor.dtype} on "
                    f"{tensor.device}"
                )
            dense.append(tensor.contiguous())

        def empty(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
            made: Any = torch.empty(shape, dtype=getattr(torch, dtype), device="cuda:0")
            return made

        stream = torch.cuda.current_stream(0).cuda_stream
        return tuple(self._opened.run_on_device(dense, empty, stream))

"""How fast a GPU multiplies matrices: cuBLAS, through PyTorch."""

from __future__ import annotations

from typing import Any, Final, cast

import torch

_SIZE: Final = 8192
_SAMPLES: Final = 10
_WARM: Final = 3


def matrix_rates(ordinal: int, size: int = _SIZE) -> dict[str, list[float]]:
    """Samples of operations a second of a product of square matrices, by type: "bf16", "fp16" and "tf32", each with
    sums in float32. Empty where PyTorch sees no such GPU."""
    cuda: Any = cast(Any, torch.cuda)
    if not cuda.is_available() or ordinal >= cuda.device_count():
        return {}
    backend: Any = cast(Any, torch.backends.cuda).matmul
    before, backend.fp32_precision = backend.fp32_precision, "tf32"
    try:
        types = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32}
        with cuda.device(ordinal):
            return {kind: _rates(dtype, size, ordinal) for kind, dtype in types.items()}
    finally:
        backend.fp32_precision = before


def _rates(dtype: torch.dtype, size: int, ordinal: int) -> list[float]:
    cuda: Any = cast(Any, torch.cuda)
    device = torch.device("cuda", ordinal)
    # Numbers of a normal distribution: a GPU draws less power, and so runs faster, on zeros.
    a, b = (torch.randn((size, size), device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(a)
    found: list[float] = []
    for _ in range(_WARM + _SAMPLES):
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record()
        torch.mm(a, b, out=out)
        end.record()
        end.synchronize()
        found.append(2.0 * size**3 / (start.elapsed_time(end) * 1e-3))
    return found[_WARM:]

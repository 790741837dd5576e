# pyright: basic
"""A kernel for `benchmarks.gpu_device`, which checks that what is compiled ahead of time runs through the driver."""

import triton
import triton.language as tl


@triton.jit
def scale_and_shift(x_ptr, y_ptr, factor, shift, n, BLOCK: tl.constexpr):
    """y = factor x + shift."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, x * factor + shift, mask=i < n)

# pyright: basic, reportArgumentType=false
"""Kernels for the tests of what compiles kernels; imported where Triton does not interpret."""

import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, y_ptr, factor, n, half, BLOCK: tl.constexpr, DOUBLE: tl.constexpr):
    """y = x * factor, twice that if DOUBLE."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, x * factor * (2.0 if DOUBLE else 1.0) + half, mask=i < n)


@triton.jit
def product(a_ptr, b_ptr, c_ptr, K, stride_a, stride_b, stride_c, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    """C[M, N] = A[M, K] B[K, N], one block a program."""
    m = tl.program_id(0) * M + tl.arange(0, M)
    n = tl.program_id(1) * N + tl.arange(0, N)
    k = tl.arange(0, BK)
    a = a_ptr + m[:, None] * stride_a + k[None, :]
    b = b_ptr + k[:, None] * stride_b + n[None, :]
    sums = tl.zeros((M, N), tl.float32)
    for _ in range(0, K, BK):
        sums = tl.dot(tl.load(a), tl.load(b), sums)
        a += BK
        b += BK * stride_b
    tl.store(c_ptr + m[:, None] * stride_c + n[None, :], sums.to(tl.bfloat16))


@triton.jit
def copy_described(x, y_ptr, BLOCK: tl.constexpr):
    """A tile of 16 x BLOCK by way of a tensor descriptor of the caller's."""
    tile = x.load([tl.program_id(0) * 16, 0])
    i, j = tl.arange(0, 16), tl.arange(0, BLOCK)
    tl.store(y_ptr + i[:, None] * BLOCK + j[None, :], tile)


@triton.jit
def made_descriptor(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """The same with a descriptor that the kernel makes, in scratch memory on sm_90."""
    x = tl.make_tensor_descriptor(x_ptr, [n, BLOCK], [BLOCK, 1], [16, BLOCK])
    tile = x.load([tl.program_id(0) * 16, 0])
    i, j = tl.arange(0, 16), tl.arange(0, BLOCK)
    tl.store(y_ptr + i[:, None] * BLOCK + j[None, :], tile)


@triton.jit
def wrong(x_ptr, BLOCK: tl.constexpr):
    """Does not compile: the shapes do not fit."""
    tl.store(x_ptr + tl.arange(0, BLOCK), tl.zeros((2 * BLOCK, BLOCK), tl.float32))


PRODUCT = {
    "a_ptr": "*bf16:16", "b_ptr": "*bf16:16", "c_ptr": "*bf16:16",
    "K": "i32:16", "stride_a": "i32:16", "stride_b": "i32:16", "stride_c": "i32:16",
}  # fmt: skip

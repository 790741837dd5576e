# pyright: basic, reportAttributeAccessIssue=false, reportArgumentType=false, reportRedeclaration=false
# pyright: reportOperatorIssue=false
"""Functions that generated Triton calls and its language lacks: those of CUDA's libdevice, and compositions of them.

Triton's interpreter, which tests run kernels in, calls nothing of libdevice: there they are NumPy's. Type checking is
basic because Triton's language has types of its own, which exist only while a kernel is compiled."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl
from triton import knobs

if knobs.runtime.interpret:
    from triton.runtime.interpreter import TensorHandle

    def _by_numpy(function):
        def applied(*operands):
            shaped = [x if isinstance(x, tl.tensor) else tl.full([1], x, tl.float32) for x in operands]
            with np.errstate(all="ignore"):
                found = function(*(x.handle.data for x in shaped))
            first = shaped[0]
            block = first.type if not found.shape else tl.block_type(first.type.scalar, list(found.shape))
            return tl.tensor(TensorHandle(np.asarray(found, first.handle.data.dtype), first.type.scalar), block)

        return applied

    log1p, tanh, tan = _by_numpy(np.log1p), _by_numpy(np.tanh), _by_numpy(np.tan)
    asin, acos, atan = _by_numpy(np.arcsin), _by_numpy(np.arccos), _by_numpy(np.arctan)
    sinh, cosh = _by_numpy(np.sinh), _by_numpy(np.cosh)
    asinh, acosh, atanh = _by_numpy(np.arcsinh), _by_numpy(np.arccosh), _by_numpy(np.arctanh)
    rint, pow, fmod, atan2 = _by_numpy(np.rint), _by_numpy(np.power), _by_numpy(np.fmod), _by_numpy(np.arctan2)

    def narrow_product(a, b, sums):
        """The interpreter has bfloat16 as integers, whose products are others."""
        return tl.dot(a.to(tl.float32), b.to(tl.float32), sums, input_precision="ieee")

else:

    @triton.jit
    def narrow_product(a, b, sums):
        """sums + a @ b of 16-bit floats, in float32."""
        return tl.dot(a, b, sums)

    from triton.language.extra.cuda import libdevice

    acos, acosh, asin, asinh = libdevice.acos, libdevice.acosh, libdevice.asin, libdevice.asinh
    atan, atan2, atanh, cosh = libdevice.atan, libdevice.atan2, libdevice.atanh, libdevice.cosh
    fmod, log1p, pow, rint = libdevice.fmod, libdevice.log1p, libdevice.pow, libdevice.rint
    sinh, tan, tanh = libdevice.sinh, libdevice.tan, libdevice.tanh


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)); exp overflows to infinity, of which the quotient is 0."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def softplus(x):
    """log(1 + exp(x)), without overflow."""
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL) + log1p(tl.exp(-tl.abs(x)))


@triton.jit
def sign(x):
    """-1, 0 or 1; NaN of NaN."""
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, x)).to(x.dtype)


@triton.jit
def remainder(x, y):
    """x - y * floor(x / y) of floats: it has the sign of y."""
    r = fmod(x, y)
    return tl.where((r != 0) & ((r < 0) != (y < 0)), r + y, r)


@triton.jit
def remainder_of_integers(x, y):
    """The remainder that has the sign of y; what y = 0 gives is not defined."""
    y = tl.where(y == 0, 1, y)
    r = x % y
    return tl.where((r != 0) & ((r < 0) != (y < 0)), r + y, r)


@triton.jit
def truncated_remainder(x, y):
    """The remainder that has the sign of x; what y = 0 gives is not defined."""
    return x % tl.where(y == 0, 1, y)


@triton.jit
def truncated_quotient(x, y):
    """x / y towards zero; what y = 0 gives is not defined."""
    return x // tl.where(y == 0, 1, y)


@triton.jit
def floor_quotient(x, y):
    """x / y towards minus infinity, of integers with y > 0."""
    q = x // y
    return tl.where(x - q * y < 0, q - 1, q)


@triton.jit
def floor_remainder(x, y):
    """What floor_quotient leaves: 0 to y - 1."""
    r = x % y
    return tl.where(r < 0, r + y, r)


@triton.jit
def power_of_integers(x, y):
    """x to the y by squaring; of a negative y, 1 / x ** -y towards zero."""
    result = x * 0 + 1
    base = x
    left = tl.where(y < 0, 0, y)
    for _ in range(64):
        result = tl.where((left & 1) != 0, result * base, result)
        base = base * base
        left = left >> 1
    units = tl.where(x == 1, 1, tl.where(x == -1, tl.where((y & 1) == 0, 1, -1), 0))
    return tl.where(y < 0, units, result).to(x.dtype)


@triton.jit
def multiplied(x, y):
    """x * y, as a step of a reduction."""
    return x * y


@triton.jit
def from_float8e4m3(code):
    """The value of a byte with 4 bits of exponent and 3 of mantissa, no infinities: float16 has the same at 2^-8."""
    bits = code.to(tl.int32)
    value = ((bits & 127) << 7).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32) * 256.0
    value = tl.where((bits & 127) == 127, float("nan"), value)
    return tl.where(bits >= 128, -value, value)


@triton.jit
def from_float8e5m2(code):
    """The value of a byte with 5 bits of exponent and 2 of mantissa: float16 without its last eight bits."""
    return (code.to(tl.int32) << 8).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def to_float8(x, MANTISSA: tl.constexpr, BIAS: tl.constexpr, BEYOND: tl.constexpr, NAN: tl.constexpr):
    """The byte nearest to a value of float32, ties to even; BEYOND is the code from the first one that is no number
    on."""
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    dropped: tl.constexpr = 23 - MANTISSA
    rounded = magnitude + ((1 << (dropped - 1)) - 1) + ((magnitude >> dropped) & 1)
    normal = (rounded >> dropped) - ((127 - BIAS) << MANTISSA)
    small = rint(tl.abs(x) * (2.0 ** (BIAS - 1 + MANTISSA))).to(tl.int32)
    least: tl.constexpr = (128 - BIAS) << 23
    code = tl.where(magnitude < least, small, normal)
    code = tl.where(code > BEYOND, BEYOND, code)
    code = tl.where(x != x, NAN, code)
    return (code | tl.where(bits < 0, 128, 0)).to(tl.uint8)

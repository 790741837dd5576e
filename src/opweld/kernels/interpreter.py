"""Triton's interpreter, with what it lacks: bfloat16 that is rounded and computed with as a GPU does, products of TF32,
loops beside a new NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton import knobs
from triton._C.libtriton import ir
from triton.runtime import interpreter

INTERPRETED: bool = knobs.runtime.interpret
"""Kernels run in the interpreter, on tensors of the processor: TRITON_INTERPRET was set when Triton was imported."""

# pyright: reportPrivateUsage=false, reportUnknownVariableType=false, reportUnknownMemberType=false
_patch_tensors: Any = interpreter._patch_lang_tensor
_cast: Any = interpreter.InterpreterBuilder.cast_impl
_dot: Any = interpreter.InterpreterBuilder.create_dot
_binary: Any = interpreter.InterpreterBuilder.binary_op


def _patch_tensors_and_index(tensor: Any, scope: Any) -> None:
    """Scalars are arrays of one element to the interpreter, of which NumPy from 2.4 makes no index: bounds of loops."""
    _patch_tensors(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())  # pyright: ignore[reportUnknownLambdaType]


def _rounding_cast(builder: Any, source: Any, wanted: Any) -> Any:
    """The interpreter cuts float32 to bfloat16: rounded here to the nearest, of two as near to the even one."""
    of, to = source.dtype.scalar, wanted.scalar
    if of == to or tl.bfloat16 not in (of, to) or (of == tl.bfloat16 and to == tl.float32):
        return _cast(builder, source, wanted)
    if tl.float32 not in (of, to):  # by way of it: the interpreter knows no other cast of bfloat16
        return _rounding_cast(builder, _cast(builder, source, tl.float32), wanted)
    bits = np.ascontiguousarray(source.data).view(np.uint32)
    rounded = bits + (0x7FFF + ((bits >> 16) & 1))
    whole = np.where(np.isnan(source.data), bits | 0x400000, rounded)  # a NaN stays one
    return interpreter.TensorHandle((whole >> 16).astype(np.uint16).reshape(source.data.shape), wanted.scalar)


def _widening_dot(builder: Any, a: Any, b: Any, d: Any, *options: Any) -> Any:
    """The interpreter multiplies the bits of bfloat16 as integers: widened here, which is exact. And it multiplies all
    of float32, of which tensor cores read the upper 19 bits where TF32 is asked for."""
    a, b = (_cast(builder, one, tl.float32) if one.dtype.scalar == tl.bfloat16 else one for one in (a, b))
    if a.dtype.scalar == tl.float32 and options[0] == ir.INPUT_PRECISION.TF32:
        a, b = (interpreter.TensorHandle(_upper_bits(one.data), one.dtype) for one in (a, b))
    return _dot(builder, a, b, d, *options)


def _upper_bits(array: Any) -> Any:
    """Numbers of float32 with as many bits as TF32 has."""
    return (np.ascontiguousarray(array).view(np.uint32) & 0xFFFFE000).view(np.float32).reshape(array.shape)


def _widening_binary(builder: Any, left: Any, right: Any, operation: Any) -> Any:
    """The same of sums, products and comparisons: widened, and what is no truth value rounded."""
    if left.dtype.scalar != tl.bfloat16:
        return _binary(builder, left, right, operation)
    result = _binary(builder, *(_cast(builder, one, tl.float32) for one in (left, right)), operation)
    return result if result.data.dtype == np.bool_ else _rounding_cast(builder, result, tl.bfloat16)


def mend() -> None:
    """Makes up for what the interpreter lacks; twice does no harm."""
    interpreter._patch_lang_tensor = _patch_tensors_and_index
    builder: Any = interpreter.InterpreterBuilder
    builder.cast_impl, builder.create_dot, builder.binary_op = _rounding_cast, _widening_dot, _widening_binary

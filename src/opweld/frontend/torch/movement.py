"""Elements moved: views, permutations, parts, concatenations, padding. Views are values, as all else is functional."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from opweld.errors import UnsupportedError
from opweld.frontend.torch.builder import Builder, Scalar, Value, settled
from opweld.frontend.torch.rows import aten
from opweld.tensor.dtype import DType

Size = int | Value
_LAST = 2**63 - 1


@aten("view.default", "reshape.default", "_unsafe_view.default", "_reshape_copy.default", "view_copy.default")
def view(b: Builder, x: Value, size: Sequence[Size]) -> Value:
    """Other sizes; one of them may be -1."""
    known = [own if isinstance(own, int) else settled(own) for own in b.made.shape]
    return b.reshape(x, [told if own is None else own for told, own in zip(size, known, strict=True)])


@aten("view.dtype")
def view_dtype(b: Builder, x: Value, dtype: Any) -> Value:
    """The same bits as elements of another type, the first of several in the lowest bits."""
    own, wanted = b.dtype_of(x), b.dtype
    if DType.BOOL in (own, wanted):
        raise UnsupportedError(f"node {b.name!r}: the bits of truth values are not supported")
    if own.bits == wanted.bits:
        return b.op("BitCast", x, dtype=wanted, to=wanted.onnx)
    bits = b.op("BitCast", x, dtype=_bits(own), to=_bits(own).onnx)
    narrow, count = min(own.bits, wanted.bits), max(own.bits, wanted.bits) // min(own.bits, wanted.bits)
    shifts = b.constant(np.arange(count, dtype=np.uint64) * narrow)
    sizes = b.sizes(x)
    if own.bits < wanted.bits:
        wide = b.reshape(b.cast(bits, DType.U64), [*sizes[:-1], -1, count])
        moved = b.op("BitShift", wide, shifts, direction="LEFT")
        found = b.op("Gather", moved, b.constant(0, DType.I64), axis=-1)
        for place in range(1, count):
            found = b.op("BitwiseOr", found, b.op("Gather", moved, b.constant(place, DType.I64), axis=-1))
    else:
        wide = b.op("Unsqueeze", b.cast(bits, DType.U64), b.constant([-1], DType.I64))
        moved = b.op("BitShift", wide, shifts, direction="RIGHT")
        found = b.reshape(b.op("BitwiseAnd", moved, b.constant(2**narrow - 1, DType.U64)), [*sizes[:-1], -1])
    return b.op("BitCast", b.cast(found, _bits(wanted)), dtype=wanted, to=wanted.onnx)


def _bits(dtype: DType) -> DType:
    return {8: DType.U8, 16: DType.U16, 32: DType.U32, 64: DType.U64}[dtype.bits]


@aten("_local_scalar_dense.default")
def item(b: Builder, x: Value) -> Value:
    """The only element, as a number."""
    return b.reshape(x, [])


@aten("flatten.using_ints")
def flatten(b: Builder, x: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    """Axes joined into one."""
    rank = b.rank(x)
    if not rank:
        return b.reshape(x, [1])
    first, last = b.axis(start_dim, rank), b.axis(end_dim, rank)
    sizes = b.sizes(x)
    return b.reshape(x, [*sizes[:first], -1, *sizes[last + 1 :]]) if first < last else x


@aten("unflatten.int")
def unflatten(b: Builder, x: Value, dim: int, sizes: Sequence[Size]) -> Value:
    """An axis split into several."""
    axis, own = b.axis(dim, b.rank(x)), b.sizes(x)
    return b.reshape(x, [*own[:axis], *sizes, *own[axis + 1 :]])


@aten("permute.default", "permute_copy.default")
def permute(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    """Axes in another order."""
    order = [b.axis(dim, b.rank(x)) for dim in dims]
    return b.op("Transpose", x, perm=order) if order != sorted(order) else x


@aten("transpose.int", "swapaxes.default")
def transpose(b: Builder, x: Value, dim0: int, dim1: int) -> Value:
    """Two axes exchanged."""
    order = list(range(b.rank(x)))
    if order:
        first, second = b.axis(dim0, len(order)), b.axis(dim1, len(order))
        order[first], order[second] = order[second], order[first]
    return permute(b, x, order)


@aten("t.default", "numpy_T.default", "mT.default")
def turned(b: Builder, x: Value) -> Value:
    """The last two axes exchanged."""
    return transpose(b, x, -2, -1) if b.rank(x) > 1 else x


@aten("expand.default", "expand_copy.default")
def expand(b: Builder, x: Value, size: Sequence[Size], implicit: bool = False) -> Value:
    """Broadcast to sizes; -1 leaves one as it is."""
    return b.expanded(x, [1 if isinstance(s, int) and s == -1 else s for s in size])


@aten("expand_as.default")
def expand_as(b: Builder, x: Value, other: Value) -> Value:
    """Broadcast to the sizes of another tensor."""
    return b.op("Expand", x, b.op("Shape", other, dtype=DType.I64))


@aten("unsqueeze.default", "unsqueeze_copy.default")
def unsqueeze(b: Builder, x: Value, dim: int) -> Value:
    """One more axis, of size 1."""
    return b.op("Unsqueeze", x, b.constant([dim % (b.rank(x) + 1)], DType.I64))


@aten("squeeze.default", "squeeze.dim", "squeeze.dims", "squeeze_copy.dims")
def squeeze(b: Builder, x: Value, dim: int | Sequence[int] | None = None) -> Value:
    """Without axes of size 1: all, or those of the given ones."""
    shape = b.shape(x)
    dims = range(len(shape)) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = [axis for axis in sorted({b.axis(d, len(shape)) for d in dims}) if shape and bool(shape[axis] == 1)]
    return b.op("Squeeze", x, b.constant(np.array(axes, np.int64))) if axes else x


@aten("cat.default", "concat.default", "concatenate.default")
def cat(b: Builder, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Joined along an axis; an empty tensor of one axis is none, as PyTorch has it."""
    rank = max(b.rank(tensor) for tensor in tensors)
    own = [b.cast(t, b.dtype) for t in tensors if b.rank(t) == rank]
    return own[0] if len(own) == 1 else b.op("Concat", *own, axis=b.axis(dim, rank))


@aten("stack.default")
def stack(b: Builder, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Joined along a new axis."""
    axis = dim % (b.rank(tensors[0]) + 1)
    place = b.constant([axis], DType.I64)
    return b.op("Concat", *(b.op("Unsqueeze", b.cast(t, b.dtype), place) for t in tensors), axis=axis)


@aten("slice.Tensor", "slice_copy.Tensor")
def slice_(
    b: Builder, x: Value, dim: int = 0, start: Size | None = None, end: Size | None = None, step: int = 1
) -> Value:
    """A part along an axis."""
    if (start is None or start == 0) and (end is None or end == _LAST) and step == 1:
        return x
    parts = ([0 if start is None else start], [_LAST if end is None else end], [b.axis(dim, b.rank(x))], [step])
    return b.op("Slice", x, *(b.ints(part) for part in parts))


@aten("narrow.default", "narrow_copy.default")
def narrow(b: Builder, x: Value, dim: int, start: Size, length: Size) -> Value:
    """A part of a length."""
    if isinstance(start, int) and isinstance(length, int):
        return slice_(b, x, dim, start, start + length if start >= 0 or start + length else _LAST)
    return slice_(b, x, dim, start, b.op("Add", b.cast(start, DType.I64), b.cast(length, DType.I64)))


@aten("select.int", "select_copy.int")
def select(b: Builder, x: Value, dim: int, index: Size) -> Value:
    """One index of an axis, which is gone then."""
    return b.op("Gather", x, b.cast(index, DType.I64), axis=b.axis(dim, b.rank(x)))


@aten("split.Tensor", "split_copy.Tensor", "split.default")
def split(b: Builder, x: Value, split_size: Size, dim: int = 0) -> list[Value]:
    """Parts of a size; the last one is what is left."""
    axis = b.axis(dim, b.rank(x))
    if all(isinstance(made.shape[axis], int) for made in b.made):
        return split_with_sizes(b, x, _sizes_of(b, axis), dim)
    before = [split_size] * (len(b.made) - 1)
    taken = b.op("Mul", b.cast(split_size, DType.I64), b.constant(len(before), DType.I64))
    return split_with_sizes(b, x, [*before, b.op("Sub", b.size(x, axis), taken)], dim)


def _sizes_of(b: Builder, axis: int) -> list[int]:
    """How large the parts that are made are along an axis."""
    sizes = [made.shape[axis] for made in b.made]
    if any(not isinstance(size, int) for size in sizes):
        raise UnsupportedError(f"node {b.name!r}: parts of a symbolic size")
    return sizes


@aten("chunk.default", "tensor_split.sections")
def chunk(b: Builder, x: Value, chunks: int, dim: int = 0) -> list[Value]:
    """A number of parts."""
    return split(b, x, 0, dim)


@aten("split_with_sizes.default", "split_with_sizes_copy.default")
def split_with_sizes(b: Builder, x: Value, split_sizes: Sequence[Size], dim: int = 0) -> list[Value]:
    """Parts of given sizes."""
    return b.ops("Split", x, b.ints(split_sizes), dtypes=[None] * len(split_sizes), axis=b.axis(dim, b.rank(x)))


@aten("unbind.int", "unbind_copy.int")
def unbind(b: Builder, x: Value, dim: int = 0) -> list[Value]:
    """Each index of an axis."""
    return [select(b, x, dim, index) for index in range(len(b.made))]


@aten("flip.default")
def flip(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    """Axes from the end to the front."""
    axes = [b.axis(dim, b.rank(x)) for dim in dims]
    if not axes or not b.rank(x):
        return x
    ends = b.constant(np.full(len(axes), -_LAST, np.int64))
    starts, steps = b.constant(np.full(len(axes), -1, np.int64)), b.constant(np.full(len(axes), -1, np.int64))
    return b.op("Slice", x, starts, ends, b.ints(axes), steps)


@aten("roll.default")
def roll(b: Builder, x: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    """Elements moved along axes; those that leave come in at the other end."""
    if not dims:
        sizes = b.made.shape
        known = math.prod(sizes) if all(isinstance(size, int) for size in sizes) else None
        return b.reshape(_roll(b, b.reshape(x, [-1]), b.static(shifts[0], "a shift"), 0, known), b.sizes(x))
    for shift, dim in zip(shifts, dims, strict=True):
        axis = b.axis(dim, len(b.made.shape))
        x = _roll(b, x, b.static(shift, "a shift"), axis, b.made.shape[axis])
    return x


def _roll(b: Builder, x: Value, shift: int, axis: int, known: Any) -> Value:
    """Two parts exchanged; of a size that is not known by indices modulo the size, as a shift may be more than that."""
    if isinstance(known, int):
        cut = -shift % known if known else 0
        bounds = ((cut, known), (0, cut))
        axes = b.constant([axis], DType.I64)
        parts = [b.op("Slice", x, b.constant([a], DType.I64), b.constant([e], DType.I64), axes) for a, e in bounds]
        return b.op("Concat", *parts, axis=axis) if cut else x
    size = b.op("Squeeze", b.op("Shape", x, dtype=DType.I64, start=axis, end=axis + 1), b.constant([0], DType.I64))
    places = b.op("Range", b.constant(0, DType.I64), size, b.constant(1, DType.I64))
    shifted = b.op("Mod", b.op("Sub", places, b.constant(shift, DType.I64)), size)
    return b.op("Gather", x, shifted, axis=axis)


@aten("repeat.default")
def repeat(b: Builder, x: Value, repeats: Sequence[Size]) -> Value:
    """Copies along each axis."""
    missing = len(repeats) - b.rank(x)
    x = b.reshape(x, [1] * missing + b.sizes(x)) if missing else x
    return b.op("Tile", x, b.ints(repeats))


@aten("repeat_interleave.self_int")
def repeat_interleave(b: Builder, x: Value, repeats: Size, dim: int | None = None, **_: Any) -> Value:
    """Each element, or each index of an axis, several times in a row."""
    if dim is None:
        x, sizes, axis = b.reshape(x, [-1]), [-1], 0
    else:
        axis = b.axis(dim, b.rank(x))
        sizes = b.sizes(x)
        sizes[axis] = -1
    wide = b.op("Unsqueeze", x, b.constant([axis + 1], DType.I64))
    ones: list[Size] = [1] * (len(sizes) + 1)
    ones[axis + 1] = repeats
    return b.reshape(b.op("Tile", wide, b.ints(ones)), sizes)


@aten("constant_pad_nd.default")
def constant_pad(b: Builder, x: Value, pad: Sequence[Size], value: Scalar = 0) -> Value:
    """A number around the last axes; less than nothing cuts off."""
    return _pad(b, x, pad, "constant", b.cast(value, b.dtype))


def _pad(b: Builder, x: Value, pad: Sequence[Size], mode: str, value: Value | None = None) -> Value:
    rank = b.rank(x)
    if mode != "constant":
        for number, own in enumerate(pad):  # what is less than nothing is cut off before edges are looked at
            if isinstance(own, int) and own < 0:
                start, end = (-own, _LAST) if number % 2 == 0 else (0, own)
                axis = rank - 1 - number // 2
                x = b.op("Slice", x, *(b.ints([part]) for part in (start, end, axis, 1)))
        pad = [max(own, 0) if isinstance(own, int) else own for own in pad]
    before: list[Size] = [0] * rank
    after: list[Size] = [0] * rank
    for number in range(len(pad) // 2):
        before[rank - 1 - number], after[rank - 1 - number] = pad[2 * number], pad[2 * number + 1]
    if b.dtype is DType.BOOL:
        wide = b.op("Pad", b.cast(x, DType.U8), b.ints([*before, *after]), value and b.cast(value, DType.U8), mode=mode)
        return b.cast(wide, DType.BOOL)
    return b.op("Pad", x, b.ints([*before, *after]), value, mode=mode)


@aten(*(f"reflection_pad{n}d.default" for n in (1, 2, 3)))
def reflection_pad(b: Builder, x: Value, padding: Sequence[Size]) -> Value:
    """What lies before an edge, mirrored, beyond it."""
    return _pad(b, x, padding, "reflect")


@aten(*(f"replication_pad{n}d.default" for n in (1, 2, 3)))
def replication_pad(b: Builder, x: Value, padding: Sequence[Size]) -> Value:
    """The elements at an edge beyond it."""
    return _pad(b, x, padding, "edge")


@aten("pixel_shuffle.default")
def pixel_shuffle(b: Builder, x: Value, upscale_factor: int) -> Value:
    """Channels to places in a block of pixels."""
    return _pixels(b, "DepthToSpace", x, blocksize=upscale_factor, mode="CRD")


def _pixels(b: Builder, op_type: str, x: Value, **attributes: Any) -> Value:
    sizes = b.sizes(x)
    if len(sizes) == 4:
        return b.op(op_type, x, **attributes)
    raise UnsupportedError(f"node {b.name!r}: pixels of rank {len(sizes)}; expected 4")


@aten("tril.default")
def tril(b: Builder, x: Value, diagonal: int = 0) -> Value:
    """The lower triangle, zero elsewhere."""
    return b.op("Trilu", x, b.constant(diagonal, DType.I64), upper=0)


@aten("triu.default")
def triu(b: Builder, x: Value, diagonal: int = 0) -> Value:
    """The upper triangle, zero elsewhere."""
    return b.op("Trilu", x, b.constant(diagonal, DType.I64), upper=1)


@aten("diagonal.default", "diagonal_copy.default")
def diagonal(b: Builder, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """The diagonal of two axes, as a last axis."""
    rank = b.rank(x)
    first, second = b.axis(dim1, rank), b.axis(dim2, rank)
    rest = [axis for axis in range(rank) if axis not in (first, second)]
    turned = b.op("Transpose", x, perm=[first, second, *rest])
    count = b.made.shape[-1]
    if isinstance(count, int):
        places = np.arange(count)[:, None] + np.array([max(0, -offset), max(0, offset)])
        found = b.op("GatherND", turned, b.constant(places.astype(np.int64)))
    else:
        raise UnsupportedError(f"node {b.name!r}: a diagonal of symbolic size")
    return b.op("Transpose", found, perm=[*range(1, len(rest) + 1), 0])


@aten("as_strided.default")
def as_strided(
    b: Builder, x: Value, size: Sequence[Size], stride: Sequence[Size], storage_offset: Size | None = None
) -> Value:
    """Elements of x's memory, as it lies, at places that strides tell."""
    base = b.bases.get(x, x)
    if _are_same_elements(b.known[base], b.made):
        found = b.reshape(base, size)
    else:
        found = as_strided_copy(b, x, size, stride, storage_offset)
    b.bases[found] = base
    return found


@aten("as_strided_copy.default")
def as_strided_copy(
    b: Builder, x: Value, size: Sequence[Size], stride: Sequence[Size], storage_offset: Size | None = None
) -> Value:
    """The same in memory of its own."""
    base = b.bases.get(x, x)
    places = _strided_places(b, base, size, stride, b.known[x].storage_offset(), storage_offset)
    return b.op("Gather", _memory(b, base), places, axis=0)


@aten("as_strided_scatter.default")
def as_strided_scatter(
    b: Builder, x: Value, src: Value, size: Sequence[Size], stride: Sequence[Size], storage_offset: Size | None = None
) -> Value:
    """x with the same elements of its memory replaced."""
    places = _strided_places(b, x, size, stride, b.known[x].storage_offset(), storage_offset)
    part = b.reshape(b.cast(src, b.dtype), [-1])
    found = b.op("ScatterElements", _memory(b, x), b.reshape(places, [-1]), part, axis=0)
    order = _memory_order(b, x)
    sizes = b.sizes(x)
    found = b.reshape(found, [sizes[axis] for axis in order])
    return b.op("Transpose", found, perm=[order.index(axis) for axis in range(len(order))])


@aten("sym_stride.int")
def stride_along(b: Builder, x: Value, dim: int) -> Value:
    """How far apart in memory neighbours along an axis are."""
    axis = b.axis(dim, b.rank(x))
    step = b.known[x].stride()[axis]
    if isinstance(step, int):
        return b.constant(step, DType.I64)
    order = _memory_order(b, x)
    after = order[order.index(axis) + 1 :]
    if not _is_certain(step == math.prod(b.shape(x)[own] for own in after)):
        raise UnsupportedError(f"node {b.name!r}: the stride of an axis of a single element")
    return b.op("ReduceProd", b.ints([b.sizes(x)[own] for own in after]), keepdims=0, dtype=DType.I64)


@aten("sym_storage_offset.default")
def storage_offset(b: Builder, x: Value) -> Value:
    """Where a tensor begins in its storage."""
    return b.constant(b.static(b.known[x].storage_offset(), "an offset"), DType.I64)


def _is_certain(condition: Any) -> bool:
    """Whether a condition of symbolic sizes holds for all of them that a program is called with."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)


def _are_same_elements(one: Any, other: Any) -> bool:
    """Whether two tensors over one memory hold all of the same elements in row-major order, for any symbolic sizes: a
    mean over pictures whose channels are innermost in memory says its strides so."""
    if not _is_certain(one.numel() == other.numel()) or not _is_certain(one.storage_offset() == other.storage_offset()):
        return False
    for tensor in (one, other):
        expected = 1
        for size, step in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
            if not _is_certain(size == 1) and not _is_certain(step == expected):
                return False
            expected *= size
    return True


def _memory_order(b: Builder, x: Value) -> list[int]:
    """The axes of a tensor from the one with the largest stride on. Each place of its memory, from the first on, has to
    hold one of its elements, for any symbolic sizes: UnsupportedError where that is not certain."""
    sizes, strides = b.known[x].shape, b.known[x].stride()
    expected: Any = 1
    order: list[int] = []
    left = list(range(len(sizes)))
    while left:
        one = (axis for axis in reversed(left) if _is_certain(sizes[axis] == 1))
        fits = (axis for axis in reversed(left) if _is_certain(strides[axis] == expected))
        axis = next(one, next(fits, None))
        if axis is None:
            raise UnsupportedError(f"node {b.name!r}: strides over memory with holes")
        left.remove(axis)
        order.insert(0, axis)
        expected *= sizes[axis]
    return order


def _memory(b: Builder, x: Value) -> Value:
    """The elements of a tensor in the order in which they lie."""
    order = _memory_order(b, x)
    return b.reshape(x if order == sorted(order) else b.op("Transpose", x, perm=order), [-1])


def _strided_places(
    b: Builder,
    x: Value,
    size: Sequence[Size],
    stride: Sequence[Size],
    own_offset: Any,
    storage_offset: Size | None,
) -> Value:
    """Places in the memory of x, an integer for each element. Offsets are counted from where its storage begins, which
    need not be where x does. Those that symbolic sizes and strides tell are computed. What may be beyond x is checked
    where it is read."""
    first = b.static(b.known[x].storage_offset(), "an offset")
    given = b.static(own_offset if storage_offset is None else storage_offset, "an offset") - first
    if any(isinstance(own, Value) for own in (*size, *stride)):
        return _computed_places(b, size, stride, given)
    sizes, steps = [b.static(own, "a size") for own in size], [b.static(own, "a stride") for own in stride]
    places = np.full((1,) * len(sizes), given, np.int64)
    for axis, (own, step) in enumerate(zip(sizes, steps, strict=True)):
        places = places + (np.arange(own) * step).reshape(_along(axis, own, len(sizes)))
    count: Any = math.prod(b.known[x].shape)
    if places.size and (places.min() < 0 or (isinstance(count, int) and places.max() >= count)):
        raise UnsupportedError(f"node {b.name!r}: strides beyond the tensor")
    return b.constant(places.reshape(sizes))


def _computed_places(b: Builder, size: Sequence[Size], stride: Sequence[Size], offset: int) -> Value:
    """The offset and, of each axis, the index times its stride."""
    zero, one = b.constant(0, DType.I64), b.constant(1, DType.I64)
    places = b.constant(offset, DType.I64)
    for axis, (own, step) in enumerate(zip(size, stride, strict=True)):
        index = b.op("Range", zero, b.cast(own, DType.I64), one, dtype=DType.I64)
        part = b.op("Mul", index, b.cast(step, DType.I64), dtype=DType.I64)
        places = b.op("Add", places, b.reshape(part, _along(axis, -1, len(size))), dtype=DType.I64)
    return places


def _along(axis: int, size: int, rank: int) -> list[int]:
    """Sizes of 1 but for that of an axis."""
    return [size if own == axis else 1 for own in range(rank)]

"""The template of contractions: blocks of results by tensor cores, [M, K] times [K, N], an operand gathered from
wherever its elements lie.

M are the axes that only the one factor has, N those of the other, and those of both are a batch. Each is one number
that counts several axes, so that a convolution is a product whose K counts channels and taps. What the factors compute
of what they load comes before the product (a prologue), and what is done with the result after it (an epilogue)."""

from __future__ import annotations

from dataclasses import dataclass

from opweld.codegen.triton.body import INDENT, Block, Body, Operands, counted, mask_of
from opweld.codegen.triton.elementwise import converted
from opweld.codegen.triton.kernel import Kernel, Launched, kernel_of
from opweld.codegen.triton.operators import HALVES, rounded, stored
from opweld.fuse.region import axes_in, factors, reductions, uncast
from opweld.tensor.axes import by_stride
from opweld.tensor.dim import Axis, Dim, ceildiv, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Cast, Expr, Load, Reduce
from opweld.tile.nest import Nest

GROUP = 8
"""Rows of blocks that are computed together, so that what they read of the other operand stays in the cache."""


@dataclass(frozen=True, eq=False)
class Product:
    """A contraction as a product of matrices.

    Attributes:
        batch, m, n, k: the axes that each counts, the last one fastest.
        a, b: the factors, of [M, K] and [K, N]. summed: the reduction.
        operand: the type that the tensor cores multiply.
    """

    batch: tuple[Axis, ...]
    m: tuple[Axis, ...]
    n: tuple[Axis, ...]
    k: tuple[Axis, ...]
    a: Expr
    b: Expr
    summed: Reduce
    operand: DType

    @property
    def sizes(self) -> tuple[Dim, Dim, Dim, Dim]:
        """Batch, M, N, K."""
        batch, m, n, k = (product(axis.extent for axis in axes) for axes in (self.batch, self.m, self.n, self.k))
        return batch, m, n, k


def product_of(nest: Nest) -> Product | None:
    """The product that a nest computes; None where tensor cores have no instruction for its types."""
    found = reductions(nest.body)
    pair = factors(found[0]) if len(found) == 1 else None
    if pair is None:
        return None
    (summed,) = found
    assert isinstance(summed.body, Binary)
    operand = operand_type(summed)
    if operand is None:
        return None
    a, b, (left, right) = summed.body.x, summed.body.y, pair
    first, second = axes_in(left), axes_in(right)
    own = by_stride(nest.axes, nest.store)
    if own and own[-1] in first and own[-1] not in second:
        a, b, left, right, first, second = b, a, right, left, second, first
    m = tuple(axis for axis in own if axis in first and axis not in second)
    n = tuple(axis for axis in own if axis in second and axis not in first)
    batch = tuple(axis for axis in own if axis not in m and axis not in n)
    k = by_stride(summed.axes, left.indices[0]) if left.indices else summed.axes
    if operand in (*HALVES, DType.I8) and all(isinstance(x, Cast) for x in (a, b)):
        a, b = (x.x for x in (a, b) if isinstance(x, Cast))
    return Product(batch, m, n, tuple(k), a, b, summed, operand)


def operand_type(summed: Reduce) -> DType | None:
    """What tensor cores multiply: what both factors were cast from, or the type of the sum."""
    assert isinstance(summed.body, Binary)
    narrow = {x.x.dtype if isinstance(x, Cast) else None for x in (summed.body.x, summed.body.y)}
    if summed.dtype is DType.F32 and len(narrow) == 1 and narrow <= {DType.F16, DType.BF16}:
        return next(iter(narrow))
    if summed.dtype in (DType.F32, *HALVES):
        return summed.dtype
    if summed.dtype is DType.I32 and narrow == {DType.I8}:
        return DType.I8
    return None


def contraction(
    nest: Nest,
    shape: Product,
    buffer: str,
    dtype: DType,
    launched: Launched,
    precision: str,
    wide: bool,
    origin: tuple[str, ...],
) -> Kernel:
    """A kernel of blocks of `launched.block` = (M, N, K at a time). `precision` of products of float32: "ieee" or
    "tf32"."""
    return _Contraction(nest, shape, buffer, dtype, launched, precision, wide).kernel(origin)


class _Contraction:
    def __init__(
        self, nest: Nest, shape: Product, buffer: str, dtype: DType, launched: Launched, precision: str, wide: bool
    ) -> None:
        self._nest, self._shape, self._buffer, self._dtype = nest, shape, buffer, dtype
        self._launched, self._precision, self._wide = launched, precision, wide
        self._operands = Operands(wide)
        self._plain = Body(self._operands, {}, "[]")
        self._lines: list[str] = []

    def kernel(self, origin: tuple[str, ...]) -> Kernel:
        """The kernel."""
        shape, (bm, bn, bk) = self._shape, self._launched.block
        batch, m, n, k = shape.sizes
        blocks_m, blocks_n = ceildiv(m, bm), ceildiv(n, bn)
        self._programs(blocks_m, blocks_n, bm, bn)
        rows = counted(
            shape.m,
            "m",
            self._lines,
            self._plain,
            prefix="m",
            dimension=0,
            mask=mask_of("m", m, bm, self._lines, self._plain),
        )
        columns = counted(
            shape.n,
            "n",
            self._lines,
            self._plain,
            prefix="n",
            dimension=1,
            mask=mask_of("n", n, bn, self._lines, self._plain),
        )
        outer = counted(shape.batch, "batch", self._lines, self._plain, prefix="batch")
        a = Body(self._operands, {**outer, **rows}, f"[{bm}, {bk}]", prefix="a")
        b = Body(self._operands, {**outer, **columns}, f"[{bk}, {bn}]", prefix="b")
        steps = self._steps(a, b, k, bk)
        integer = shape.operand is DType.I8
        self._lines += [*a.lines, *b.lines]
        self._lines.append(f"sums = tl.zeros([{bm}, {bn}], {'tl.int32' if integer else 'tl.float32'})")
        self._lines.append(f"for k_first in range(0, {self._plain.dim(k)}, {bk}):")
        self._lines += [INDENT + line for line in steps]
        result = rounded(shape.summed.dtype, "sums")
        body = Body(self._operands, {**outer, **rows, **columns}, f"[{bm}, {bn}]", known={shape.summed: "sums"})
        if result != "sums":
            self._lines.append(f"sums = {result}")
        value = body.value(self._nest.body)
        target = self._operands.pointer(self._buffer, self._dtype, "y")
        self._lines += body.lines
        axes = (*shape.batch, *shape.m, *shape.n)
        address = self._nest.store
        store = body.stored(target, address, axes, converted(value, self._dtype))
        self._lines.append(self._whole_block(store))
        grid = (blocks_m * blocks_n * batch,)  # one dimension: the others of a grid end at 65535
        names = ", ".join(f"{label} = {size}" for label, size in zip("MNK", (m, n, k), strict=True))
        comment = f"{names}: blocks of [{bm}, {bn}], {bk} of the sum at a time."
        return kernel_of(
            self._lines, self._operands, (self._buffer,), grid, self._launched, "contraction", origin, comment
        )

    def _whole_block(self, store: str) -> str:
        """A store whose address has both dimensions, also where M or N counts no axes."""
        zeros = ("" if self._shape.m else " + 0 * m") + ("" if self._shape.n else " + 0 * n")
        return store.replace("), ", f"{zeros}), ", 1) if zeros else store

    def _programs(self, blocks_m: Dim, blocks_n: Dim, bm: int, bn: int) -> None:
        """Which block a program computes: those of a few rows of blocks one after the other, column by column."""
        text = self._plain.dim
        add = self._lines.append
        program = f"tl.program_id(0) % ({text(blocks_m * blocks_n)})" if self._shape.batch else "tl.program_id(0)"
        add(f"program = {program}")
        if blocks_m.constant == 1:
            add("block_m = 0")
            add("block_n = program")
        elif blocks_n.constant == 1:
            add("block_m = program")
            add("block_n = 0")
        else:
            add(f"group = program // ({GROUP} * ({text(blocks_n)}))")
            add(f"group_rows = tl.minimum({text(blocks_m)} - group * {GROUP}, {GROUP})")
            add(f"block_m = group * {GROUP} + program % ({GROUP} * ({text(blocks_n)})) % group_rows")
            add(f"block_n = program % ({GROUP} * ({text(blocks_n)})) // group_rows")
        wide = ".to(tl.int64)" if self._wide else ""
        add(f"m = (block_m * {bm} + tl.arange(0, {bm})){wide}[:, None]")
        add(f"n = (block_n * {bn} + tl.arange(0, {bn})){wide}[None, :]")
        if self._shape.batch:
            add(f"batch = (tl.program_id(0) // ({text(blocks_m * blocks_n)})){wide}")

    def _steps(self, a: Body, b: Body, k: Dim, bk: int) -> list[str]:
        """What the loop over K does: both operands, and the product."""
        shape, ragged = self._shape, k.constant is None or k.constant % bk != 0
        inner = shape.k[-1].extent.constant if shape.k else None
        if len(shape.k) > 1 and inner is not None and inner % bk == 0:
            return self._steps_by_taps(a, b, inner, bk)
        lines = [f"k = k_first + tl.arange(0, {bk})"]
        values: list[str] = []
        for body, factor, side, index, dimension in self._sides(a, b):
            counter = f"k{side}"
            lines.append(f"{counter} = k{index}")
            mask = f"{counter}_inside" if ragged else ""
            if ragged:
                lines.append(f"{mask} = {counter} < {self._plain.dim(k)}")
            blocks = counted(shape.k, counter, lines, self._plain, prefix=f"{counter}_", dimension=dimension, mask=mask)
            values.append(self._value(body, factor, side, blocks, mask, lines))
        return [*lines, self._multiplied(*values)]

    def _steps_by_taps(self, a: Body, b: Body, inner: int, bk: int) -> list[str]:
        """The same where a step stays within the innermost of several axes that are summed: channels of one tap, so
        that the others are one number for the whole block."""
        # Said to be a multiple, which a remainder is not known to be: loads are as wide as their alignment.
        first = "" if inner == bk else f"tl.multiple_of(k_first % {inner}, {bk}) + "
        lines = [f"tap = k_first // {inner}", f"k = {first}tl.arange(0, {bk})"]
        outer = counted(self._shape.k[:-1], "tap", lines, self._plain, prefix="tap")
        values: list[str] = []
        for body, factor, side, index, dimension in self._sides(a, b):
            lines.append(f"k{side} = k{index}")
            blocks = {**outer, self._shape.k[-1]: Block(f"k{side}", dimension)}
            values.append(self._value(body, factor, side, blocks, "", lines))
        return [*lines, self._multiplied(*values)]

    def _sides(self, a: Body, b: Body) -> tuple[tuple[Body, Expr, str, str, int], ...]:
        return (a, self._shape.a, "a", "[None, :]", 1), (b, self._shape.b, "b", "[:, None]", 0)

    def _value(
        self, body: Body, factor: Expr, side: str, blocks: dict[Axis, Block], mask: str, lines: list[str]
    ) -> str:
        """A factor as an operand; what it takes is added to the lines."""
        value, own = body.inside(blocks, lambda: body.value(factor))
        lines += own
        high, wide, deep = self._launched.block
        return self._operand(factor, value, mask, f"[{high}, {deep}]" if side == "a" else f"[{deep}, {wide}]")

    def _multiplied(self, a: str, b: str) -> str:
        operand = self._shape.operand
        if operand in HALVES:
            return f"sums = narrow_product({a}, {b}, sums)"
        if operand is DType.I8:
            return f"sums = tl.dot({a}, {b}, sums, out_dtype=tl.int32)"
        return f'sums = tl.dot({a}, {b}, sums, input_precision="{self._precision}")'

    def _operand(self, factor: Expr, value: str, mask: str, shape: str) -> str:
        """A factor as an operand of the product: of its type, a whole block, 0 beyond the end of the sum."""
        if mask and not _is_zero_beyond(factor):
            value = f"tl.where({mask}, {value}, 0.0)"
        return f"tl.broadcast_to({value}, {shape}).to({stored(self._shape.operand)})"


def _is_zero_beyond(factor: Expr) -> bool:
    """Whether a factor is 0 where what it loads is."""
    return isinstance(uncast(factor), Load)

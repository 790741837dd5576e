"""The template of attention: a softmax between two products, for a block of rows, some columns at a time.

    scores  = what is computed of q k, before the softmax      [M, N]
    highest = max(highest, scores);  shares = exp(scores - highest)
    total   = total * exp(before - highest) + sum(shares);  sums = sums * exp(before - highest) + shares v   [M, E]
    result  = sums / total, and what is computed of it

Neither scores nor shares go to memory, however long the rows. Where v has 16 bits, shares are rounded to its type
before they multiply it; sums are of float32. Columns that a mask of minus infinity rules out for all rows of a block,
as those beyond the diagonal, are not visited (`fuse/live.py`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from opweld.codegen.triton.body import INDENT, Block, Body, Operands, counted, mask_of
from opweld.codegen.triton.contraction import operand_type
from opweld.codegen.triton.elementwise import converted
from opweld.codegen.triton.kernel import Kernel, Launched, kernel_of
from opweld.codegen.triton.operators import HALVES, rounded, stored
from opweld.codegen.triton.rows import row_of
from opweld.fuse.live import Live
from opweld.fuse.online import softmax_of
from opweld.fuse.region import Region, Regions, axes_in, factors, reductions, uncast
from opweld.place.placed import Placed
from opweld.tensor.dim import ONE, ZERO, Atom, Axis, Dim, ceildiv, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Cast, Expr, Load, Reduce, substitute, substitute_loads
from opweld.tile.nest import resolve

WIDEST = 256
"""The most elements of a head: what is summed for a score, and what a row of the result has."""


@dataclass(frozen=True, eq=False)
class Attention:
    """A softmax between two products, over axes that all share.

    Attributes:
        batch: rows that each program has one of. row: the one of which it computes several. column: of the scores.
        inner: what is summed for a score. outer: what a row of the result has.
        q, k, v: the operands. product, scores: q k as it is summed, and what the softmax is of.
        summed, result: shares v as it is summed, and what is computed of it.
        address: where the result lies. operand, shares: the types of the operands of both products.
        guarded, masked: where the result is 0, see `Softmax`.
        rows: the axes of rows in the order of the row space, `row` at `number`.
    """

    batch: tuple[Axis, ...]
    row: Axis
    column: Axis
    inner: tuple[Axis, ...]
    outer: tuple[Axis, ...]
    q: Expr
    k: Expr
    v: Expr
    product: Reduce
    scores: Expr
    summed: Reduce
    result: Expr
    address: Dim
    operand: DType
    shares: DType
    guarded: bool
    masked: bool
    rows: tuple[Axis, ...]
    number: int


def only_attention(regions: Regions) -> Regions:
    """The regions with those blocks taken apart again that are no attention as this template computes it."""
    found: list[Region] = []
    for region in regions.regions:
        if region.block is None or _is_attention(region):
            found.append(region)
            continue
        for member in region.members:
            last = member.tensors[-1].name
            found.append(Region((member,), region.outputs if member is region.members[-1] else (last,)))
    return replace(regions, regions=tuple(found))


def _is_attention(region: Region) -> bool:
    if len(region.members) != 3 or region.block is None or softmax_of(region.members[1])[0] is None:
        return False
    first, _, last = region.members
    one, two = reductions(first.tensor.body)[0], reductions(last.tensor.body)[0]
    outer = [axis for axis in last.tensor.axes if axis not in region.block.rows[2] and axis.extent is not ONE]
    sizes = [product(axis.extent for axis in axes).constant for axes in (one.axes, outer)]
    if any(size is None or size > WIDEST for size in sizes):
        return False
    return operand_type(one) is not None and _shares_type(two) is not None


def _shares_type(summed: Reduce) -> DType | None:
    """The type in which shares multiply v."""
    pair = factors(summed)
    if pair is None or summed.dtype not in (DType.F32, *HALVES):
        return None
    narrow = {node.dtype for node in pair if node.dtype in HALVES}
    return next(iter(narrow)) if narrow else DType.F32


def attention_of(region: Region, placed: Placed) -> Attention:
    """The attention that a block is; it must be one."""
    block = region.block
    assert block is not None
    first, middle, last = region.members
    storages, shapes = placed.storages, placed.shapes
    softmax, _ = softmax_of(middle)
    row = row_of(middle, storages, shapes)
    assert softmax is not None and row is not None
    (column,) = row.columns
    highest = row.values[softmax.maximum.name]
    assert isinstance(highest, Reduce)
    # The scores: the first product, where the softmax reads it.
    places = block.space.places[first.tensor.name]
    mapping: dict[Atom, Dim] = {}
    for dim, place in zip(first.place, places, strict=True):
        if place is not None and isinstance(dim.atom, Axis):
            mapping[dim.atom] = (row.rows[place[1]] if place[0] == "row" else column).dim
    mapping |= {axis: ZERO for axis in first.tensor.axes if axis.extent is ONE}
    own = substitute(resolve(first.tensor.body, storages, shapes), mapping)
    scores = substitute_loads(highest.body, lambda node: own if node.tensor == first.tensor.name else None)
    (one,) = reductions(own)
    pair = factors(one)
    assert pair is not None and isinstance(one.body, Binary)
    q, k = (one.body.x, one.body.y) if column not in axes_in(pair[0]) else (one.body.y, one.body.x)
    # The result, over the same rows; what it sums over is the column.
    tensor = last.tensor
    two = reductions(tensor.body)[0]
    moved: dict[Atom, Dim] = {axis: row.rows[number].dim for axis, number in block.rows[2].items()}
    moved |= {axis: ZERO for axis in tensor.axes if axis.extent is ONE}
    body = substitute(resolve(tensor.body, storages, shapes), moved)
    summed = reductions(body)[0]
    assert isinstance(summed.body, Binary) and len(two.axes) == 1
    inside: dict[Atom, Dim] = {summed.axes[0]: column.dim}
    shares = middle.tensors[-1].name
    v = summed.body.y if _loads(summed.body.x, shares) else summed.body.x
    outer = tuple(axis for axis in tensor.axes if axis not in moved)
    address = storages[tensor.name].address([dim.substitute(moved) for dim in last.place])
    operand, by = operand_type(one), _shares_type(two)
    assert operand is not None and by is not None
    if operand in HALVES:
        q, k = (x.x if isinstance(x, Cast) else x for x in (q, k))
    batch = tuple(axis for number, axis in enumerate(row.rows) if number != block.row)
    return Attention(
        batch, row.rows[block.row], column, one.axes, outer, q, k, substitute(v, inside), one, scores, summed, body,
        address, operand, by, softmax.guarded, softmax.masked,
        row.rows, block.row,
    )  # fmt: skip


def _loads(factor: Expr, name: str) -> bool:
    found = uncast(factor)
    return isinstance(found, Load) and found.tensor == name


def attention(
    found: Attention,
    buffer: str,
    dtype: DType,
    launched: Launched,
    precision: str,
    wide: bool,
    origin: tuple[str, ...],
    live: Live | None = None,
) -> Kernel:
    """A kernel of programs of `launched.block` = (rows, columns at a time) each, which visit `live` columns alone.
    `precision` of products of float32: "ieee" or "tf32"."""
    return _Attention(found, buffer, dtype, launched, precision, wide, live).kernel(origin)


class _Attention:
    def __init__(
        self,
        found: Attention,
        buffer: str,
        dtype: DType,
        launched: Launched,
        precision: str,
        wide: bool,
        live: Live | None,
    ) -> None:
        self._found, self._buffer, self._dtype, self._launched, self._wide = found, buffer, dtype, launched, wide
        self._live, self._precision = live, precision
        self._operands = Operands(wide)
        self._plain = Body(self._operands, {}, "[]")
        self._lines: list[str] = []

    def kernel(self, origin: tuple[str, ...]) -> Kernel:
        """The kernel."""
        found, (bm, bn) = self._found, self._launched.block
        inner, outer = (product(axis.extent for axis in axes) for axes in (found.inner, found.outer))
        deep, across = _power(inner), _power(outer)
        add, text = self._lines.append, self._plain.dim
        wide = ".to(tl.int64)" if self._wide else ""
        blocks = ceildiv(found.row.extent, bm)
        block = f"tl.program_id(0) % ({text(blocks)})"
        if self._live is not None:
            # The last rows begin first: where masks are causal they have the most columns.
            add(f"m_first = ({text(blocks)} - 1 - {block}) * {bm}")
            add(f"m = (m_first + tl.arange(0, {bm})){wide}[:, None]")
        else:
            add(f"m = ({block} * {bm} + tl.arange(0, {bm})){wide}[:, None]")
        if found.batch:
            add(f"batch = (tl.program_id(0) // ({text(blocks)})){wide}")
        mask = mask_of("m", found.row.extent, bm, self._lines, self._plain)
        rows = counted((found.row,), "m", self._lines, self._plain, prefix="m", dimension=0, mask=mask)
        rows |= counted(found.batch, "batch", self._lines, self._plain, prefix="batch")
        add(f"d = tl.arange(0, {deep})")
        add(f"e = tl.arange(0, {across})[None, :]")
        mask = mask_of("e", outer, across, self._lines, self._plain)
        outside = counted(found.outer, "e", self._lines, self._plain, prefix="e", dimension=1, mask=mask)
        query = self._side("d", "[None, :]", found.inner, 1, inner, deep)
        a = Body(self._operands, {**rows, **query}, f"[{bm}, {deep}]", prefix="q")
        value = a.value(found.q)
        self._lines += a.lines
        add(f"q = {self._narrow(value, found.operand, f'[{bm}, {deep}]')}")
        key = self._side("d", "[:, None]", found.inner, 0, inner, deep)
        add(f'highest = tl.full([{bm}, 1], float("-inf"), tl.float32)')
        add(f"total = tl.zeros([{bm}, 1], tl.float32)")
        add(f"sums = tl.zeros([{bm}, {across}], tl.float32)")
        extent = found.column.extent
        steps, before = self._step(rows, key, outside, deep, across)
        self._lines += before
        begin, end = self._columns(rows)
        add(f"for n_first in range({begin}, {end}, {bn}):")
        self._lines += [INDENT + line for line in steps]
        add("sums = sums / total")
        if found.masked:
            # The maximum passes over NaN, the total does not.
            add('sums = tl.where((highest == float("-inf")) & (total == total), 0.0, sums)')
        if found.guarded:
            add("sums = tl.where(total == total, tl.where(total == 0.0, 0.0, sums), 0.0)")
        if found.summed.dtype in HALVES:
            add(f"sums = {rounded(found.summed.dtype, 'sums')}")
        body = Body(self._operands, {**rows, **outside}, f"[{bm}, {across}]", known={found.summed: "sums"})
        result = body.value(found.result)
        target = self._operands.pointer(self._buffer, self._dtype, "y")
        self._lines += body.lines
        axes = (*found.batch, found.row, *found.outer)
        store = body.stored(target, found.address, axes, converted(result, self._dtype))
        add(store if found.outer else store.replace("), ", " + 0 * e), ", 1))
        # One dimension: the others of a grid end at 65535.
        grid = (blocks * product(axis.extent for axis in found.batch),)
        comment = (
            f"Attention of {found.row.extent} rows to {extent} columns, heads of {inner}: blocks of {bm} rows, {bn} "
            "columns at a time."
        )
        return kernel_of(
            self._lines, self._operands, (self._buffer,), grid, self._launched, "attention", origin, comment
        )

    def _columns(self, rows: dict[Axis, Block]) -> tuple[str, str]:
        """From which column to which the loop goes."""
        found, (bm, bn), live = self._found, self._launched.block, self._live
        if live is None:
            return "0", self._plain.dim(found.column.extent)
        start = Axis("m_first", found.row.extent)
        at = [start.dim if axis is found.row else axis.dim for axis in found.rows]
        first, end = live.within(at, found.number, start.dim, start.dim + bm - 1)
        body = Body(self._operands, {**rows, start: Block("m_first")}, "[]")
        if first is ZERO:
            begin = "0"
        else:
            self._lines.append(f"begin = {body.dim(first)} // {bn} * {bn}")
            begin = "begin"
        if end is found.column.extent:
            return begin, body.dim(end)
        self._lines.append(f"end = {body.dim(end)}")
        return begin, "end"

    def _step(
        self, rows: dict[Axis, Block], key: dict[Axis, Block], outside: dict[Axis, Block], deep: int, across: int
    ) -> tuple[list[str], list[str]]:
        """What the loop over columns does, and what stands before it."""
        found, (bm, bn) = self._found, self._launched.block
        lines = [f"n = n_first + tl.arange(0, {bn})", "nk = n[None, :]", "nv = n[:, None]"]
        across_mask = mask_of("nk", found.column.extent, bn, lines, self._plain)
        down_mask = mask_of("nv", found.column.extent, bn, lines, self._plain)
        outer = {axis: rows[axis] for axis in found.batch}
        before: list[str] = []

        def operand(name: str, value: Expr, blocks: dict[Axis, Block], column: Block, kind: DType, shape: str) -> None:
            body = Body(self._operands, {**outer, **blocks}, shape, prefix=name)
            text, own = body.inside({found.column: column}, lambda: body.value(value))
            before.extend(body.lines)
            lines.extend(own)
            lines.append(f"{name} = {self._narrow(text, kind, shape)}")

        operand("k", found.k, key, Block("nk", 1, across_mask), found.operand, f"[{deep}, {bn}]")
        lines.append(self._multiplied("products", "q", "k", f"tl.zeros([{bm}, {bn}], tl.float32)", found.operand))
        if found.product.dtype in HALVES:
            lines.append(f"products = {rounded(found.product.dtype, 'products')}")
        body = Body(self._operands, rows, f"[{bm}, {bn}]", known={found.product: "products"}, prefix="s")
        text, own = body.inside({found.column: Block("nk", 1, across_mask)}, lambda: body.value(found.scores))
        before.extend(body.lines)
        lines += own
        if across_mask:
            lines.append(f'scores = tl.where({across_mask}, {text}, float("-inf"))')
        else:
            lines.append(f"scores = {text}")
        lines += [
            "before = highest",
            "highest = tl.maximum(before, tl.max(scores, axis=1)[:, None])",
            'least = tl.where(highest == float("-inf"), 0.0, highest)  # rows that are all masked so far',
            "shares = tl.exp(scores - least)",
            "scale = tl.exp(before - least)",
            "total = total * scale + tl.sum(shares, axis=1)[:, None]",
        ]
        operand("v", found.v, outside, Block("nv", 0, down_mask), found.shares, f"[{bn}, {across}]")
        kind = {DType.F16: "tl.float16", DType.BF16: "tl.bfloat16"}.get(found.shares)
        shares = "shares" if kind is None else f"shares.to({kind})"
        lines.append(self._multiplied("sums", shares, "v", "sums * scale", found.shares))
        return lines, before

    def _multiplied(self, name: str, a: str, b: str, sums: str, kind: DType) -> str:
        if kind in HALVES:
            return f"{name} = narrow_product({a}, {b}, {sums})"
        return f'{name} = tl.dot({a}, {b}, {sums}, input_precision="{self._precision}")'

    def _narrow(self, value: str, kind: DType, shape: str) -> str:
        return f"tl.broadcast_to({value}, {shape}).to({stored(kind)})"

    def _side(
        self, name: str, index: str, axes: tuple[Axis, ...], dimension: int, count: Dim, size: int
    ) -> dict[Axis, Block]:
        counter = f"{name}{'q' if dimension else 'k'}"
        self._lines.append(f"{counter} = {name}{index}")
        mask = mask_of(counter, count, size, self._lines, self._plain)
        return counted(axes, counter, self._lines, self._plain, prefix=counter, dimension=dimension, mask=mask)


def _power(size: Dim) -> int:
    """The least power of two that is not less, of those that tensor cores take."""
    return max(16, 1 << max(0, int(size) - 1).bit_length())

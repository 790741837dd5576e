"""Regions to kernels: which template computes each, and in blocks of which size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from opweld.codegen.triton.attention import Attention, attention, attention_of
from opweld.codegen.triton.contraction import Product, contraction, product_of
from opweld.codegen.triton.elementwise import elementwise
from opweld.codegen.triton.externs import KERNELS, Call
from opweld.codegen.triton.kernel import Kernel, Launched
from opweld.codegen.triton.operators import HALVES
from opweld.codegen.triton.own import own_kernel
from opweld.codegen.triton.rows import LONGEST, row_of, rowwise
from opweld.fuse.live import Live, live_columns, values_of
from opweld.fuse.online import softmax_of
from opweld.fuse.region import Kind, Member, Region
from opweld.ledger import Alternative, Ledger
from opweld.place.placed import Placed
from opweld.place.storage import Storage
from opweld.schedule.cost import core_of
from opweld.schedule.expected import Expected
from opweld.schedule.gpu import STEPS, Blocks, product_seconds
from opweld.target import Gpu
from opweld.tensor.cost import Count, flops
from opweld.tensor.dim import Dim, floordiv, minimum, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, loads, walk
from opweld.tensor.externs import EXTERNS
from opweld.tensor.program import Extern, Tensor
from opweld.tile.nest import Nest, nest_of

WIDE = (1 << 31) - (1 << 16)
"""Elements of memory from which on indices take 64 bits: the last block, too, ends within 32."""

ELEMENTS = 1024
"""Elements that a program of elementwise work computes: eight for each thread of four warps."""


FEWEST = 128
"""The fewest elements of a program of elementwise work."""

FEW, MANY = 32, 256
"""Rows of a product up to which blocks for few are the faster ones, and that those for more are made for, where the
number is not known and few are expected."""

MOST_EPILOGUE = 6
"""Expressions of an epilogue from which on its values do not fit registers beside the sums of the largest block."""


class Realiser:
    """Makes the kernels of a placed program."""

    def __init__(self, placed: Placed, expected: Expected, target: Gpu, ledger: Ledger) -> None:
        self._placed, self._expected, self._target, self._ledger = placed, expected, target, ledger
        self._shapes = placed.shapes
        self._storages = placed.storages

    def kernels(self, region: Region) -> tuple[Kernel, ...]:
        """The kernels of a region that is neither a recurrence nor an extern."""
        if region.block is not None:
            return (replace(self._attention(region), count=_count(region.tensors)),)
        made: list[Kernel] = []
        for member in region.members:
            outputs = [tensor.name for tensor in member.tensors if tensor.name in region.outputs]
            kernels = self._member(region, member, outputs)
            if member.kind is Kind.ROWWISE and len(kernels) > 1:
                counts = [_count((one,)) for one in member.tensors]
            else:
                # Of several kernels for as many sizes one is launched.
                counts = [_count(member.tensors), *[Count()] * (len(kernels) - 1)]
            made += [replace(kernel, count=count) for kernel, count in zip(kernels, counts, strict=True)]
        return tuple(made)

    def _member(self, region: Region, member: Member, outputs: Sequence[str]) -> list[Kernel]:
        if member.kind is Kind.ROWWISE:
            row = row_of(member, self._storages, self._shapes)
            if row is not None:
                bodies = [row.values[name] for name in outputs]
                wide = self._wide(bodies, outputs)
                launched = self._of_rows(tuple(a.extent for a in row.rows), tuple(a.extent for a in row.columns))
                return [rowwise(row, outputs, self._storages, launched, wide, region.origin)]
            return [self.single(tensor, self._storages, region.origin) for tensor in member.tensors]
        tensor = member.tensor
        nest = self._nest(tensor, member.place, self._storages)
        storage = self._storages[tensor.name]
        wide = self._wide([nest.body], [tensor.name])
        if member.kind is Kind.CONTRACTION and (shape := product_of(nest)) is not None:
            epilogue = len(list(walk(nest.body))) - len(list(walk(shape.summed)))
            precision = self._precision(tensor.name, shape.operand, (tensor,), [nest.body], region.origin)

            def made(rows: int | None) -> Kernel:
                launched = self._of_product(tensor.name, shape, epilogue, precision, region.origin, rows)
                return contraction(nest, shape, storage.root, tensor.dtype, launched, precision, wide, region.origin)

            own = made(None)
            rows = shape.sizes[1]
            if rows.constant is not None or shape.operand not in HALVES or self._expected(rows) > FEW:
                return [own]
            # Blocks for few rows read what is multiplied with them again and again where there are many.
            are_many, other = minimum(1, floordiv(rows, FEW + 1)), made(MANY)
            if other.launched == own.launched:
                return [own]
            return [launched_where(own, 1 - are_many), launched_where(other, are_many)]
        return [elementwise(nest, storage.root, tensor.dtype, self._of_elements(nest), wide, region.origin)]

    def _attention(self, region: Region) -> Kernel:
        found = attention_of(region, self._placed)
        tensor = region.members[-1].tensor
        wide = self._wide([found.scores, found.v, found.q, found.k], [tensor.name])
        rows, count = self._expected(found.row.extent), self._expected.product(a.extent for a in found.batch)
        single = DType.F32 in (found.operand, found.shares)
        bodies = [found.scores, found.v, found.q, found.k]
        kind = DType.F32 if single else found.operand
        precision = self._precision(tensor.name, kind, region.tensors, bodies, region.origin)
        height = 128 if not single else 64 if precision == "tf32" else 32
        while height > 16 and (height // 2 >= rows or count * -(-rows // height) < self._target.processors):
            height //= 2
        launched = Launched((height, 32 if single else 64), 8 if height == 128 else 4, 2 if single else 3)
        root = self._storages[tensor.name].root
        live = self._live(region, found, launched, precision)
        return attention(found, root, tensor.dtype, launched, precision, wide, region.origin, live)

    def _precision(
        self, name: str, operand: DType, tensors: Sequence[Tensor], bodies: Sequence[Expr], origin: tuple[str, ...]
    ) -> str:
        """How products of float32 are multiplied: "ieee", or "tf32" by tensor cores where that is permitted and takes
        less. bfloat16 where it was permitted is a cast in the program."""
        if self._placed.program.precision != "tf32" or operand is not DType.F32:
            return "ieee"
        names = {node.tensor for body in bodies for node in loads(body)} | {name}
        moved = sum(self._expected(self._storages[n].elements) * self._storages[n].dtype.bytes for n in names)
        count = self._expected(_count(tensors).flops)
        core = core_of(self._target)
        memory = moved / core.dram_bytes / core.hertz
        seconds = {kind: max(memory, count / self._rate(kind)) for kind in (DType.F32.short, "tf32")}
        taken = self._ledger.decide(
            rule="fuse.precision",
            site=origin,
            subject=(name,),
            alternatives=[Alternative("fp32", seconds=seconds["f32"]), Alternative("tf32", seconds=seconds["tf32"])],
            reason="tensor cores multiply operands of 10 bits and sum in float32"
            if seconds["tf32"] < seconds["f32"]
            else "memory takes as long",
        )
        return "tf32" if taken == "tf32" else "ieee"

    def _rate(self, kind: str) -> float:
        """Operations a second of products."""
        core = core_of(self._target)
        return 2 * 32 * core.products * core.hertz * {"f32": 1, "tf32": 4}.get(kind, 8)

    def _live(self, region: Region, found: Attention, launched: Launched, precision: str) -> Live | None:
        """The columns that an attention visits; None for all."""
        block, (height, width) = region.block, launched.block
        softmax, _ = softmax_of(region.members[1])
        assert block is not None and softmax is not None
        live = live_columns(softmax, block.space, values_of(self._placed.regions))
        extents = [self._expected(extent) for extent in block.space.rows]
        total = -(-self._expected(found.column.extent) // width)
        kind = "tf32" if precision == "tf32" else found.operand.short
        seconds = self._expected(_count(region.tensors).flops) / self._rate(kind)
        failed: dict[str, str] = {}
        if isinstance(live, str):
            skipped, reason, failed["skipped"] = Alternative("skipped"), live, live
        else:
            part = live.visited(extents, block.row, height, width, total, self._expected) / max(1, total)
            skipped = Alternative("skipped", seconds=part * seconds)
            reason = "no row of a block sees them: their shares are 0"
        taken = self._ledger.decide(
            rule="schedule.masked",
            site=region.origin,
            subject=(region.members[-1].tensor.name,),
            alternatives=[Alternative("computed", seconds=seconds), skipped],
            failed=failed,
            reason=reason,
        )
        return live if taken == "skipped" and not isinstance(live, str) else None

    def extern(self, extern: Extern, updates: Tensor | None, rounded: Tensor | None) -> Kernel | None:
        """The kernel of an extern, which computes `updates` and rounds its result to `rounded` itself; None for one
        that the processor computes."""
        names = (*extern.operands, *(result.name for result in extern.results))
        sizes = [self._storages[name].elements.constant for name in names]
        is_wide = any(size is not None and size >= WIDE for size in sizes)
        make = KERNELS.get(extern.function)
        if make is None:
            theirs = EXTERNS[extern.function].triton
            made = None if theirs is None else theirs(extern.numbers, extern.rows)
            own = None if made is None else own_kernel(made, extern, self._storages, is_wide)
            return None if own is None else replace(own, count=flops(extern))
        nest, origin = None, extern.origin
        if updates is not None:
            nest = self._nest(updates, tuple(axis.dim for axis in updates.axes), self._storages)
            origin = (*updates.origin, *origin)
        result = extern.results[0].name if rounded is None else rounded.name
        kernel = make(Call(replace(extern, origin=tuple(dict.fromkeys(origin))), self._storages, is_wide, nest, result))
        return replace(kernel, count=flops(extern) + (Count() if updates is None else flops(updates)))

    def single(self, tensor: Tensor, storages: Mapping[str, Storage], origin: tuple[str, ...]) -> Kernel:
        """A tensor element by element."""
        nest = self._nest(tensor, tuple(axis.dim for axis in tensor.axes), storages)
        wide = self._wide([nest.body], [tensor.name])
        return elementwise(nest, storages[tensor.name].root, tensor.dtype, self._of_elements(nest), wide, origin)

    def _nest(self, tensor: Tensor, place: tuple[Dim, ...], storages: Mapping[str, Storage]) -> Nest:
        return nest_of(tensor.axes, place, tensor.body, storages[tensor.name], storages, self._shapes, words=False)

    def _wide(self, bodies: Sequence[Expr], outputs: Sequence[str]) -> bool:
        """Whether memory that a kernel touches has elements beyond the reach of 32 bits."""
        names = {node.tensor for body in bodies for node in loads(body)} | set(outputs)
        roots = {storage.root: storage for storage in self._storages.values()}
        sizes = [roots[name].elements.constant for name in names if name in roots]
        return any(size is not None and size >= WIDE for size in sizes)

    def _of_elements(self, nest: Nest) -> Launched:
        """As many elements a program as leave two programs for each multiprocessor."""
        count, size = self._expected.product(axis.extent for axis in nest.axes), ELEMENTS
        while size > FEWEST and -(-count // size) < 2 * self._target.processors:
            size //= 2
        return Launched((size,), min(4, size // 64))

    def _of_rows(self, rows: tuple[Dim, ...], columns: tuple[Dim, ...]) -> Launched:
        length = product(columns).constant
        width = 2048 if length is None or length > LONGEST else _power(length)
        count = self._expected.product(rows)
        height = max(1, min(_power(count), 2048 // width, 64))
        while height > 1 and -(-count // height) < 2 * self._target.processors:
            height //= 2
        warps = max(1, min(16, width * height // 256))
        return Launched((height, width), warps)

    def _of_product(
        self, name: str, shape: Product, epilogue: int, precision: str, origin: tuple[str, ...], rows: int | None
    ) -> Launched:
        """Blocks of a product of so many rows, of as many as are expected where None."""
        batch, m, n, k = (max(1, self._expected(size)) for size in shape.sizes)
        m = rows or m
        if shape.operand not in HALVES:
            return self._of_wide_product(shape, (batch, m, n, k), precision)
        largest = 128 * 128 if epilogue > MOST_EPILOGUE else 128 * 256
        found = {
            str(blocks): blocks
            for blocks in STEPS
            # The sums, and what an epilogue computes of them, take registers; the rest would be empty, mostly.
            if blocks.rows * blocks.columns <= largest
            and blocks.rows < 2 * max(m, 16)
            and blocks.columns < 2 * max(n, 32)
            and blocks.depth < 2 * max(k, 32)
        } or {str(blocks): blocks for blocks in (Blocks(16, 32, 256, 4, 3),)}
        choice = self._ledger.decide(
            rule="schedule.tile",
            site=origin,
            subject=(name,) if rows is None else (name, f"{rows} rows"),
            alternatives=[
                Alternative(text, seconds=product_seconds((batch, m, n, k), blocks, self._target))
                for text, blocks in found.items()
            ],
            reason="enough programs, and few steps",
        )
        taken = found[choice]
        depth = taken.depth
        inner = shape.k[-1].extent.constant if len(shape.k) > 1 else None
        while depth > 32 and (depth // 2 >= k or _ends_better(k, depth) or (inner and _ends_better(inner, depth))):
            depth //= 2
        return Launched((taken.rows, taken.columns, depth), taken.warps, taken.stages)

    def _of_wide_product(self, shape: Product, sizes: tuple[int, int, int, int], precision: str) -> Launched:
        """Of float32, and of bytes: the fewest turns of all multiprocessors, by what a block multiplies or loads."""
        batch, m, n, k = sizes
        precise = shape.operand is DType.F32 and precision == "ieee"
        depth = 16 if precise else 64 if shape.operand is DType.I8 else 32
        best: tuple[float, tuple[int, int]] | None = None
        for high, wide in (
            (128, 128),
            (128, 64),
            (64, 128),
            (64, 64),
            (64, 32),
            (32, 64),
            (32, 32),
            (16, 64),
            (16, 32),
        ):
            if precise and high * wide > 64 * 64:
                continue
            blocks = batch * -(-m // high) * -(-n // wide)
            price = -(-blocks // self._target.processors) * max(high * wide, 24 * (high + wide))
            if best is None or price < best[0]:
                best = price, (high, wide)
        assert best is not None
        high, wide = best[1]
        while depth > 32 and depth // 2 >= k:
            depth //= 2
        warps = 8 if high * wide >= 128 * 128 else 4
        return Launched((high, wide, depth), warps, 3 if precise else 4)


def launched_where(kernel: Kernel, condition: Dim) -> Kernel:
    """A kernel whose grid has no programs where the condition is 0; it is 1 elsewhere."""
    first, *others = kernel.grid
    return replace(kernel, grid=(first * condition, *others))


def _count(tensors: Sequence[Tensor]) -> Count:
    """The operations of tensors."""
    return sum(map(flops, tensors), Count())


def _ends_better(count: int, depth: int) -> bool:
    """Whether half of the depth walks along so many elements without an incomplete step, and all of it does not."""
    return count % depth != 0 and count % (depth // 2) == 0


def _power(count: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(0, count - 1).bit_length()

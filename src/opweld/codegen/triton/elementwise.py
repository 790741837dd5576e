"""The template of elementwise work, and the one that is legal for everything: each element of the result is computed on
its own, what is reduced for it in a loop."""

from __future__ import annotations

from opweld.codegen.triton.body import Body, Operands, counted, mask_of
from opweld.codegen.triton.kernel import Kernel, Launched, kernel_of
from opweld.codegen.triton.operators import stored
from opweld.tensor.dim import ceildiv, product
from opweld.tensor.dtype import DType
from opweld.tile.nest import Nest


def elementwise(
    nest: Nest, buffer: str, dtype: DType, launched: Launched, wide: bool, origin: tuple[str, ...]
) -> Kernel:
    """A kernel of blocks of the result's elements, in the order of its memory."""
    operands = Operands(wide)
    (size,) = launched.block
    total = product(axis.extent for axis in nest.axes)
    body = Body(operands, {}, f"[{size}]")
    number = "tl.program_id(0).to(tl.int64)" if wide else "tl.program_id(0)"
    lines = [f"i = {number} * {size} + tl.arange(0, {size})"]
    mask = mask_of("i", total, size, lines, body, "inside")
    blocks = counted(nest.axes, "i", lines, body, prefix="i", dimension=0, mask=mask)
    body = Body(operands, blocks, f"[{size}]")
    value = body.value(nest.body)
    address = body.dim(nest.store) if nest.axes else f"{body.dim(nest.store)} + 0 * i"
    target = operands.pointer(buffer, dtype, "y")
    keep = f", mask={mask}" if mask else ""
    lines += [*body.lines, f"tl.store({target} + ({address}), {converted(value, dtype)}{keep})"]
    grid = (ceildiv(total, size),)
    comment = f"{buffer_text(nest)}, {size} elements a program."
    return kernel_of(lines, operands, (buffer,), grid, launched, "elementwise", origin, comment)


def converted(value: str, dtype: DType) -> str:
    """A value as it is stored."""
    return f"tl.cast({value}, {'tl.uint8' if dtype is DType.BOOL else stored(dtype)})"


def buffer_text(nest: Nest) -> str:
    """The shape that a kernel runs over."""
    return f"Elements [{', '.join(str(axis.extent) for axis in nest.axes)}]"

"""The kernel of writes at places that are computed at run time: `scatter` of `tensor/externs.py`.

Each place is that of the first of `width` neighbours. Of places that are named twice, either update stays."""

from __future__ import annotations

from collections.abc import Mapping

from opweld.codegen.triton.body import Body, Operands, counted, mask_of
from opweld.codegen.triton.elementwise import converted
from opweld.codegen.triton.kernel import Kernel, Launched, kernel_of
from opweld.place.storage import Storage
from opweld.tensor.dim import ceildiv
from opweld.tensor.program import Extern
from opweld.tile.nest import Nest

ELEMENTS = 256
"""What a program writes."""


def scatter(extern: Extern, storages: Mapping[str, Storage], wide: bool, computed: Nest | None) -> Kernel:
    """A kernel that writes updates into the memory of the result, where the rest of it lies already. computed: what
    they are, as a nest whose axes are in the order of their memory; they lie in memory where None."""
    size, count, width = extern.numbers
    _, places, updates = extern.operands
    result = extern.results[0].name
    operands = Operands(wide)
    body = Body(operands, {}, "[]")
    number = "tl.program_id(0).to(tl.int64)" if wide else "tl.program_id(0)"
    lines = [f"i = {number} * {ELEMENTS} + tl.arange(0, {ELEMENTS})"]
    total = count * width
    inside = mask_of("i", total, ELEMENTS, lines, body, "inside") or "i >= 0"
    where = operands.pointer(storages[places].root, storages[places].dtype)
    target = operands.pointer(storages[result].root, storages[result].dtype, "y")
    code = operands.error("an index is out of range: what is written is not there")
    lines += [
        f"place = tl.load({where} + i // ({body.dim(width)}), mask={inside}, other=0)",
        f"there = (place >= 0) & (place <= {body.dim(size - width)})",
        f"tl.atomic_max(error + 0 * i, {code}, mask={inside} & ~there)",
    ]
    if computed is None:
        new = operands.pointer(storages[updates].root, storages[updates].dtype)
        lines.append(f"value = tl.load({new} + i, mask={inside}, other=0)")
    else:
        blocks = counted(computed.axes, "i", lines, body, prefix="i", dimension=0, mask=inside)
        values = Body(operands, blocks, f"[{ELEMENTS}]")
        value = values.value(computed.body)
        lines += [*values.lines, f"value = {converted(value, storages[updates].dtype)}"]
    lines.append(f"tl.store({target} + place + i % ({body.dim(width)}), value, mask={inside} & there)")
    comment = f"{count} updates of {width} neighbours each, {ELEMENTS} elements a program."
    root = storages[result].root
    moved = total * storages[updates].dtype.bytes
    return kernel_of(
        lines, operands, (root,), (ceildiv(total, ELEMENTS),), Launched((ELEMENTS,)), "scatter", extern.origin, comment,
        moved=(moved + count * storages[places].dtype.bytes, moved),
    )  # fmt: skip

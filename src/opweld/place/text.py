"""Placed regions as text, and back: `parse_placed(print_placed(p))` means the same and prints the same.

Regions are printed as `fuse.text` does, with a line more for each contraction and window: the axis of its lanes, how
many vectors a tile has, and which operand is vectorised (along), which one broadcast (across). Constants that are not
in the program come before the regions, the storage of every value comes last.

    packed w_packed0 f32[7, 33]

    region result
      member contraction
        tensor result f32[i0: 17, i1: 33] from "MatMul"
          over r0: 7
          = sum<r0>(mul(x[i0, r0], w_packed0[r0, i1]))
        place [i0, i1]
        lanes i1 vectors 2 along w[r0, i1] across x[i0, r0]

    value x f32[119] of i0 by 7, i1 by 1
    value w_packed0 f32[280] of i1 % 8 by 1, i0 by 8, i1 // 8 by 56
    value padded f32[480] of i1 by 1, i2 + 1 by 80, i3 + 1 by 10 halo (0, 0), (0, 0), (1, 1), (1, 1) fill 0.0
    value part f32[960] in whole at 240 of i1 by 10, i2 by 1

`value part f32[960] in whole at 240`: the memory is that of `whole`, has 960 elements, and part begins at 240.
`i1 + 1 // 8 % 4 by 56` is a term of the address, evaluated from left to right: 56 * ((i1 + 1) // 8 % 4).
"""

from __future__ import annotations

from opweld.fuse.text import RegionPrinter
from opweld.place.lanes import Lanes
from opweld.place.parse import parse_placed
from opweld.place.placed import Placed
from opweld.place.storage import Storage, Term
from opweld.tensor.program import Tensor
from opweld.tensor.text import Names, constant_line, name_text, print_program, size_text, type_text

__all__ = ["parse_placed", "print_placed"]


def print_placed(placed: Placed) -> str:
    """Regions, lanes and storage as text; of constants, only names, dtypes and shapes."""
    printer = _Printer(placed)
    own = {constant.name for constant in placed.program.constants}
    blocks = [
        [constant_line(constant, "packed") for name, constant in placed.constants.items() if name not in own],
        *(printer.region(region) for region in placed.regions),
        [storage_line(name, storage) for name, storage in placed.storages.items()],
    ]
    return "\n".join([print_program(placed.program), *("\n".join(block) + "\n" for block in blocks if block)])


class _Printer(RegionPrinter):
    def __init__(self, placed: Placed) -> None:
        super().__init__(placed.program)
        self._lanes = placed.lanes

    def _is_same(self, tensor: Tensor) -> bool:
        return tensor.name not in self._lanes and super()._is_same(tensor)

    def _of_tensor(self, name: str, names: Names) -> list[str]:
        lanes = self._lanes.get(name)
        return [] if lanes is None else [_lanes_line(lanes, names)]


def _lanes_line(lanes: Lanes, names: Names) -> str:
    line = f"lanes {'one' if lanes.axis is None else names.dim(lanes.axis.dim)} vectors {lanes.vectors}"
    for word, node in (("along", lanes.along), ("across", lanes.across)):
        line += "" if node is None else f" {word} {names.expression(node)}"
    return line + (f" winograd {name_text(lanes.winograd)}" if lanes.winograd else "")


def storage_line(name: str, storage: Storage) -> str:
    """The storage of a value."""
    line = f"value {name_text(name)} {type_text(storage.dtype, [size_text(storage.elements)])}"
    if storage.root != name:
        line += f" in {name_text(storage.root)}"
    if storage.offset.constant != 0:
        line += f" at {size_text(storage.offset)}"
    if storage.terms:
        line += f" of {', '.join(map(_term, storage.terms))}"
    if storage.pairs_fit:
        line += " pairs fit"
    if storage.padded:
        assert storage.fill is not None, "of padding"
        names = Names({})
        names.dtype = storage.dtype
        sides = ", ".join(f"({low}, {high})" for low, high in storage.halo)
        line += f" halo {sides} fill {names.expression(storage.fill)}"
    return line


def _term(term: Term) -> str:
    index = f"i{term.axis}"
    for sign, number, neutral in (("+", term.shift, 0), ("//", term.divisor, 1), ("%", term.modulus, None)):
        index += "" if number == neutral else f" {sign} {number}"
    return f"{index} by {size_text(term.stride)}"

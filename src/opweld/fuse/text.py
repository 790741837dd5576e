"""Regions as text, and back: `parse_regions(print_regions(r))` means the same and prints the same.

The program comes first, as `tensor.text` prints it, then each region: the values that it keeps in memory, and its
members in order. A member has its tensors in full, unless they are those of the program (`same`).

    region result
      member contraction
        tensor result f32[i0: 17, i1: 33] from "MatMul", "Add"
          over r0: 7
          = add(sum<r0>(mul(x[i0, r0], w[r0, i1])), b[i1])
        place [i0, i1]

    region probabilities
      member rowwise
        space rows (5) columns (19)
        at highest (row 0)
        at probabilities (row 0, column 0)
        same highest
        same probabilities

`place` says which element of its value a combination of the tensor's axes is, `space` the rows and columns that tensors
lie on, `at` what each axis of a tensor is there (`one`: an axis of extent one). Where several members are computed
block by block, `block row 1` says which row axis a grid iteration takes several of, and `rows i0: 0, i2: 1` which row
each axis of a contraction is. A recurrence has its states before its members and its outputs after them, as in
programs; an extern is that of the program which gives the region's first output. Axes are numbered as in programs.
"""

from __future__ import annotations

from opweld.fuse.parse import parse_regions
from opweld.fuse.region import Block, Member, Reach, Region, Regions
from opweld.fuse.rows import RowSpace
from opweld.tensor.dim import Atom
from opweld.tensor.program import Tensor, TensorProgram
from opweld.tensor.text import Names, name_text, print_program, scan_head, scan_tail, size_text, tensor_lines

__all__ = ["RegionPrinter", "parse_regions", "print_regions"]


def print_regions(regions: Regions) -> str:
    """The program and its regions as text."""
    printer = RegionPrinter(regions.program)
    blocks = [print_program(regions.program)]
    blocks += ["\n".join(printer.region(region)) + "\n" for region in regions.regions]
    return "\n".join(blocks)


class RegionPrinter:
    """The text of the regions of one program."""

    def __init__(self, program: TensorProgram) -> None:
        self._same = {id(item) for item in program.items}

    def region(self, region: Region) -> list[str]:
        """The lines of one region."""
        time: dict[Atom, str] = {} if region.scan is None else {region.scan.time: "t0"}
        lines = [f"region {', '.join(map(name_text, region.outputs))}"]
        if region.extern is not None:
            lines.append("  extern")
        if region.scan is not None:
            lines += ["  " + line for line in scan_head(region.scan)]
        if region.block is not None:
            reach = region.block.reach
            told = "" if reach == Reach() else f" reach ({reach.step}, {reach.over}, {reach.before})"
            lines.append(f"  block row {region.block.row}{told}")
            if all(member.space is None for member in region.members):
                lines += ["  " + line for line in _space(region.block.space)]
        for number, member in enumerate(region.members):
            lines.append(f"  member {member.kind.value}")
            own = [*self._tensors(member, time), *_rows(region.block, number, member)]
            lines += ["    " + line for line in own]
        if region.scan is not None:
            lines += scan_tail(region.scan)
        return lines

    def _tensors(self, member: Member, time: dict[Atom, str]) -> list[str]:
        lines = [] if member.space is None else _space(member.space)
        for tensor in member.tensors:
            if self._is_same(tensor):
                lines.append(f"same {name_text(tensor.name)}")
                continue
            own, names = tensor_lines("tensor", tensor, time)
            lines += own
            if member.indices is not None:
                lines.append(f"place [{', '.join(map(names.dim, member.indices))}]")
            lines += self._of_tensor(tensor.name, names)
        return lines

    def _is_same(self, tensor: Tensor) -> bool:
        """Whether the tensor can be told by its name."""
        return id(tensor) in self._same

    def _of_tensor(self, name: str, names: Names) -> list[str]:
        """What else is told of a tensor; `names` are its axes'."""
        return []


def _space(space: RowSpace) -> list[str]:
    rows, columns = (", ".join(map(size_text, extents)) for extents in (space.rows, space.columns))
    lines = [f"space rows ({rows}) columns ({columns})"]
    for name, places in space.places.items():
        own = ", ".join("one" if place is None else f"{place[0]} {place[1]}" for place in places)
        lines.append(f"at {name_text(name)} ({own})")
    return lines


def _rows(block: Block | None, number: int, member: Member) -> list[str]:
    if block is None or not block.rows[number]:
        return []
    axes = member.tensor.axes
    return ["rows " + ", ".join(f"i{axes.index(axis)}: {row}" for axis, row in block.rows[number].items())]

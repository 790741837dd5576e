"""The template of rows: reductions over the same rows, and what is done with the row, by programs of a few rows each.

A row that fits registers is loaded once, whatever reads it. A longer one, or one of a size that is not known before a
run, is passed over once for each reduction that needs another's result, and once more for what is stored of it; what
lies between is computed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opweld.codegen.triton.body import INDENT, Body, Operands, counted, mask_of
from opweld.codegen.triton.elementwise import converted
from opweld.codegen.triton.kernel import Kernel, Launched, kernel_of
from opweld.codegen.triton.operators import HALVES, register, rounded
from opweld.fuse.region import Member, reductions
from opweld.fuse.rows import RowSpace
from opweld.place.storage import Storage
from opweld.tensor.axes import replace_reduced
from opweld.tensor.dim import ONE, ZERO, Atom, Axis, Dim, ceildiv, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, Load, Reduce, substitute, substitute_loads
from opweld.tensor.operators import REDUCTIONS, neutral
from opweld.tile.nest import resolve


@dataclass(frozen=True, eq=False)
class Row:
    """The tensors of a row space as expressions over axes that they share.

    `values`: by name, everything that they read of each other put into its place. `places`: the index of each, in terms
    of the axes."""

    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    values: Mapping[str, Expr]
    places: Mapping[str, tuple[Dim, ...]]
    dtypes: Mapping[str, DType]


def row_of(member: Member, storages: Mapping[str, Storage], shapes: Mapping[str, Sequence[Dim]]) -> Row | None:
    """The tensors of a member over shared axes; None where a reduction runs over something else than the columns."""
    space = member.space
    if space is None:
        return None
    rows = tuple(Axis(f"r{n}", extent) for n, extent in enumerate(space.rows)) or (Axis("r0", ONE),)
    columns = tuple(Axis(f"c{n}", extent) for n, extent in enumerate(space.columns))
    axes = {"row": rows, "column": columns}
    local: dict[str, Expr] = {}
    places: dict[str, tuple[Dim, ...]] = {}
    outside = {name: storage for name, storage in storages.items() if name not in set(space.names)}
    for tensor in member.tensors:
        found = space.places_in(tensor)
        mapping: dict[Atom, Dim] = {
            axis: ZERO if place is None else axes[place[0]][place[1]].dim for axis, place in found.items()
        }
        body = tensor.body
        for node in reductions(body):
            if [found.get(axis) for axis in node.axes] != [("column", n) for n in range(len(columns))]:
                return None
            own: dict[Atom, Dim] = {axis: mapping[axis] for axis in node.axes}
            body = replace_reduced(body, node.axes, columns, own)
        own = {axis: mapping[axis] for axis in tensor.axes}
        local[tensor.name] = resolve(substitute(body, own), outside, shapes)
        places[tensor.name] = tuple(mapping[axis] for axis in tensor.axes)
    values: dict[str, Expr] = {}
    for tensor in member.tensors:
        values[tensor.name] = _whole(local[tensor.name], local, places, values)
    return Row(rows, columns, values, places, {tensor.name: tensor.dtype for tensor in member.tensors})


def _whole(
    body: Expr, local: Mapping[str, Expr], places: Mapping[str, tuple[Dim, ...]], values: Mapping[str, Expr]
) -> Expr:
    """An expression with other members of the row in the place of loads of them. One that is read at another column, as
    a loss reads its target's, is computed there."""

    def inlined(node: Load) -> Expr | None:
        place = places.get(node.tensor)
        if place is None:
            return None
        if node.tensor in values and all(i is p for i, p in zip(node.indices, place, strict=True)):
            return values[node.tensor]
        moved: dict[Atom, Dim] = {
            atom: index
            for index, at in zip(node.indices, place, strict=True)
            if isinstance(atom := at.atom, Axis) and index is not at
        }
        return _whole(substitute(local[node.tensor], moved), local, places, values)

    return substitute_loads(body, inlined)


LONGEST = 1 << 15
"""The most columns of a row that is kept in registers."""


def fits(space: RowSpace) -> bool:
    """Whether a row is kept in registers."""
    size = product(space.columns).constant
    return size is not None and size <= LONGEST


def rowwise(
    row: Row,
    outputs: Sequence[str],
    storages: Mapping[str, Storage],
    launched: Launched,
    wide: bool,
    origin: tuple[str, ...],
) -> Kernel:
    """A kernel of programs of `launched.block` = (rows, columns at a time) each."""
    return _Rows(row, outputs, storages, launched, wide).kernel(origin)


class _Rows:
    def __init__(
        self, row: Row, outputs: Sequence[str], storages: Mapping[str, Storage], launched: Launched, wide: bool
    ) -> None:
        self._row, self._outputs, self._storages, self._launched = row, outputs, storages, launched
        self._height, self._width = launched.block
        self._operands = Operands(wide)
        self._count = product(axis.extent for axis in row.rows)
        self._length = product(axis.extent for axis in row.columns)
        self._whole = self._length.constant is not None and self._length.constant <= self._width
        self._wide = wide

    def kernel(self, origin: tuple[str, ...]) -> Kernel:
        """The kernel."""
        height, width = self._height, self._width
        plain = Body(self._operands, {}, "[]")
        number = "tl.program_id(0).to(tl.int64)" if self._wide else "tl.program_id(0)"
        lines = [f"r = {number} * {height} + tl.arange(0, {height})[:, None]"]
        inside = mask_of("r", self._count, height, lines, plain, "rows")
        blocks = counted(self._row.rows, "r", lines, plain, prefix="r_", dimension=0, mask=inside)
        if self._whole:
            lines.append(f"c = tl.arange(0, {width})[None, :]")
            self._column_mask = mask_of("c", self._length, width, lines, plain, "columns")
            blocks |= counted(self._row.columns, "c", lines, plain, prefix="c_", dimension=1, mask=self._column_mask)
        body = Body(self._operands, blocks, f"[{height}, {width}]", self._reduced)
        self._store_all(body)
        grid = (ceildiv(self._count, height),)
        shape = " x ".join(str(axis.extent) for axis in (*self._row.rows, *self._row.columns))
        kept = "kept in registers" if self._whole else f"passed over {width} elements at a time"
        comment = f"Rows of {self._length} elements ({shape} in all), {height} a program, {kept}."
        roots = [self._storages[name].root for name in self._outputs]
        return kernel_of([*lines, *body.lines], self._operands, roots, grid, self._launched, "rows", origin, comment)

    # --------------------------------------------------------------------------------------------------- reductions

    def _reduced(self, node: Reduce, body: Body) -> str | None:
        if node.axes != self._row.columns:
            return None
        return self._at_once(node, body) if self._whole else self._in_passes(node, body)

    def _at_once(self, node: Reduce, body: Body) -> str:
        return self._collapsed(node, body, self._filled(node, body.value(node.body), self._column_mask), "c")

    def _in_passes(self, node: Reduce, body: Body) -> str:
        """A loop over parts of the columns, each lane of a part going on for itself, which are put together last."""
        result = body.name()
        part, start = body.name().replace("v", "part", 1), list[str]()
        mask = mask_of(part, self._length, self._width, start, body, f"{part}_inside")
        blocks = counted(self._row.columns, part, start, body, prefix=f"{part}_", dimension=1, mask=mask)

        def step() -> None:
            value = self._filled(node, body.value(node.body), mask)
            for line in body.stepped(node, result, value, part, mask):
                body.line(line)

        _, lines = body.inside(blocks, step)
        shape = f"[{self._height}, {self._width}]"
        for line in body.started(node, result, shape):
            body.line(line)
        body.line(f"for {part}_first in range(0, {body.dim(self._length)}, {self._width}):")
        body.line(f"{INDENT}{part} = {part}_first + tl.arange(0, {self._width})[None, :]")
        for line in (*start, *lines):
            body.line(INDENT + line)
        return self._collapsed(node, body, result, f"{result}_at")

    def _filled(self, node: Reduce, value: str, mask: str) -> str:
        start = neutral(node.kind, node.body.dtype)
        text = f'float("{start}")' if start in (float("inf"), -float("inf")) else repr(start)
        zeros = f"tl.full([{self._height}, {self._width}], {text}, {register(node.body.dtype)})"
        # Without a mask, too: what is reduced may depend on rows or on columns alone.
        return f"tl.where({mask or 'True'}, {value}, {zeros})"

    def _collapsed(self, node: Reduce, body: Body, value: str, position: str) -> str:
        """The reduction of a block along its columns."""
        name, dtype = body.name(), node.body.dtype
        body.line(f"{name} = {value}")
        kind = node.kind
        if REDUCTIONS[kind].position:
            return self._collapsed_position(kind, body, name, position, dtype)
        if dtype is DType.BOOL:
            function = "min" if kind in ("all", "min", "prod") else "max"
            return f"(tl.{function}({name}.to(tl.int8), axis=1)[:, None] != 0)"
        if kind == "prod":
            return f"tl.reduce({name}, 1, multiplied)[:, None]"
        text = f"tl.{kind}({name}, axis=1)[:, None]"
        if kind != "sum" and dtype.is_float:
            nan = f"tl.max(({name} != {name}).to(tl.int32), axis=1)[:, None] != 0"
            return f'tl.where({nan}, float("nan"), {text})'
        text = f"{text}.to({register(dtype)})" if dtype.is_integer else text
        return rounded(dtype, text) if dtype in HALVES else text

    def _collapsed_position(self, kind: str, body: Body, name: str, position: str, dtype: DType) -> str:
        side = "max" if "max" in kind else "min"
        best = f"tl.{side}({name}, axis=1)[:, None]"
        here = f"({name} == {best})"
        if dtype.is_float:
            nan = body.name()
            body.line(f"{nan} = tl.max(({name} != {name}).to(tl.int32), axis=1)[:, None] != 0")
            here = f"tl.where({nan}, {name} != {name}, {here})"
        if self._whole and self._column_mask:
            here = f"({here}) & {self._column_mask}"  # what is beyond the end is as little as the least
        at = f"tl.broadcast_to({position}, [{self._height}, {self._width}]).to(tl.int64)"
        if kind.endswith("_last"):
            return f"tl.max(tl.where({here}, {at}, -1), axis=1)[:, None]"
        return f"tl.min(tl.where({here}, {at}, {1 << 62}), axis=1)[:, None]"

    # ------------------------------------------------------------------------------------------------------- stores

    def _store_all(self, body: Body) -> None:
        columns = [name for name in self._outputs if self._has_columns(name)]
        for name in self._outputs:
            if name not in columns:
                self._store(body, name)
        if self._whole:
            for name in columns:
                self._store(body, name)
        elif columns:
            part, start = "c", list[str]()
            mask = mask_of(part, self._length, self._width, start, body, "columns")
            blocks = counted(self._row.columns, part, start, body, prefix=f"{part}_", dimension=1, mask=mask)
            _, lines = body.inside(blocks, lambda: [self._store(body, name) for name in columns])
            body.line(f"for c_first in range(0, {body.dim(self._length)}, {self._width}):")
            body.line(f"{INDENT}c = c_first + tl.arange(0, {self._width})[None, :]")
            for line in (*start, *lines):
                body.line(INDENT + line)

    def _has_columns(self, name: str) -> bool:
        return any(place.atom in self._row.columns for place in self._row.places[name])

    def _store(self, body: Body, name: str) -> None:
        storage, dtype = self._storages[name], self._row.dtypes[name]
        value = body.value(self._row.values[name])
        address = storage.address(self._row.places[name])
        pointer = self._operands.pointer(storage.root, dtype, "y")
        axes = (*self._row.rows, *(self._row.columns if self._has_columns(name) else ()))
        body.line(body.stored(pointer, address, axes, converted(value, dtype)))

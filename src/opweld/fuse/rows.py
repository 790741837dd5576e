"""Row spaces: tensors that run over the same rows, some of them reducing along the columns."""

from __future__ import annotations

from dataclasses import dataclass, field

from opweld.fuse.region import reductions
from opweld.tensor.dim import Axis, Dim, Value
from opweld.tensor.expr import Load, Reduce, free_atoms, loads
from opweld.tensor.program import Tensor


@dataclass(eq=False)
class RowSpace:
    """Rows (axes kept by the reductions) and columns (axes reduced), and the tensors that live on them.

    `places` says, for each tensor, which row or column axis each of its own axes is: ("row", 0), ("column", 1), or
    None for an axis of extent one."""

    rows: tuple[Dim, ...]
    columns: tuple[Dim, ...]
    tensors: list[Tensor] = field(default_factory=list[Tensor])
    places: dict[str, tuple[tuple[str, int] | None, ...]] = field(
        default_factory=dict[str, tuple[tuple[str, int] | None, ...]]
    )

    @property
    def anchor(self) -> Tensor:
        """The reduction that the space was made for; producers stand before it."""
        return next(tensor for tensor in self.tensors if reductions(tensor.body))

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors' names, in order."""
        return tuple(tensor.name for tensor in self.tensors)

    @staticmethod
    def of(tensor: Tensor) -> RowSpace:
        """The space of a first tensor: its own axes are the rows, the axes it reduces the columns."""
        found = reductions(tensor.body)
        columns = found[0].axes
        rows = tuple(axis for axis in tensor.axes if axis.extent.constant != 1)
        space = RowSpace(tuple(a.extent for a in rows), tuple(a.extent for a in columns))
        space.tensors.append(tensor)
        space.places[tensor.name] = tuple(("row", rows.index(axis)) if axis in rows else None for axis in tensor.axes)
        return space

    def columns_of(self, tensor: Tensor) -> dict[Axis, tuple[str, int]] | None:
        """Where each axis of a member (its own and reduced ones) lies; None when it does not fit the space."""
        known: dict[Axis, tuple[str, int]] = {}
        picks = False
        for node in loads(tensor.body):
            if node.tensor in self.places:
                if not self._match(node, known):
                    return None
                picks = picks or self._picks(node)
        reduced = [axis for reduce in reductions(tensor.body) for axis in reduce.axes]
        for reduce in reductions(tensor.body):
            if not self._place_rest(reduce.axes, "column", self.columns, known):
                return None
        rest = [axis for axis in tensor.axes if axis.extent.constant != 1 and axis not in known]
        taken = {place for axis, place in known.items() if axis in tensor.axes}
        free = [("row", i) for i in range(len(self.rows)) if ("row", i) not in taken]
        free += [("column", i) for i in range(len(self.columns)) if ("column", i) not in taken and not reduced]
        for axis in rest:
            place = next((p for p in free if self._extent(p) is axis.extent), None)
            if place is None:
                return None
            known[axis] = place
            free.remove(place)
        if picks and any(place[0] == "column" for place in known.values()):
            return None
        return None if any(_keeps_a_column(reduce, known) for reduce in reductions(tensor.body)) else known

    def picks(self, tensor: Tensor) -> bool:
        """Whether the tensor reads a member at a column that it looks up, as a loss does at its target. One value a row
        can: the passes that it needs are over by then. What has a value for each column reads members at its own."""
        return any(self._picks(node) for node in loads(tensor.body) if node.tensor in self.places)

    def _picks(self, node: Load) -> bool:
        places = zip(node.indices, self.places[node.tensor], strict=True)
        return any(place is not None and place[0] == "column" and _is_looked_up(dim) for dim, place in places)

    def _extent(self, place: tuple[str, int]) -> Dim:
        return self.rows[place[1]] if place[0] == "row" else self.columns[place[1]]

    def _match(self, node: Load, known: dict[Axis, tuple[str, int]]) -> bool:
        if node.guards:
            return False
        for dim, place in zip(node.indices, self.places[node.tensor], strict=True):
            if place is None:
                if dim.constant != 0:
                    return False
                continue
            if place[0] == "column" and _is_looked_up(dim):
                continue
            axis = dim.atom
            if not isinstance(axis, Axis) or axis.extent is not self._extent(place):
                return False
            if known.setdefault(axis, place) != place:
                return False
        return True

    def _place_rest(
        self, axes: tuple[Axis, ...], role: str, extents: tuple[Dim, ...], known: dict[Axis, tuple[str, int]]
    ) -> bool:
        """Reduced axes are exactly the columns, each once."""
        if len(axes) != len(extents):
            return False
        for position, axis in enumerate(axes):
            place = known.get(axis, (role, position))
            if place[0] != role or self._extent(place) is not axis.extent:
                return False
            known[axis] = place
        return len({known[axis] for axis in axes}) == len(axes)

    def accepts(self, tensor: Tensor) -> bool:
        """Whether the tensor runs over exactly these rows, and reads members only at its own place in the row."""
        known = self.columns_of(tensor)
        if known is None:
            return False
        own = {known[axis] for axis in tensor.axes if axis in known}
        rows = {("row", i) for i in range(len(self.rows))}
        columns = {("column", i) for i in range(len(self.columns))}
        # one element a row (a reduction or a scalar of the row) or all elements of the row
        return own in (rows, rows | columns) and len(own) == sum(a.extent.constant != 1 for a in tensor.axes)

    def add(self, tensor: Tensor) -> None:
        """Adds an accepted tensor after those it reads."""
        known = self.columns_of(tensor)
        assert known is not None
        self.tensors.append(tensor)
        self.places[tensor.name] = tuple(known.get(axis) for axis in tensor.axes)

    def places_in(self, tensor: Tensor) -> dict[Axis, tuple[str, int] | None]:
        """Where in the row each own and reduced axis of a member is, as far as that is known."""
        known: dict[Axis, tuple[str, int] | None] = dict(zip(tensor.axes, self.places[tensor.name], strict=True))
        reduced = reductions(tensor.body)
        if tensor is self.anchor:
            return known | {axis: ("column", n) for n, axis in enumerate(reduced[0].axes)}
        columns = self.columns_of(tensor) or {}
        return known | {axis: columns[axis] for node in reduced for axis in node.axes if axis in columns}

    def accepts_producer(self, source: Tensor) -> bool:
        """Whether each load of the source by the anchor reads it at the current place in the row. Producers do not read
        each other: they would need an order, and places of their own."""
        others = self.tensors[: self.tensors.index(self.anchor)]
        if any(_reads(other, source) or _reads(source, other) for other in others):
            return False
        found = self._places_of_source(source)
        return found is not None and len({p for p in found if p}) == len(self.rows) + len(self.columns)

    def accepts_row_value(self, source: Tensor) -> bool:
        """Whether the source has one value a row, and each load of it by a member reads that of the current one."""
        found = self._places_of_source(source)
        own = [place for place in found or () if place is not None]
        return (
            found is not None and len(own) == len(set(own)) and set(own) == {("row", n) for n in range(len(self.rows))}
        )

    def _places_of_source(self, source: Tensor) -> tuple[tuple[str, int] | None, ...] | None:
        """The places of a tensor that members read, if they agree."""
        found: tuple[tuple[str, int] | None, ...] | None = None
        for member in self.tensors:
            sites = [node for node in loads(member.body) if node.tensor == source.name]
            if not sites:
                continue
            known = self.places_in(member)
            for node in sites:
                places: list[tuple[str, int] | None] = []
                for dim, axis in zip(node.indices, source.axes, strict=True):
                    if axis.extent.constant == 1:
                        places.append(None)
                        continue
                    atom = dim.atom
                    place = known.get(atom) if isinstance(atom, Axis) and atom.extent is axis.extent else None
                    if place is None:
                        return None
                    places.append(place)
                if node.guards or (found is not None and tuple(places) != found):
                    return None
                found = tuple(places)
        return found

    def add_source(self, source: Tensor) -> None:
        """Adds an accepted producer or value of a row before all that read it."""
        places = self._places_of_source(source)
        assert places is not None
        first = next(n for n, member in enumerate(self.tensors) if _reads(member, source))
        self.tensors.insert(0 if self.tensors[first] is self.anchor else first, source)
        self.places[source.name] = places

    def misfit(self, tensor: Tensor) -> str | None:
        """Which axis or load keeps a tensor from these rows; None when it is accepted."""
        if self.accepts(tensor):
            return None
        extents = {*self.rows, *self.columns}
        reduced = [axis for reduce in reductions(tensor.body) for axis in reduce.axes]
        for axis in (*tensor.axes, *reduced):
            if axis.extent.constant != 1 and axis.extent not in extents:
                return f"axis {axis.name} of {tensor.name} has {axis.extent} elements, which no row or column has"
        for axis in reduced:
            if axis.extent not in self.columns:
                return f"{tensor.name} reduces over the rows, which iterations of their own compute"
        for extent in self.rows:
            if all(axis.extent is not extent for axis in tensor.axes):
                return f"{tensor.name} has no axis for the {extent} rows"
        return f"{tensor.name} does not read the row at its own place in it"


def _is_looked_up(dim: Dim) -> bool:
    """Whether an index is a value computed at run time, or always the same."""
    return dim.constant is not None or isinstance(dim.atom, Value)


def _reads(tensor: Tensor, source: Tensor) -> bool:
    return any(node.tensor == source.name for node in loads(tensor.body))


def _keeps_a_column(reduce: Reduce, known: dict[Axis, tuple[str, int]]) -> bool:
    """Whether a reduction differs from column to column: it cannot walk the columns and stay at one of them."""
    return any(known[axis][0] == "column" for axis in free_atoms(reduce) if isinstance(axis, Axis) and axis in known)

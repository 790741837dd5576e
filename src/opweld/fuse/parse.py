"""The parser of regions. `text.py` describes the format."""

from __future__ import annotations

from opweld.fuse.region import Block, Kind, Member, Reach, Region, Regions
from opweld.fuse.rows import RowSpace
from opweld.tensor.dim import Axis, Dim
from opweld.tensor.parse import Data, Parser
from opweld.tensor.program import Extern, Item, Scan, Tensor, TensorProgram, item_outputs

_KINDS = {kind.value: kind for kind in Kind}


def parse_regions(text: str, constants: Data | None = None) -> Regions:
    """The regions that a text says, with the data of constants by name.

    Raises OpweldError with the line of what is not understood."""
    parser = RegionsParser(text, constants or {})
    return parser.whole(parser.regions)


class RegionsParser(Parser):
    """Reads a program and its regions; parsers of what is told of regions derive from it."""

    form = "regions"

    def __init__(self, text: str, constants: Data) -> None:
        super().__init__(text, constants)
        self.items: dict[str, Item] = {}

    def regions(self) -> Regions:
        """The whole text."""
        program = self._own_program()
        found: list[Region] = []
        while self.position < len(self.tokens):
            self._expect("region")
            found.append(self._region())
        return Regions(program, tuple(found))

    def _own_program(self) -> TensorProgram:
        program = self._program()
        self.items = {name: item for item in program.items for name in item_outputs(item)}
        return program

    def _region(self) -> Region:
        outputs = self._names()
        extern = self._extern_of(outputs[0]) if self._accept("extern") else None
        head = self._scan_head() if self._accept("scan") else None
        if head is None:
            self.axes = {}
        row = self._block_row()
        reach = Reach() if row is None else self._reach()
        shared = self._space() if row is not None and self._accept("space") else None
        members: list[Member] = []
        rows: list[dict[Axis, int]] = []
        while self._accept("member"):
            members.append(self._member())
            rows.append(self._rows() if row is not None else {})
        scan = None
        if head is not None:
            time, origin, states = head
            stacked, final = self._scan_tail()
            steps = tuple(tensor for member in members for tensor in member.tensors)
            scan = Scan(time, states, steps, stacked, final, origin)
        block = None
        if row is not None:
            space = next((member.space for member in members if member.space is not None), shared)
            if space is None:
                self._fail("a member with a space")
            block = Block(space, row, tuple(rows), reach)
        return Region(tuple(members), outputs, scan, block, extern)

    def _names(self) -> tuple[str, ...]:
        names = [self._name()]
        while self._accept(","):
            names.append(self._name())
        return tuple(names)

    def _extern_of(self, name: str) -> Extern:
        item = self.items.get(name)
        if not isinstance(item, Extern):
            self.position -= 1
            self._fail(f"members, since {name!r} comes from no extern")
        return item

    def _block_row(self) -> int | None:
        if not self._accept("block"):
            return None
        self._expect("row")
        return self._integer()

    def _reach(self) -> Reach:
        if not self._accept("reach"):
            return Reach()
        self._expect("(")
        numbers = list(self._list(")", self._integer))
        if len(numbers) != 3:
            self._fail("three integers")
        return Reach(*numbers)

    def _member(self) -> Member:
        if not self._next_is(*_KINDS):
            self._fail(f"one of {', '.join(_KINDS)}")
        kind = _KINDS[self._take("name", "a kind")]
        space = self._space() if self._accept("space") else None
        tensors: list[Tensor] = []
        indices: tuple[Dim, ...] | None = None
        while self._next_is("tensor", "same"):
            if self._accept("same"):
                tensors.append(self._same())
                continue
            self._expect("tensor")
            tensors.append(self._tensor())
            if self._accept("place"):
                self._expect("[")
                indices = tuple(self._list("]", self._dim))
            self._of_tensor(tensors[-1])
        if not tensors:
            self._fail("a tensor of the member")
        if space is not None:
            space.tensors.extend(tensors)
        return Member(kind, tuple(tensors), indices, space)

    def _same(self) -> Tensor:
        name = self._name()
        item = self.items.get(name)
        if not isinstance(item, Tensor):
            self.position -= 1
            self._fail("a tensor of the program")
        # What is told of it names its axes by their position.
        time = {known: axis for known, axis in self.axes.items() if known.startswith("t")}
        self.axes = time | {f"i{position}": axis for position, axis in enumerate(item.axes)}
        return item

    def _of_tensor(self, tensor: Tensor) -> None:
        """Reads what else is told of a tensor, whose axes are known."""

    def _space(self) -> RowSpace:
        self._expect("rows")
        self._expect("(")
        rows = tuple(self._list(")", self._dim))
        self._expect("columns")
        self._expect("(")
        space = RowSpace(rows, tuple(self._list(")", self._dim)))
        while self._accept("at"):
            name = self._name()
            self._expect("(")
            space.places[name] = tuple(self._list(")", self._row_or_column))
        return space

    def _row_or_column(self) -> tuple[str, int] | None:
        if self._accept("one"):
            return None
        if not self._next_is("row", "column"):
            self._fail("row, column or one")
        return self._take("name", "row or column"), self._integer()

    def _rows(self) -> dict[Axis, int]:
        found: dict[Axis, int] = {}
        if self._accept("rows"):
            while not found or self._accept(","):
                axis = self._known_axis()
                self._expect(":")
                found[axis] = self._integer()
        return found

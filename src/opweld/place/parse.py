"""The parser of placed regions. `text.py` describes the format."""

from __future__ import annotations

from opweld.fuse.parse import RegionsParser
from opweld.fuse.region import Region
from opweld.place.lanes import Lanes
from opweld.place.placed import Placed
from opweld.place.storage import Storage, Term
from opweld.tensor.dim import ZERO
from opweld.tensor.expr import Expr, Load
from opweld.tensor.parse import Data
from opweld.tensor.program import Tensor


def parse_placed(text: str, constants: Data | None = None) -> Placed:
    """Parses placed regions, with the data of constants by name.

    Raises OpweldError with the line of a syntax error."""
    parser = _PlacedParser(text, constants or {})
    return parser.whole(parser.placed)


class _PlacedParser(RegionsParser):
    form = "placed regions"

    def __init__(self, text: str, constants: Data) -> None:
        super().__init__(text, constants)
        self.lanes: dict[str, Lanes] = {}

    def placed(self) -> Placed:
        """Parses the whole text."""
        program = self._own_program()
        known = {constant.name: constant for constant in program.constants}
        while self._accept("packed"):
            constant = self._constant()
            known[constant.name] = constant
        regions: list[Region] = []
        while self._accept("region"):
            regions.append(self._region())
        self.axes = {}
        storages: dict[str, Storage] = {}
        while self.position < len(self.tokens):
            self._expect("value")
            name = self._name()
            storages[name] = self._storage(name)
        return Placed(program, tuple(regions), storages, known, self.lanes)

    def _of_tensor(self, tensor: Tensor) -> None:
        if not self._accept("lanes"):
            return
        axis = None if self._accept("one") else self._known_axis()
        self._expect("vectors")
        vectors = self._integer()
        along = self._operand() if self._accept("along") else None
        across = self._operand() if self._accept("across") else None
        winograd = self._name() if self._accept("winograd") else ""
        self.lanes[tensor.name] = Lanes(axis, vectors, along, across, winograd)

    def _operand(self) -> Load:
        start = self.position
        node = self._expression()
        if not isinstance(node, Load):
            self.position = start
            self._fail("a load")
        return node

    def _storage(self, name: str) -> Storage:
        dtype = self._dtype()
        self._expect("[")
        elements = self._dim()
        self._expect("]")
        root = self._name() if self._accept("in") else name
        offset = self._dim() if self._accept("at") else ZERO
        terms = self._terms() if self._accept("of") else ()
        pairs_fit = self._accept("pairs")
        if pairs_fit:
            self._expect("fit")
        halo: tuple[tuple[int, int], ...] = ()
        fill: Expr | None = None
        if self._accept("halo"):
            halo = self._halo()
            self._expect("fill")
            self.dtype = dtype
            fill = self._expression()
        return Storage(root, dtype, terms, offset, elements, halo, fill, pairs_fit)

    def _terms(self) -> tuple[Term, ...]:
        terms = [self._term()]
        while self._accept(","):
            terms.append(self._term())
        return tuple(terms)

    def _term(self) -> Term:
        axis = self._take("name", "an axis")
        if not (axis.startswith("i") and axis[1:].isdigit()):
            self.position -= 1
            self._fail("an axis (i0, i1, ..)")
        shift = self._integer() if self._accept("+") else 0
        divisor = self._integer() if self._accept("//") else 1
        modulus = self._integer() if self._accept("%") else None
        self._expect("by")
        return Term(int(axis[1:]), self._dim(), divisor, modulus, shift)

    def _halo(self) -> tuple[tuple[int, int], ...]:
        found: list[tuple[int, int]] = []
        while not found or self._accept(","):
            self._expect("(")
            low = self._integer()
            self._expect(",")
            found.append((low, self._integer()))
            self._expect(")")
        return tuple(found)

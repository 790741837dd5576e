"""The C function that binds a variant to shapes: it checks every assumption and evaluates every size."""

from __future__ import annotations

from collections.abc import Mapping

from opweld.codegen.c.literals import integer_literal, shortened, string_literal
from opweld.tensor.dim import Atom, Dim, FloorDiv, Max, Min, Mod, Symbol, as_dim, symbols_of
from opweld.tensor.dtype import DType
from opweld.tensor.program import Guard, Input, SymbolSource
from opweld.tile.module import ModuleVariant

_ELEMENT = {
    DType.I64: "int64_t",
    DType.I32: "int32_t",
    DType.I16: "int16_t",
    DType.I8: "int8_t",
    DType.U8: "uint8_t",
    DType.BOOL: "uint8_t",
    DType.U16: "uint16_t",
    DType.U32: "uint32_t",
}


class Binder:
    """Collects the guards and slots of one variant; `render` writes its `bind` function."""

    def __init__(self, variant: ModuleVariant, input_names: tuple[str, ...], free_ranks: frozenset[str]) -> None:
        self.guards: list[str] = []
        self._variant = variant
        self._sources = {source.symbol: source for source in variant.symbols}
        self._positions = {name: position for position, name in enumerate(input_names)}
        self._free_ranks = free_ranks
        self._slots: dict[Dim, int] = {}
        self._sizes = Sizes()
        self._checks()

    def slot(self, dim: Dim) -> int:
        """The number of the slot that holds a size."""
        found = self._slots.get(dim)
        if found is None:
            found = len(self._slots)
            self._slots[dim] = found
            self._sizes.lines.append(f"slots[{found}] = {self._sizes.value(dim)};")
        return found

    @property
    def slot_count(self) -> int:
        """How many slots there are."""
        return len(self._slots)

    def render(self, name: str) -> str:
        """The C function."""
        lines = ["(void)inputs, (void)slots;", *self._sizes.lines, "return 0;"]
        body = "\n".join("    " + line for line in lines)
        return f"static OPW_ONCE int32_t {name}(const opw_tensor *inputs, int64_t *slots) {{\n{body}\n}}\n"

    # ---- assumptions -------------------------------------------------------------------------------------------------

    def _checks(self) -> None:
        for value in self._variant.inputs:
            if value.name in self._free_ranks:
                rank = len(value.shape)
                self._require(f"inputs[{self._at(value)}].rank == {rank}", f"{_input(value)} must have rank {rank}")
            for axis, dim in enumerate(value.shape):
                if dim.constant is not None:
                    here = f"inputs[{self._at(value)}].shape[{axis}]"
                    self._require(f"{here} == {dim}", f"{_input(value)} dim {axis} must be {dim}")
        inputs = {value.name: value for value in self._variant.inputs}
        taken: set[tuple[str, int]] = set()
        for source in self._variant.symbols:
            self._symbol(source, inputs[source.input])
            if not source.by_value:
                taken.add((source.input, source.position))
        for value in self._variant.inputs:
            for axis, dim in enumerate(value.shape):
                if dim.constant is None and (value.name, axis) not in taken:
                    here = f"inputs[{self._at(value)}].shape[{axis}]"
                    text = f"{_input(value)} dim {axis} must be {dim}{self._where(dim)}"
                    self._require(f"{here} == {self._sizes.value(dim)}", text)
        for guard in self._variant.guards:
            sign = {"zero": "==", "nonzero": "!=", "least": ">="}[guard.kind]
            self._require(f"{self._sizes.value(guard.dim)} {sign} 0", self._explain(guard))

    def _symbol(self, source: SymbolSource, value: Input) -> None:
        position = self._at(value)
        if source.by_value:
            element = _ELEMENT.get(value.dtype)
            if element is None:
                raise ValueError(f"input {value.name!r}: a size cannot be read from elements of type {value.dtype!r}")
            count = as_dim(1)
            for dim in value.shape:
                count = count * dim
            if count.constant is None:
                enough = f"{_input(value)} must have more than {source.position} elements"
                self._require(f"{self._sizes.value(count)} > {source.position}", enough)
            what = f"{_input(value)} element {source.position}"
            here = f"((const {element} *)inputs[{position}].data)[{source.position}]"
        else:
            what, here = f"{_input(value)} dim {source.position}", f"inputs[{position}].shape[{source.position}]"
        name = f"n{len(self._sizes.names)}"
        reason = f" ({source.reason})" if source.reason else ""
        if source.divisor != 1:
            self._require(f"{here} % {source.divisor} == 0", f"{what} must be a multiple of {source.divisor}{reason}")
        divide = "" if source.divisor == 1 else f" / {source.divisor}"
        self._sizes.lines.append(f"const int64_t {name} = {here}{divide};")
        self._sizes.define(source.symbol, name)
        if source.symbol.least is not None:
            least = source.symbol.least * source.divisor
            self._require(f"{name} >= {source.symbol.least}", f"{what} must be at least {least}{reason}")

    def _require(self, condition: str, text: str) -> None:
        self.guards.append(text)
        self._sizes.lines.append(f"if (!({condition})) return {len(self.guards)};")

    def _at(self, value: Input) -> int:
        return self._positions[value.name]

    def _explain(self, guard: Guard) -> str:
        more = as_dim(0)
        for monomial, coefficient in guard.dim.terms:
            if coefficient > 0:
                term = as_dim(coefficient)
                for atom in monomial:
                    term = term * atom.dim
                more = more + term
        less = more - guard.dim
        relation = {"zero": "must equal", "nonzero": "must not equal", "least": "must be at least"}[guard.kind]
        reason = f": {guard.reason}" if guard.reason else ""
        return f"{shortened(repr(more))} {relation} {shortened(repr(less))}{self._where(guard.dim)}{reason}"

    def _where(self, dim: Dim) -> str:
        """Says what the symbols of a polynomial are."""
        parts: list[str] = []
        for symbol in sorted(symbols_of(dim), key=_name):
            source = self._sources.get(symbol)
            if source is None:
                continue
            what = "element" if source.by_value else "dim"
            divided = f" / {source.divisor}" if source.divisor != 1 else ""
            parts.append(f'{symbol.name} is input "{shortened(source.input)}" {what} {source.position}{divided}')
        return f" where {', '.join(parts)}" if parts else ""


def _name(symbol: Symbol) -> str:
    return symbol.name


def _input(value: Input) -> str:
    return f'input "{shortened(value.name)}"'


def guard_table(guards: list[str]) -> list[str]:
    """The guards' texts as C string literals."""
    return [string_literal(shortened(text, 1000)) for text in guards]


class Sizes:
    """Writes statements that evaluate polynomials; on overflow they return -1 from the function they stand in."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[Atom, str] = {}
        self._known: dict[tuple[str, str, str], str] = {}

    def define(self, atom: Atom, name: str) -> None:
        """Says which C variable holds a symbol."""
        self._names[atom] = name

    @property
    def names(self) -> Mapping[Atom, str]:
        """The C variables of the symbols defined so far."""
        return self._names

    def value(self, dim: Dim) -> str:
        """A C operand with the polynomial's value."""
        total = ""
        for monomial, coefficient in dim.terms:
            product = ""  # of the atoms first: that is the same for many coefficients
            for atom in monomial:
                name = self._atom(atom)
                product = self._checked("mul", product, name) if product else name
            if coefficient != 1 or not product:
                factor = integer_literal(coefficient)
                product = self._checked("mul", product, factor) if product else factor
            total = self._checked("add", total, product) if total else product
        return total or "0"

    def _atom(self, atom: Atom) -> str:
        found = self._names.get(atom)
        if found is not None:
            return found
        if not isinstance(atom, FloorDiv | Mod | Min | Max):
            raise ValueError(f"{atom} is not known when shapes are bound")
        left, right = self.value(atom.left), self.value(atom.right)
        function = {FloorDiv: "opw_floordiv", Mod: "opw_mod", Min: "opw_min", Max: "opw_max"}[type(atom)]
        if isinstance(atom, FloorDiv | Mod) and atom.right.constant is None:
            self.lines.append(f"if ({right} <= 0) return -1;")
        name = f"t{len(self._known)}"
        self._known[function, left, right] = name
        self.lines.append(f"const int64_t {name} = {function}({left}, {right});")
        self._names[atom] = name
        return name

    def _checked(self, operation: str, left: str, right: str) -> str:
        key = (operation, left, right)
        found = self._known.get(key)
        if found is None:
            found = f"t{len(self._known)}"
            self._known[key] = found
            self.lines.append(f"int64_t {found};")
            check = f"__builtin_{operation}_overflow((int64_t){left}, (int64_t){right}, &{found})"
            self.lines.append(f"if ({check}) return -1;")
        return found

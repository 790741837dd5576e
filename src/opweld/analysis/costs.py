"""The costs in a record evaluated for given sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from opweld.errors import ArtifactError, OptionError, OpweldError
from opweld.ledger import printable
from opweld.record import Costs, Record, Size, VariantEntry
from opweld.schedule.expected import Expected
from opweld.tensor.dim import ZERO, Dim, Symbol, as_dim
from opweld.tensor.parse import parse_size


@dataclass(frozen=True)
class Amount:
    """A number, and the formula of symbolic sizes from which it was evaluated, or the number as text."""

    value: int
    formula: str

    def to_json(self) -> dict[str, Any]:
        """As JSON types."""
        return {"value": self.value, "formula": self.formula}


@dataclass(frozen=True)
class Amounts:
    """Operations and bytes, see `record.Costs`."""

    flops: Amount
    macs: Amount
    special: Amount
    integer: Amount
    read: Amount
    written: Amount

    @property
    def moved(self) -> int:
        """Bytes read and written."""
        return self.read.value + self.written.value

    @property
    def intensity(self) -> float:
        """Floating-point operations per byte moved; 0 if none is."""
        return self.flops.value / self.moved if self.moved else 0.0

    def to_json(self) -> dict[str, Any]:
        """As JSON types."""
        return {name: getattr(self, name).to_json() for name in NAMES} | {"intensity": self.intensity}


NAMES = tuple(field.name for field in fields(Amounts))


class Evaluation:
    """The formulas of a variant at sizes.

    Attributes:
        variant: the variant. sizes: of each symbol.
    """

    def __init__(self, variant: VariantEntry, given: Mapping[str, int]) -> None:
        self.variant = variant
        self.sizes = {name: _size(variant, name, given) for name in variant.sizes}
        self._symbols = {name: Symbol(name, None) for name in variant.sizes}
        self._values = Expected({self._symbols[name]: size for name, size in self.sizes.items()})
        self._usual = Expected({self._symbols[name]: size for name, size in variant.sizes.items()})
        self._read: dict[str, Dim] = {}

    def dim(self, size: Size) -> Dim:
        """A size as a polynomial. Raises ArtifactError for an invalid text."""
        if isinstance(size, int):
            return as_dim(size)
        if size not in self._read:
            try:
                self._read[size] = parse_size(size, self._symbols)
            except OpweldError as error:
                raise ArtifactError(
                    f"graph.json: {size[:80]!r} is not a size ({error}); compile the model again"
                ) from error
        return self._read[size]

    def amount(self, size: Size | Dim) -> Amount:
        """The value of a size."""
        dim = size if isinstance(size, Dim) else self.dim(size)
        return Amount(self._values(dim), str(dim))

    def dims(self) -> dict[str, int]:
        """The sizes of the dims, by their names in the model."""
        return {
            dim_of(self.variant, name): size * self.variant.symbols[name].divisor
            for name, size in self.sizes.items()
            if name in self.variant.symbols
        }

    def growth(self, size: Size) -> float:
        """The ratio of a size to its value at the expected sizes; 1 if that is zero."""
        dim = self.dim(size)
        usual = self._usual(dim)
        return self._values(dim) / usual if usual else 1.0

    def total(self, sizes: Iterable[Size]) -> Amount:
        """The sum of sizes."""
        return self.amount(sum(map(self.dim, sizes), ZERO))

    def amounts(self, costs: Iterable[Costs]) -> Amounts:
        """The sum of costs."""
        found = list(costs)
        return Amounts(*(self.total(getattr(one, name) for one in found) for name in NAMES))


def together(parts: Sequence[Amount]) -> Amount:
    """The sum of amounts of several variants: which have different symbols."""
    formulas = [part.formula for part in parts if part.formula != "0"]
    value = sum(part.value for part in parts)
    return Amount(value, str(value) if all(text.isdigit() for text in formulas) else " + ".join(formulas))


def evaluations(record: Record, given: Mapping[str, int]) -> dict[str, Evaluation]:
    """An evaluation for each variant that accepts these sizes, by name; `given` are sizes of dims, others are the
    expected ones.

    Raises OptionError for a dim that the model does not have, and for sizes that no variant of a segment takes."""
    known = {dim_of(variant, name): None for variant in record.variants for name in variant.sizes}
    for name in given:
        if name not in known:
            names = ", ".join(map(printable, known)) or "none"
            raise OptionError(f"--dim {printable(name)}: the model has no symbolic dim of that name, only {names}")
    found: dict[str, Evaluation] = {}
    refused: dict[int, OptionError] = {}
    for variant in record.variants:
        try:
            found[variant.name] = Evaluation(variant, given)
        except OptionError as error:
            refused.setdefault(variant.segment, error)
    for segment, error in refused.items():
        if not any(variant.name in found for variant in record.variants if variant.segment == segment):
            raise error
    return found


def fed_sizes(record: Record, feeds: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of dims, by name, from input arrays: from their shapes, and from elements of inputs that are sizes."""
    found: dict[str, int] = {}
    for variant in record.variants:
        for name, symbol in variant.symbols.items():
            if symbol.input in feeds:
                array = feeds[symbol.input]
                size = array.reshape(-1)[symbol.position] if symbol.by_value else array.shape[symbol.position]
                found[dim_of(variant, name)] = int(size)
    return found


def dim_of(variant: VariantEntry, symbol: str) -> str:
    """The dim of which a symbol is the size or a quotient, by the model's name, or opweld's if it has none."""
    entry = variant.symbols.get(symbol)
    if entry is None:
        return symbol
    return entry.dim or (symbol if entry.divisor == 1 else symbol.removesuffix(f"_by_{entry.divisor}"))


def _size(variant: VariantEntry, symbol: str, given: Mapping[str, int]) -> int:
    size = given.get(dim_of(variant, symbol))
    if size is None:
        return variant.sizes[symbol]
    divisor = variant.symbols[symbol].divisor if symbol in variant.symbols else 1
    if size % divisor:
        raise OptionError(f"--dim {printable(dim_of(variant, symbol))}={size}: the model takes multiples of {divisor}")
    return size // divisor

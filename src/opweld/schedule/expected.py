"""The sizes that symbolic dims are expected to have: for costs only, never for legality.

A user says them with `--dim-hint`. Otherwise the first dim of an input is a batch, of one; the dims of an image (the
third and later of four or more) are 256; every other is 64, or what the model needs at least.
What a variant assumes to be one number is that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from opweld.errors import OptionError
from opweld.interface import plain_name
from opweld.tensor.dim import Atom, Dim, Symbol, axes_of, symbols_of
from opweld.tensor.program import SymbolSource, TensorProgram

BATCH = 1
IMAGE = 256
LENGTH = 64
LONGEST = 1 << 16
BATCHES = (8, 64)
"""Batches at which alternatives are priced beside an expected batch of one that may be any: at one row many ways to
compute take the same time. Other lengths of sequences changed no choice (measured)."""
ELSEWHERE = 0.5
"""How much of what an alternative loses at other sizes counts beside what it takes at the expected ones."""


class Expected:
    """Evaluates sizes at the expected values of their symbols. `told` are those whose value a user said, or that is the
    only one in this variant."""

    def __init__(self, symbols: Mapping[Symbol, int] | None = None, told: Iterable[Symbol] = ()) -> None:
        self._values: dict[Atom, int] = dict[Atom, int]((symbols or {}).items())
        self._told = frozenset(told)
        self._found: dict[Dim, int] = {}

    def __call__(self, size: Dim) -> int:
        """The expected value of a size, at least zero; where it depends on a loop, that of its beginning."""
        if size.constant is not None:
            return max(0, size.constant)
        found = self._found.get(size)
        if found is None:
            found = self._found[size] = self._evaluated(size)
        return found

    def _evaluated(self, size: Dim) -> int:
        for symbol in symbols_of(size):
            self._values.setdefault(symbol, LENGTH)
        axes = axes_of(size)
        values = self._values | dict.fromkeys(axes, 0) if axes else self._values
        try:
            return max(0, size.evaluate(values))
        except ZeroDivisionError:
            # What is expected may lie outside of the guards: a part of nothing.
            return 0

    def known(self, size: Dim) -> int | None:
        """The value of a size that is fixed, or of which it is told; None where any may come."""
        return self(size) if symbols_of(size) <= self._told and not axes_of(size) else None

    def where(self, symbol: Symbol, size: int) -> Expected:
        """The same where a symbol is known to have this value."""
        values = {atom: value for atom, value in self._values.items() if isinstance(atom, Symbol)}
        return Expected({**values, symbol: size}, {*self._told, symbol})

    def elsewhere(self, sizes: Iterable[Dim]) -> tuple[Expected, ...]:
        """Other values of the symbols of these sizes that are expected to be one, and may be anything; none where there
        are no such symbols."""
        values = {atom: value for atom, value in self._values.items() if isinstance(atom, Symbol)}
        symbols = {symbol for size in sizes for symbol in symbols_of(size)} - self._told
        free = [symbol for symbol in symbols if values.get(symbol) == BATCH]
        return tuple(Expected(values | dict.fromkeys(free, size), self._told) for size in BATCHES if free)

    def weighed(self, sizes: Iterable[Dim], seconds: Callable[[Expected], Mapping[str, float]]) -> dict[str, float]:
        """Seconds of alternatives, by a closed form that depends on these sizes, weighed beside those elsewhere."""
        return weighed(seconds(self), [seconds(other) for other in self.elsewhere(sizes)])

    def product(self, sizes: Iterable[Dim]) -> int:
        """The expected value of a product of sizes."""
        total = 1
        for size in sizes:
            total *= self(size)
        return total


def weighed(seconds: Mapping[str, float], elsewhere: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Seconds of alternatives at the expected sizes, times what they lose against the best of them at other sizes."""
    lost = dict.fromkeys(seconds, 0.0)
    for others in elsewhere:
        least = min(others.values())
        for name, other in others.items():
            lost[name] += (other / least - 1) / len(elsewhere) if least else 0.0
    return {name: value * (1 + ELSEWHERE * lost[name]) for name, value in seconds.items()}


def expected_sizes(program: TensorProgram, hints: Mapping[str, int] | None = None) -> Expected:
    """The expected sizes of a program's symbols; a hint is the size of the dim, not of its quotient.

    Where sizes leave a value without elements, others are expected: of a first dim that is no batch, as of what is left
    of it after its first element, a length; of lengths, as where windows are longer than a signal, longer ones."""
    hints = {plain_name(name): size for name, size in (hints or {}).items()}
    known = _assumed(program)
    told = [*known, *(source.symbol for source in program.symbols if dim_name(source) in hints)]
    extents = {dim for _, shape in program.signatures.values() for dim in shape if dim.constant is None}
    length = LENGTH
    while True:
        for batch in (BATCH, length):
            sizes = {s.symbol: _size(s, program, hints, batch, length) for s in program.symbols}
            expected = Expected({**sizes, **known}, told)
            expected = Expected({**sizes, **known, **_capacities(program, expected)}, told)
            if all(expected(extent) for extent in extents):
                return expected
        if length >= LONGEST:
            return expected
        length *= 2


def _capacities(program: TensorProgram, expected: Expected) -> dict[Symbol, int]:
    """The capacities of states that grow: as much as a run needs, at least."""
    values, inputs = dict(program.outputs), {value.name: value for value in program.inputs}
    found: dict[Symbol, int] = {}
    for state in program.states:
        if state.axis is None:
            continue
        capacity = inputs[state.input].shape[state.axis]
        needed = expected(program.shape_of(values[state.output])[state.axis])
        if isinstance(capacity.atom, Symbol):
            found[capacity.atom] = max(expected(capacity), needed)
    return found


def _assumed(program: TensorProgram) -> dict[Symbol, int]:
    """The symbols of which a guard says what they are, as that a rate is 16000."""
    found: dict[Symbol, int] = {}
    for guard in program.guards:
        symbols = symbols_of(guard.dim)
        if guard.kind != "zero" or len(symbols) != 1:
            continue
        (symbol,) = symbols
        slope = guard.dim.coefficient(symbol)
        if slope is None or not slope.constant:
            continue
        rest = (guard.dim - slope * symbol.dim).constant
        if rest is not None and rest % slope.constant == 0 and -rest // slope.constant >= (symbol.least or 0):
            found[symbol] = -rest // slope.constant
    return found


def _size(source: SymbolSource, program: TensorProgram, hints: Mapping[str, int], batch: int, length: int) -> int:
    size = hints.get(dim_name(source))
    if size is None:
        rank = next(len(value.shape) for value in program.inputs if value.name == source.input)
        size = length
        if not source.by_value and source.position == 0 and rank > 1:
            size = batch
        elif not source.by_value and source.position >= 2 and rank >= 4:
            size = IMAGE
    return max(size // source.divisor, source.symbol.least or 0)


def dim_name(source: SymbolSource) -> str:
    """The name of the dim that a symbol is a part of: `H` for `H_by_32`."""
    return source.symbol.name.removesuffix(f"_by_{source.divisor}") if source.divisor != 1 else source.symbol.name


def check_hints(programs: Iterable[TensorProgram], hints: Mapping[str, int]) -> None:
    """Raises OptionError for a hint about a dim that no variant has, by the model's name or that of its symbol."""
    known = {dim_name(source) for program in programs for source in program.symbols}
    for name in hints:
        if plain_name(name) not in known:
            names = ", ".join(sorted(known)) or "none"
            raise OptionError(f"dim hint {name!r}: the model has no symbolic dim of that name, only {names}")

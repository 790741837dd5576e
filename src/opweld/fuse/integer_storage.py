"""Values and constants of bytes, stored as products of them want their factors.

unsigned   a byte whose highest bit is flipped, 128 more than the signed one: what VNNI takes for x
signed     a byte that is 128 less than the unsigned one: what VNNI takes for w
halves     the same number with 16 bits

A value that the program computes is stored so for all that read it, so that nothing stands between memory and the
products; one that others see, an input or an output, is copied. So are the values of a recurrence: a state, and what it
becomes, are copied in each step. Where products of one value choose differently, it is bytes for those of bytes and for
all other readers, and copied with 16 bits for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from opweld.fuse.prologues import folded
from opweld.ledger import Ledger
from opweld.tensor.algebra import simplify
from opweld.tensor.dim import Axis
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Cast, Expr, Load, binary, bitcast, cast, const, load, transform
from opweld.tensor.program import Constant, Extern, Item, Scan, Tensor, TensorProgram, item_outputs, unused

FLIPPED = 128
"""What a signed byte with its highest bit flipped, as an unsigned one, is more."""

UNSIGNED, HALVES = "unsigned", "halves"


class IntegerStorage:
    """How values and constants of a program are stored.

    Attributes:
        made: constants that are there beside those of the program, by name.
        signatures: dtype and shape of each value, those that were added included.
    """

    def __init__(self, program: TensorProgram, ledger: Ledger) -> None:
        self.made: dict[str, Constant] = {}
        self._ledger = ledger
        self._inputs = tuple(value.name for value in program.inputs)
        self.signatures = dict(program.signatures)
        self._constants = {constant.name: constant for constant in program.constants}
        self._taken = set(program.signatures)
        self._names: dict[tuple[str, str], str] = {}
        self._as_bytes: set[str] = set()
        """Unsigned bytes that products multiply as they are."""
        self._halves: set[str] = set()
        """What values with 16 bits are called."""
        self._seen = {*self._inputs, *self._constants, *(name for _, name in program.outputs)}
        """Values that are what others than expressions take them for."""
        for item in program.items:
            if isinstance(item, Extern):
                self._seen.update(item.operands, item_outputs(item))
            elif isinstance(item, Scan):
                self._seen.update(item_outputs(item), (step for _, step in item.stacked))
                self._seen.update(name for state in item.states for name in (state.name, state.update))

    def name(self, hint: str) -> str:
        """One that nothing has yet."""
        name = unused(hint, self._taken)
        self._taken.add(name)
        return name

    def add(self, value: Tensor, constant: Constant) -> None:
        """A value and a constant that the program has beside its own from now on."""
        self.signatures[value.name] = value.dtype, value.shape
        self._constants[constant.name] = constant

    def is_computed(self, name: str) -> bool:
        """Whether a value may be stored otherwise for all that read it."""
        return name not in self._seen

    # ------------------------------------------------------------------------------------------------------- factors

    def unsigned(self, element: Load) -> Expr:
        """An element as an unsigned byte."""
        if element.dtype is DType.U8:
            self._as_bytes.add(element.tensor)
            return element
        return self._stored(element, UNSIGNED) if self.is_computed(element.tensor) else flipped(element)

    def signed(self, name: str) -> str:
        """The name of a constant of signed bytes: the one itself, or what is 128 less."""
        return name if self._constants[name].dtype is DType.I8 else self._folded(name, "signed", DType.I8, flipped)

    def half(self, element: Load) -> Expr:
        """An element of a value, with 16 bits."""
        return self._stored(element, HALVES)

    def words(self, name: str) -> str:
        """The name of a constant with 32 bits."""
        return self._folded(name, "words", DType.I32, lambda byte: cast(byte, DType.I32))

    def halves(self, name: str) -> str:
        """The name of a constant with 16 bits."""
        return self._folded(name, HALVES, DType.I16, _widened)

    # -------------------------------------------------------------------------------------------------- what is stored

    def items(self, items: Sequence[Item]) -> Iterator[Item]:
        """The items of the program, which read values as they are stored, and after each what stores it."""
        for name in self._inputs:
            yield from self._copies(name, ())
        for item in items:
            if isinstance(item, Tensor):
                yield self._reading(item)
            else:
                yield self._steps(item) if isinstance(item, Scan) else item
            for name in item_outputs(item):
                yield from self._copies(name, item.origin)

    def _steps(self, scan: Scan) -> Scan:
        """A recurrence that reads values as they are stored, and in each step after each value what stores it."""
        states = tuple(replace(state, initial=transform(state.initial, self._read)) for state in scan.states)
        steps = [copy for state in scan.states for copy in self._copies(state.name, scan.origin)]
        for step in scan.steps:
            steps += (self._reading(step), *self._copies(step.name, step.origin))
        return replace(scan, states=states, steps=tuple(steps))

    def _copies(self, name: str, origin: tuple[str, ...]) -> Iterator[Tensor]:
        for how, (dtype, as_stored) in _STORED.items():
            stored = self._names.get((name, how))
            if stored is not None:
                known, shape = self.signatures[name]
                axes = tuple(Axis(f"i{number}", extent) for number, extent in enumerate(shape))
                element = load(name, known, tuple(axis.dim for axis in axes))
                yield Tensor(stored, dtype, axes, as_stored(element), origin)

    def _reading(self, tensor: Tensor) -> Tensor:
        return replace(tensor, body=transform(tensor.body, self._read))

    def _read(self, node: Expr) -> Expr | None:
        """What reads a value that is stored otherwise, from there."""
        if isinstance(node, Load) and self.is_computed(node.tensor) and node.tensor not in self._as_bytes:
            how = next((how for how in _STORED if (node.tensor, how) in self._names), None)
            if how is not None:
                stored = self._stored(node, how)
                return flipped(stored) if how == UNSIGNED else cast(stored, node.dtype)
        # A byte that is stored with 16 bits, and read as a wider number, need not become a byte.
        byte = node.x if isinstance(node, Cast) and node.dtype.bytes > 1 else None
        half = byte.x if isinstance(byte, Cast) and isinstance(byte.x, Load) else None
        return cast(half, node.dtype) if half is not None and half.tensor in self._halves else None

    def _stored(self, element: Load, how: str) -> Expr:
        """An element as it is stored."""
        dtype, as_stored = _STORED[how]
        fill = None if element.fill is None else simplify(as_stored(element.fill))
        name = self._named(element.tensor, how)
        return load(name, dtype, element.indices, element.guards, fill)

    def _folded(self, name: str, how: str, dtype: DType, as_stored: Callable[[Expr], Expr]) -> str:
        if (name, how) not in self._names:
            constant = self._constants[name]
            axes = tuple(Axis(f"i{number}", size) for number, size in enumerate(constant.shape))
            body = as_stored(load(name, constant.dtype, tuple(axis.dim for axis in axes)))
            made = self._named(name, how)
            self.made[made] = folded(Tensor(made, dtype, axes, body, constant.origin), {name: constant})
        return self._names[name, how]

    def _named(self, name: str, how: str) -> str:
        if (name, how) not in self._names:
            made = self._names[name, how] = self.name(f"{name}_{how}")
            self._ledger.set_label(made, f"{self._ledger.label(name)} {how}")
            if how == HALVES:
                self._halves.add(made)
        return self._names[name, how]


def flipped(byte: Expr) -> Expr:
    """A signed byte as an unsigned one that is 128 more, or the other way around."""
    bit, other = (-FLIPPED, DType.U8) if byte.dtype is DType.I8 else (FLIPPED, DType.I8)
    return bitcast(binary("bitxor", byte, const(bit, byte.dtype)), other)


def _widened(byte: Expr) -> Expr:
    return cast(byte, DType.I16)


_STORED: dict[str, tuple[DType, Callable[[Expr], Expr]]] = {
    UNSIGNED: (DType.U8, flipped),
    HALVES: (DType.I16, _widened),
}

"""A program for one value of a symbol: with that number in the symbol's place."""

from __future__ import annotations

from dataclasses import replace

from opweld.tensor.atoms import Atom
from opweld.tensor.dim import Axis, Dim, Symbol, as_dim, symbols_of
from opweld.tensor.expr import Expr, Reduce, fresh_reductions, substitute, walk
from opweld.tensor.program import Extern, Guard, Item, Result, Scan, State, Tensor, TensorProgram


def fixed(program: TensorProgram, symbol: Symbol, size: int, reason: str) -> TensorProgram | None:
    """The program where the symbol has this value, which a guard with this reason says; None where a guard of its own
    rules that out, a size is below zero then, or something is divided by zero.

    The symbol is still one of the program's, which others may tell sizes by. Nothing is simplified yet."""
    try:
        made = _Fixing(symbol, size).program(program, Guard("zero", symbol.dim - size, reason))
    except ZeroDivisionError:
        return None
    values = {symbol: size}
    possible = all(guard.holds(values) for guard in program.guards if symbols_of(guard.dim) == frozenset((symbol,)))
    sizes = (dim.constant for _, shape in made.signatures.values() for dim in shape)
    return made if possible and all(size is None or size >= 0 for size in sizes) else None


class _Fixing:
    def __init__(self, symbol: Symbol, size: int) -> None:
        self._mapping: dict[Atom, Dim] = {symbol: as_dim(size)}
        """The symbol, and axes of tensors whose extents hold it."""

    def program(self, program: TensorProgram, guard: Guard) -> TensorProgram:
        return replace(
            program,
            inputs=tuple(replace(value, shape=self._dims(value.shape)) for value in program.inputs),
            items=tuple(map(self._item, program.items)),
            guards=(*program.guards, guard),
            states=tuple(
                state if state.length is None else replace(state, length=self._dim(state.length))
                for state in program.states
            ),
        )

    def _item(self, item: Item) -> Item:
        if isinstance(item, Tensor):
            return self._tensor(item)
        if isinstance(item, Scan):
            return replace(
                item,
                time=self._axis(item.time),
                states=tuple(map(self._state, item.states)),
                steps=tuple(map(self._tensor, item.steps)),
            )
        assert isinstance(item, Extern)
        return replace(
            item,
            results=tuple(Result(r.name, r.dtype, self._dims(r.shape)) for r in item.results),
            numbers=self._dims(item.numbers),
            rows=self._dim(item.rows),
        )

    def _tensor(self, tensor: Tensor) -> Tensor:
        return replace(tensor, axes=tuple(map(self._axis, tensor.axes)), body=self._body(tensor.body))

    def _state(self, state: State) -> State:
        return replace(state, axes=tuple(map(self._axis, state.axes)), initial=self._body(state.initial))

    def _body(self, body: Expr) -> Expr:
        reductions = [node for node in walk(body) if isinstance(node, Reduce)]
        if any(self._dim(axis.extent) is not axis.extent for node in reductions for axis in node.axes):
            body = fresh_reductions(body, self._dim)
        return substitute(body, self._mapping)

    def _axis(self, axis: Axis) -> Axis:
        extent = self._dim(axis.extent)
        if extent is axis.extent:
            return axis
        made = Axis(axis.name, extent)
        self._mapping[axis] = made.dim
        return made

    def _dims(self, dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
        return tuple(map(self._dim, dims))

    def _dim(self, dim: Dim) -> Dim:
        return dim.substitute(self._mapping)

"""Prologues: what a contraction does with the elements of an operand before it multiplies them.

    product[i, j] = sum<k>(mul(f32(x[i, k]), f32(w[k, j])))

In registers an operand keeps its own, narrow type in memory, and each register tile that multiplies an element computes
it anew. In memory it is computed once, and multiplied as it lies: a constant when the model is compiled, any other by
whoever makes the operand. A value that contractions want as float32 in memory is kept so for all of its readers, who
round nothing by it: there is then one copy.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from opweld.fuse.codes import counted, counting_in_bits, from_words, words_of
from opweld.fuse.factor_prices import Factor, FactorPrices, lanes_and_rows, without_scale
from opweld.fuse.region import Kind, axes_in, classify, dot_of, factors, has_words, operand_of, reductions
from opweld.fuse.steps import weights_of
from opweld.ledger import Alternative, Ledger
from opweld.schedule.cost import Product, fetched_product
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.algebra import simplify
from opweld.tensor.dim import Atom, Axis, Dim, as_dim, axes_of, nonnegative
from opweld.tensor.dtype import DType
from opweld.tensor.evaluate import evaluate_tensor
from opweld.tensor.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Reduce,
    binary,
    cast,
    free_atoms,
    load,
    loads,
    reduce,
    substitute,
    substitute_loads,
    transform,
    walk,
)
from opweld.tensor.operators import WORDS
from opweld.tensor.program import Constant, Item, Scan, Tensor, TensorProgram, item_inputs, item_outputs, unused

RULE = "fuse.prologue"
"""The rule of every decision here."""


def place_prologues(program: TensorProgram, expected: Expected, target: Target, ledger: Ledger) -> TensorProgram:
    """The program with operands of contractions computed in memory where that is predicted to take less, each a
    decision in the ledger."""
    return _Placing(program, expected, target, ledger).done()


class _Placing:
    def __init__(self, program: TensorProgram, expected: Expected, target: Target, ledger: Ledger) -> None:
        self._program = program
        self._expected = expected
        self._target = target
        self._ledger = ledger
        self._signatures = dict(program.signatures)
        self._constants = {constant.name: constant for constant in program.constants}
        self._weights = program.constant_bytes
        self._producers = {name: item for item in program.items for name in item_outputs(item)}
        self._prices = FactorPrices(expected, target, self._weights, self._producers)
        self._axes: dict[str, tuple[Axis, ...]] = {}
        self._names: dict[Expr, str] = {}
        self._after: dict[str, list[Tensor]] = {}
        self._before: dict[Item, list[Tensor]] = {}
        self._made: list[Constant] = []
        self._words: dict[tuple[str, int], Constant] = {}

    def done(self) -> TensorProgram:
        """The program as decided."""
        items = [(item, self._placed(item)) for item in self._program.items]
        if all(new is old for old, new in items):
            return self._program
        found: list[Item] = [tensor for value in self._program.inputs for tensor in self._after.get(value.name, ())]
        for old, new in items:
            found += (*self._before.get(old, ()), new)
            found += (tensor for name in item_outputs(new) for tensor in self._after.get(name, ()))
        copies = {tensor.name for tensors in self._after.values() for tensor in tensors}
        items = _kept_wide(found, copies, {value for _, value in self._program.outputs})
        sources = {node.tensor for body in self._names for node in loads(body)} | {name for name, _ in self._words}
        read = {name for item in items for name in item_inputs(item)} | {value for _, value in self._program.outputs}
        constants = (c for c in self._program.constants if c.name in read or c.name not in sources)
        words = (constant for constant in self._words.values() if constant.name in read)
        return replace(self._program, items=tuple(items), constants=(*constants, *self._made, *words))

    def _placed(self, item: Item) -> Item:
        """The item with loads in place of those factors that are computed in memory. Of the steps of a recurrence these
        are factors of constants: what a step computes is for that step."""
        if isinstance(item, Tensor):
            return self._tensor(item, self._prices)
        if not isinstance(item, Scan):
            return item
        prices = replace(self._prices, weights_bytes=weights_of(item, self._constants))
        steps = tuple(self._tensor(step, prices, only_known=True) for step in item.steps)
        return item if steps == item.steps else replace(item, steps=steps)

    def _tensor(self, item: Tensor, prices: FactorPrices, only_known: bool = False) -> Tensor:
        found = reductions(item.body)
        if len(found) != 1 or found[0].kind != "sum":
            return item
        product = found[0].body
        if not isinstance(product, Binary) or product.op != "mul" or not product.dtype.is_float:
            return item
        if isinstance(product.x, Load) and isinstance(product.y, Load):
            return item
        kind = classify(item, self._constants)
        if kind is Kind.CONTRACTION and dot_of(found[0]) and self._as_words(item, found[0]):
            return item
        replaced: dict[Expr, Expr] = {}
        scales: list[Expr] = []
        answers: dict[str, bool] = {}
        inverse: Expr | None = None
        # Constants first: what they are computed from may multiply the other factor.
        for factor in sorted(dict.fromkeys((product.x, product.y)), key=lambda value: not self._is_known(value)):
            value = factor if inverse is None else binary("mul", factor, inverse)
            if isinstance(value, Load):
                continue
            if value is not factor:
                replaced[factor] = value
            if only_known and not self._is_known(value):
                continue
            operand = operand_of(value)
            body = None if operand is None else self._of_its_operand(value, operand)
            if operand is None or body is None or (kind is not Kind.CONTRACTION and not self._is_costly(value)):
                continue
            packed = self._packed(value, operand, found[0]) if inverse is None else self._plain(value, operand)
            if operand.tensor not in answers:  # what is multiplied by itself is so in one way
                failed = {} if kind is Kind.CONTRACTION else {"kind": kind.value}
                answers[operand.tensor] = self._in_registers(item, found[0], packed, prices, failed)
            if not answers[operand.tensor]:
                replaced[factor] = _read(self._name(body, operand, item), value, operand)
            elif self._is_known(value):
                inverse = packed.inverse
                parts = without_scale(packed.value, found[0])
                replaced[factor] = packed.value if parts is None else parts[0]
                scales += () if parts is None else (parts[1],)
        if not replaced:
            return item
        total = reduce("sum", found[0].axes, transform(product, replaced.get))
        for scale in scales:
            total = binary("mul", total, scale)
        return replace(item, body=transform(item.body, lambda node: total if node is found[0] else None))

    def _packed(self, value: Expr, operand: Load, summed: Reduce) -> Factor:
        """A factor as it is computed in registers: of constants of 4 bits, from words of 32."""
        plain = self._plain(value, operand)
        position = counted(operand, summed) if operand.tensor in self._constants else None
        if position is None:
            return plain
        key = (operand.tensor, position)
        if key not in self._words:
            name = unused(f"{operand.tensor}_words", self._signatures)
            made = words_of(name, self._constants[operand.tensor], position)
            self._words[key] = made
            self._signatures[name] = made.dtype, tuple(map(as_dim, made.shape))
            self._constants[name] = made
            self._ledger.set_label(name, f"{self._ledger.label(operand.tensor)} words")
        field = from_words(value, operand, self._words[key].name, position)
        word = None if field is None else operand_of(field.value)
        if field is None or word is None:  # taking it out of its word as well is too much for each register tile
            return plain
        elements = self._expected.product(self._signatures[operand.tensor][1])
        return Factor(field.value, word, elements * operand.dtype.bits // 8, plain.wide, field.inverse)

    def _plain(self, value: Expr, operand: Load) -> Factor:
        """A factor as it stands."""
        elements = self._expected.product(self._signatures[operand.tensor][1])
        return Factor(value, operand, elements * operand.dtype.bytes, elements * value.dtype.bytes)

    def _is_known(self, value: Expr) -> bool:
        return all(node.tensor in self._constants for node in loads(value))

    def _is_costly(self, value: Expr) -> bool:
        """Whether a factor of constants is more than a number of another type: it is computed when compiling, then."""
        return self._is_known(value) and not (isinstance(value, Cast) and isinstance(value.x, Load))

    # ------------------------------------------------------------------------------------------------- the decision

    def _as_words(self, tensor: Tensor, summed: Reduce) -> bool:
        """Whether both operands stay narrow, as their products are summed several at once."""
        pair, dot = factors(summed), dot_of(summed)
        if pair is None:
            return False
        word = WORDS[dot]
        x, w = pair if pair[1].tensor in self._constants else pair[::-1]
        if x.tensor in self._constants or w.tensor not in self._constants or not has_words(summed, word, x, w):
            return False
        axes = axes_in(w)
        lane, rows = lanes_and_rows(tensor, axes, (), self._expected)
        reduced = self._expected.product(axis.extent for axis in summed.axes)
        elements = self._expected.product(self._signatures[w.tensor][1])
        seconds: list[float] = []
        for op, size, dtype in (("", 1, summed.dtype), (dot, word, w.dtype)):
            shape = Product(lane, rows, max(1, reduced // size), 1, summed.dtype, self._target, dot=op)
            seconds.append(fetched_product(shape, elements * dtype.bytes, self._weights))
        choice = self._ledger.decide(
            rule=RULE,
            site=tensor.origin,
            subject=(tensor.name, x.tensor, w.tensor),
            alternatives=(
                Alternative("apart", bytes=elements * summed.dtype.bytes, seconds=seconds[0]),
                Alternative("words", bytes=elements * w.dtype.bytes, seconds=seconds[1]),
            ),
            prefer="words" if seconds[1] <= seconds[0] else "apart",
            reason=f"products of {word} numbers that are a word are summed at once",
        )
        return choice == "words"

    def _in_registers(
        self, tensor: Tensor, summed: Reduce, factor: Factor, prices: FactorPrices, failed: Mapping[str, int | str]
    ) -> bool:
        known = self._is_known(factor.value)
        registers, memory = (prices.weights if known else prices.values)(tensor, summed, factor)
        pays = registers <= memory and not failed
        reason = f"{factor.narrow:,} bytes in memory in place of {factor.wide:,}"
        if not pays:
            reason = "each register tile that multiplies an element would compute it anew"
        choice = self._ledger.decide(
            rule=RULE,
            site=tensor.origin,
            subject=(tensor.name, factor.operand.tensor),
            alternatives=(
                Alternative("in memory", bytes=factor.wide, seconds=memory),
                Alternative("in registers", bytes=factor.narrow, seconds=None if failed else registers),
            ),
            prefer="in registers" if pays else "in memory",
            reason=reason,
            failed=failed,
        )
        return choice == "in registers"

    # ---------------------------------------------------------------------------------------------------- in memory

    def _of_its_operand(self, value: Expr, operand: Load) -> Expr | None:
        """A factor as an element of a tensor that has the shape of its operand; None where it is none."""
        axes = self._axes.get(operand.tensor)
        if axes is None:
            shape = self._signatures[operand.tensor][1]
            axes = self._axes[operand.tensor] = tuple(Axis(f"i{n}", extent) for n, extent in enumerate(shape))
        places = dict(zip(operand.indices, axes, strict=True))
        plain: dict[Atom, Dim] = {i.atom: to.dim for i, to in places.items() if isinstance(i.atom, Axis)}

        def place(found: Dim, extent: Dim) -> Dim:
            """Where a value of this extent is read that was read where the operand was; a number is the operand's index
            only where both have as many elements, as a direction of its weights and of their scales has."""
            axis = places.get(found)
            if axis is None or (found.constant is not None and axis.extent is not extent):
                return found.substitute(plain)
            return axis.dim

        def placed(node: Load) -> tuple[Dim, ...]:
            return tuple(map(place, node.indices, self._signatures[node.tensor][1]))

        def moved(node: Load) -> Expr:
            return load(node.tensor, node.dtype, tuple(a.dim for a in axes) if node is operand else placed(node))

        others = [node for node in loads(value) if node is not operand]
        for node in others:
            ends = zip(placed(node), self._signatures[node.tensor][1], strict=True)
            if node.guards or any(not axes_of(i) <= {*axes} or not nonnegative(end - 1 - i) for i, end in ends):
                return None
        counts = any(isinstance(node, Index) for node in walk(value))
        if operand.guards and (others or counts or not isinstance(operand.fill, Const)):
            return None
        body = counting_in_bits(substitute(substitute_loads(value, moved), plain))
        return body if all(atom in axes for atom in free_atoms(body) if isinstance(atom, Axis)) else None

    def _name(self, body: Expr, operand: Load, reader: Tensor) -> str:
        """The name of the value that holds a factor for each element of its operand: one for all that want it."""
        name = self._names.get(body)
        if name is not None:
            return name
        name = unused(f"{operand.tensor}_{body.dtype.short}", self._signatures)
        shape, axes = self._signatures[operand.tensor][1], self._axes[operand.tensor]
        self._names[body], self._signatures[name] = name, (body.dtype, shape)
        self._ledger.set_label(name, f"{self._ledger.label(operand.tensor)} {body.dtype.short}")
        read = {node.tensor for node in loads(body)}
        producer = self._producers.get(operand.tensor)
        tensor = Tensor(name, body.dtype, axes, body, reader.origin if producer is None else producer.origin)
        if read <= self._constants.keys():
            sources = {source: self._constants[source] for source in read}
            self._made.append(folded(tensor, sources))
        elif read == {operand.tensor}:
            self._after.setdefault(operand.tensor, []).append(tensor)
        else:
            self._before.setdefault(reader, []).append(tensor)
        return name


def _read(name: str, value: Expr, operand: Load) -> Expr:
    """What holds a factor for each element of its operand, where the factor stood."""
    fill = None if operand.fill is None else simplify(substitute_loads(value, lambda _: operand.fill))
    return load(name, value.dtype, operand.indices, operand.guards, fill)


def folded(tensor: Tensor, sources: Mapping[str, Constant]) -> Constant:
    """A tensor of constants as one, computed when it is packed."""

    def evaluated() -> NDArray[Any]:
        return evaluate_tensor(tensor, {name: source.read() for name, source in sources.items()})

    return Constant(tensor.name, tensor.dtype, tuple(int(e) for e in tensor.shape), evaluated, tensor.origin)


def _kept_wide(items: list[Item], copies: Container[str], outputs: Container[str]) -> list[Item]:
    """Items in which the readers of a value that is also there in a wider type, exactly, read that one instead.

    copies: values that come right after what they are computed from."""
    wide: dict[str, Tensor] = {}
    computed = {item.name for item in items if isinstance(item, Tensor)}
    whole = {name for item in items if not isinstance(item, Tensor) for name in item_inputs(item)}
    for item in items:
        if not isinstance(item, Tensor) or item.name not in copies:
            continue
        source = _widened(item)
        if source in computed and source not in outputs and source not in whole:
            wide[source] = item
    own = set(wide.values())

    def changed(item: Item) -> Item:
        if not isinstance(item, Tensor) or item in own or not any(n.tensor in wide for n in loads(item.body)):
            return item
        return replace(item, body=substitute_loads(item.body, narrowed))

    def narrowed(node: Load) -> Expr | None:
        source = wide.get(node.tensor)
        if source is None:
            return None
        fill = None if node.fill is None else simplify(cast(node.fill, source.dtype))
        return cast(load(source.name, source.dtype, node.indices, node.guards, fill), node.dtype)

    return [changed(item) for item in items]


def _widened(tensor: Tensor) -> str:
    """The value of which a tensor is the wider, exact copy; empty where it is another one."""
    body = tensor.body
    if not isinstance(body, Cast) or not isinstance(body.x, Load) or body.x.dtype not in (DType.F16, DType.BF16):
        return ""
    return body.x.tensor if body.dtype is DType.F32 and not body.x.guards else ""

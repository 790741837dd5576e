"""Scalar expressions as Triton statements over blocks of elements.

An expression is emitted once for a whole block: each axis that it depends on is a variable of Triton, of the shape that
the template of the kernel gives it ([BLOCK], or [M, 1] and [1, N]), and operators broadcast. What depends on no axis of
a loop stands before the loop. A reduction is a loop over what is reduced, unless the template knows better."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from opweld.codegen.triton.operators import binary_text, cast_text, literal, register, rounded, stored, unary_text
from opweld.errors import UnsupportedError
from opweld.tensor.dim import Atom, Axis, Dim, FloorDiv, Max, Min, Mod, Symbol, Value, axes_of, nonnegative, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Lookup,
    Reduce,
    Select,
    Unary,
    dims_of,
    free_atoms,
)
from opweld.tensor.guards import in_turn
from opweld.tensor.operators import REDUCTIONS, neutral

UNROLLED = 64
"""The most iterations of a reduction that are written out."""

INDENT = "    "

T = TypeVar("T")


@dataclass(frozen=True)
class Block:
    """An axis as a variable: its text, the dimension of the block that it runs along (None: one number for all
    elements), and the mask of the indices that exist, "" where all do."""

    text: str
    dimension: int | None = None
    mask: str = ""


@dataclass(frozen=True)
class _Test:
    """A condition under which something is loaded, and the axes that it depends on."""

    text: str
    axes: frozenset[Axis]


@dataclass(eq=False)
class _Scope:
    """Lines at one depth of loops. `axes`: those that have a variable here and not further out."""

    axes: frozenset[Axis]
    outer: _Scope | None = None
    lines: list[str] = field(default_factory=list[str])
    memo: dict[tuple[object, tuple[_Test, ...]], str] = field(
        default_factory=dict[tuple[object, "tuple[_Test, ...]"], str]
    )


class Operands:
    """The parameters of a kernel, by what they stand for, in order of appearance.

    `pointers`: memory by its owner's name. `symbols`: sizes. `errors`: messages of run-time errors, which are told by
    their number + 1; a kernel that has any takes a pointer `error`."""

    def __init__(self, wide: bool = False) -> None:
        self.pointers: dict[str, tuple[str, DType]] = {}
        self.symbols: dict[Atom, str] = {}
        self.errors: dict[str, int] = {}
        self.wide = wide
        """Whether indices take 64 bits: memory of a kernel has 2^31 elements or more."""

    def pointer(self, name: str, dtype: DType, letter: str = "x") -> str:
        """The parameter that points to a value's memory."""
        found = self.pointers.get(name)
        if found is None:
            found = self.pointers[name] = f"{letter}{len(self.pointers)}", dtype
        return found[0]

    def symbol(self, atom: Atom) -> str:
        """The parameter of a size."""
        found = self.symbols.get(atom)
        if found is None:
            found = self.symbols[atom] = f"size{len(self.symbols)}"
        return found

    def error(self, message: str) -> int:
        """The number of a run-time error."""
        return self.errors.setdefault(message, len(self.errors)) + 1


class Body:
    """Emits expressions of one block. `lines` are the statements so far."""

    def __init__(
        self,
        operands: Operands,
        blocks: Mapping[Axis, Block],
        shape: str,
        reducer: Callable[[Reduce, Body], str | None] | None = None,
        known: Mapping[Expr, str] | None = None,
        prefix: str = "v",
        loader: Callable[[Load, Body, tuple[_Test, ...]], str | None] | None = None,
    ) -> None:
        """`shape`: of the whole block, as Triton writes it. `reducer`: emits a reduction in another way than by a loop,
        or returns None. `known`: expressions that have a variable. `loader`: the same of loads."""
        self._operands = operands
        self._blocks = dict(blocks)
        self._shape = shape
        self._reducer = reducer
        self._loader = loader
        self._prefix = prefix
        self._count = 0
        self._outermost = _Scope(frozenset(blocks))
        self._scope: _Scope = self._outermost
        for node, text in (known or {}).items():
            self._outermost.memo[node, ()] = text

    @property
    def lines(self) -> list[str]:
        """The statements so far."""
        return self._outermost.lines

    def name(self) -> str:
        """A variable that is not used yet."""
        self._count += 1
        return f"{self._prefix}{self._count - 1}"

    def line(self, text: str) -> None:
        """Adds a statement."""
        self._scope.lines.append(text)

    # ------------------------------------------------------------------------------------------------------ indices

    def dim(self, dim: Dim, tests: tuple[_Test, ...] = (), *, wide: bool = False) -> str:
        """A polynomial as an expression of integers; `wide`: of 64 bits, as one that is a value and no place."""
        text = ""
        for monomial, coefficient in dim.terms:
            factors = [self._atom(atom, tests, wide) for atom in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            sign = (" - " if coefficient < 0 else " + ") if text else ("-" if coefficient < 0 else "")
            text += sign + " * ".join(factors)
        return text or "0"

    def _atom(self, atom: Atom, tests: tuple[_Test, ...], wide: bool) -> str:
        if isinstance(atom, FloorDiv | Mod):
            left, right = self.dim(atom.left, tests, wide=wide), self.dim(atom.right, tests, wide=wide)
            if nonnegative(atom.left):
                return f"(({left}) {'//' if isinstance(atom, FloorDiv) else '%'} ({right}))"
            return f"floor_{'quotient' if isinstance(atom, FloorDiv) else 'remainder'}({left}, {right})"
        if isinstance(atom, Min | Max):
            name = "minimum" if isinstance(atom, Min) else "maximum"
            return f"tl.{name}({self.dim(atom.left, tests, wide=wide)}, {self.dim(atom.right, tests, wide=wide)})"
        if isinstance(atom, Axis):
            text = self._blocks[atom].text
        elif isinstance(atom, Symbol):
            text = self._operands.symbol(atom)
        elif isinstance(atom, Value):
            text = self._checked(atom, tests)
        else:
            raise UnsupportedError(f"the size {atom} has no form in Triton; compile the model for a processor")
        return f"tl.cast({text}, tl.int64)" if wide else text

    def _checked(self, atom: Value, tests: tuple[_Test, ...]) -> str:
        """A run-time index, which is reported where it does not exist and taken to the nearest that does."""
        axes = _axes(atom.expr)
        scope = self._scope_of(axes | _axes_of_tests(tests))
        found = scope.memo.get((atom, tests))
        if found is None:
            value = self.value(atom.expr, tests)
            extent = self.dim(atom.extent, tests)
            found = self.name()
            outside = f"({value} < 0) | ({value} >= {extent})"
            mask, _ = self._mask(axes, tests)
            zeros = self._zeros(self._dimensions(axes | _axes_of_tests(tests)))
            code = self._operands.error(f"an index is not in [0, {atom.extent})")
            bad = " & ".join([*mask, f"({outside})"])
            scope.lines.append(f"tl.atomic_max(error{zeros}, {code}, mask={bad})")
            width = "int64" if self._operands.wide else "int32"
            clipped = f"tl.minimum(tl.maximum({value}, 0), {extent} - 1).to(tl.{width})"
            scope.lines.append(f"{found} = {clipped}")
            scope.memo[atom, tests] = found
        return found

    # --------------------------------------------------------------------------------------------------- expressions

    def value(self, node: Expr, tests: tuple[_Test, ...] = ()) -> str:
        """The variable, or the literal, that holds an expression. `tests`: the conditions under which it is asked
        for."""
        if isinstance(node, Const):
            return literal(node.value, node.dtype)
        known = self._outermost.memo.get((node, ()))
        if known is not None:
            return known
        if not _reads(node):
            tests = ()
        scope = self._scope_of(_axes(node) | _axes_of_tests(tests))
        found = scope.memo.get((node, tests))
        if found is not None:
            return found
        before, self._scope = self._scope, scope
        try:
            made = self._emitted(node, tests)
        finally:
            self._scope = before
        if not made.isidentifier():
            name = self.name()
            scope.lines.append(f"{name} = {made}")
            made = name
        scope.memo[node, tests] = made
        return made

    def _emitted(self, node: Expr, tests: tuple[_Test, ...]) -> str:
        if isinstance(node, Index):
            return f"tl.cast({self.dim(node.dim, tests, wide=True)}, tl.int64)"
        if isinstance(node, Load):
            made = None if self._loader is None else self._loader(node, self, tests)
            return made if made is not None else self._load(node, tests)
        if isinstance(node, Unary):
            return rounded(node.dtype, unary_text(node, self._operand(node.x, tests)))
        if isinstance(node, Binary):
            return self._binary(node, tests)
        if isinstance(node, Select):
            return self._select(node, tests)
        if isinstance(node, Cast):
            return cast_text(node, self._operand(node.x, tests))
        if isinstance(node, Bitcast):
            value = self._operand(node.x, tests)
            if DType.BOOL in (node.dtype, node.x.dtype):
                return f"{value} != 0" if node.dtype is DType.BOOL else f"tl.cast({value}, {register(node.dtype)})"
            bits = f"({value}).to({stored(node.x.dtype)}).to({stored(node.dtype)}, bitcast=True)"
            return f"{bits}.to({register(node.dtype)})"
        if isinstance(node, Lookup):
            raise UnsupportedError("tables of bytes have no form in Triton: --disable fuse.table")
        assert isinstance(node, Reduce)
        made = None if self._reducer is None else self._reducer(node, self)
        return made if made is not None else self._loop(node, tests)

    def _operand(self, node: Expr, tests: tuple[_Test, ...]) -> str:
        """An operand that is a tensor, whatever it is."""
        if isinstance(node, Const) and node.dtype is DType.BOOL:
            return f"tl.full([], {literal(node.value, node.dtype)}, tl.int1)"
        if isinstance(node, Const) and node.dtype.is_float and node.dtype is not DType.F64:
            return f"tl.full([], {literal(node.value, node.dtype)}, tl.float32)"
        return self.value(node, tests)

    def _binary(self, node: Binary, tests: tuple[_Test, ...]) -> str:
        if node.op in COMPARED and not self._operands.wide and _are_near(node.x, node.y):
            # Masks of positions: registers of 64 bits are two.
            x, y = (self._near(side, tests) for side in (node.x, node.y))
            return f"({x}) {COMPARED[node.op]} ({y})"
        infix = node.op in ("add", "sub", "mul") and not (isinstance(node.x, Const) and isinstance(node.y, Const))
        operand = self.value if infix else self._operand
        x, y = operand(node.x, tests), operand(node.y, tests)
        if node.op in ("div", "mod", "fmod") and not node.x.dtype.is_float and not isinstance(node.y, Const):
            axes = _axes(node.y) | _axes_of_tests(tests)
            mask, _ = self._mask(axes, tests)
            code = self._operands.error("an integer is divided by zero")
            bad = " & ".join([*mask, f"({y} == 0)"])
            self._scope.lines.append(f"tl.atomic_max(error{self._zeros(self._dimensions(axes))}, {code}, mask={bad})")
        return rounded(node.dtype, binary_text(node, x, y))

    def _near(self, node: Expr, tests: tuple[_Test, ...]) -> str:
        if isinstance(node, Index):
            return self.dim(node.dim, tests)
        assert isinstance(node, Const)
        return str(int(node.value))

    def _select(self, node: Select, tests: tuple[_Test, ...]) -> str:
        condition = self.value(node.condition, tests)
        axes = _axes(node.condition)
        x = self._operand(node.x, (*tests, _Test(condition, axes)))
        y = self._operand(node.y, (*tests, _Test(f"(~{condition})", axes)))
        return f"tl.where({condition}, {x}, {y})"

    # --------------------------------------------------------------------------------------------------------- loads

    def _load(self, node: Load, tests: tuple[_Test, ...]) -> str:
        (address,) = node.indices or (None,)
        pointer = self._operands.pointer(node.tensor, node.dtype)
        guards = self.guards(node, tests)
        own = (*tests, *guards)
        offset = "0" if address is None else self.dim(address, own)
        axes = frozenset[Axis]() if address is None else axes_of(address)
        mask, dimensions = self._mask(frozenset(axes), own)
        reached = {self._blocks[axis].dimension for axis in axes} - {None}
        offset += self._zeros({d for d in dimensions if d not in reached})
        value = f"{pointer} + ({offset})" if offset != "0" else pointer
        if not mask:
            return self._loaded(node.dtype, f"tl.load({value})")
        fill = self._fill(node, tests)
        loaded = self._loaded(node.dtype, f"tl.load({value}, mask={' & '.join(mask)}, other=0)")
        if fill is None or not guards:
            return loaded
        return f"tl.where({' & '.join(guard.text for guard in guards)}, {loaded}, {fill})"

    def guards(self, node: Load, tests: tuple[_Test, ...]) -> tuple[_Test, ...]:
        """The guards of a load, as variables."""
        made: list[_Test] = []
        for group in in_turn(node.guards):
            before = (*tests, *made)
            for guard in group:
                axes = frozenset(axes_of(guard))
                scope = self._scope_of(axes | _axes_of_tests(before))
                found = scope.memo.get((guard, before))
                if found is None:
                    text = self.dim(guard, before)
                    found = scope.memo[guard, before] = self.name()
                    scope.lines.append(f"{found} = {text} >= 0")
                made.append(_Test(found, axes))
        return tuple(made)

    def _fill(self, node: Load, tests: tuple[_Test, ...]) -> str | None:
        """What stands where a guard does not hold; None for zero."""
        if node.fill is None or (isinstance(node.fill, Const) and not node.fill.value):
            return None
        return self._operand(node.fill, tests)

    def _loaded(self, dtype: DType, text: str) -> str:
        if dtype is DType.BOOL:
            return f"({text} != 0)"
        return f"{text}.to(tl.float32)" if dtype in (DType.F16, DType.BF16) else text

    def _mask(self, axes: frozenset[Axis], tests: Sequence[_Test]) -> tuple[list[str], set[int]]:
        """The masks of axes and conditions, and the dimensions of the block that they depend on."""
        involved = [axis for axis in self._blocks if axis in axes or any(axis in test.axes for test in tests)]
        masks = [self._blocks[axis].mask for axis in involved if self._blocks[axis].mask]
        texts = list(dict.fromkeys([*masks, *(test.text for test in tests)]))
        masked = [axis for axis in involved if self._blocks[axis].mask or any(axis in test.axes for test in tests)]
        return texts, {d for axis in masked if (d := self._blocks[axis].dimension) is not None}

    def _dimensions(self, axes: Iterable[Axis]) -> set[int]:
        """The dimensions of the block that axes run along."""
        return {d for axis in axes if axis in self._blocks and (d := self._blocks[axis].dimension) is not None}

    def _zeros(self, dimensions: Iterable[int]) -> str:
        """What gives an address dimensions of the block that it does not depend on."""
        found = ""
        for dimension in sorted(dimensions):
            block = next(block for block in self._blocks.values() if block.dimension == dimension)
            found += f" + 0 * {block.text}"
        return found

    # ------------------------------------------------------------------------------------------------------- loops

    def _loop(self, node: Reduce, tests: tuple[_Test, ...]) -> str:
        """A reduction element by element; a loop that goes on with all elements of the block."""
        total = product(axis.extent for axis in node.axes)
        counter, result = self.name().replace(self._prefix, "loop", 1), self.name()
        start = list[str]()
        blocks = counted(node.axes, counter, start, self, prefix=f"{counter}_")

        def step() -> None:
            self._scope.lines += start
            value = self._operand(node.body, tests)
            self._scope.lines += self.stepped(node, result, value, counter)

        _, lines = self.inside(blocks, step)
        self._scope.lines += self.started(node, result, self._shape)
        count = total.constant
        if count is not None and count <= UNROLLED:
            self.line(f"for {counter}_ in tl.static_range({count}):")
            lines.insert(0, f"{counter} = tl.full([], {counter}_, tl.int32)")
        else:
            self.line(f"for {counter} in range(0, {self.dim(total)}):")
        self._scope.lines += [INDENT + line for line in lines]
        if REDUCTIONS[node.kind].position:
            return f"{result}_at"
        return rounded(node.dtype, result) if node.dtype in (DType.F16, DType.BF16) else result

    def inside(self, blocks: Mapping[Axis, Block], emit: Callable[[], T]) -> tuple[T, list[str]]:
        """What `emit` returns where these axes have variables, too, and the statements that stand in their loop."""
        before, outer = self._blocks, self._scope
        self._blocks = {**before, **blocks}
        self._scope = _Scope(frozenset(blocks), outer)
        try:
            made = emit()
            return made, self._scope.lines
        finally:
            self._scope, self._blocks = outer, before

    def started(self, node: Reduce, result: str, shape: str) -> list[str]:
        """The neutral element of a reduction, in a block of that shape."""
        dtype = node.body.dtype
        start = neutral(node.kind, dtype)
        text = f'float("{start}")' if dtype.is_float and start in (float("inf"), -float("inf")) else repr(start)
        lines = [f"{result} = tl.full({shape}, {text}, {register(dtype)})"]
        if REDUCTIONS[node.kind].position:
            lines.append(f"{result}_at = tl.full({shape}, 0, tl.int64)")
        return lines

    def stepped(self, node: Reduce, result: str, value: str, position: str, mask: str = "") -> list[str]:
        """A step of a reduction that goes on in `result`, and of its position in `result`_at. `mask`: what exists."""
        if REDUCTIONS[node.kind].position:
            last, is_float = node.kind.endswith("_last"), node.body.dtype.is_float
            sign = (">" if "max" in node.kind else "<") + ("=" if last else "")
            better = f"({value} {sign} {result})"
            if is_float:
                better += f" | ({value} != {value})" if last else f" | (({value} != {value}) & ({result} == {result}))"
            name, better = f"{result}_better", f"({better}) & {mask}" if mask else better
            return [
                f"{name} = {better}",
                f"{result} = tl.where({name}, {value}, {result})",
                f"{result}_at = tl.where({name}, {position}, {result}_at)",
            ]
        return [f"{result} = {combined(node.kind, node.body.dtype, result, value)}"]

    def stored(self, pointer: str, address: Dim, axes: Sequence[Axis], value: str) -> str:
        """A store of a value to an address; `axes`: what it runs over."""
        found = frozenset(axes) | axes_of(address)
        reached = {self._blocks[axis].dimension for axis in axes_of(address)}
        dimensions = self._dimensions(found)
        mask, _ = self._mask(found, ())
        offset = self.dim(address) + self._zeros(dimensions - reached)
        keep = f", mask={' & '.join(mask)}" if mask else ""
        return f"tl.store({pointer} + ({offset}), {value}{keep})"

    # ------------------------------------------------------------------------------------------------------- scopes

    def _scope_of(self, axes: frozenset[Axis]) -> _Scope:
        """The outermost scope in which all of these have a variable."""
        scope = self._scope
        while scope.outer is not None and not (scope.axes & axes):
            scope = scope.outer
        return scope


def combined(kind: str, dtype: DType, x: str, y: str) -> str:
    """A step of a reduction."""
    if kind == "any" or (kind in ("max", "sum") and dtype is DType.BOOL):
        return f"{x} | {y}"
    if kind == "all" or (kind in ("min", "prod") and dtype is DType.BOOL):
        return f"{x} & {y}"
    if kind in ("sum", "prod"):
        text = f"{x} {'+' if kind == 'sum' else '*'} {y}"
        return text if dtype.is_float or dtype.bytes >= 4 else f"({text}).to({register(dtype)})"
    nan = ", propagate_nan=tl.PropagateNan.ALL" if dtype.is_float else ""
    return f"tl.{kind}imum({x}, {y}{nan})"


def divided(axes: Sequence[Axis], counter: str, text: Callable[[Dim], str]) -> list[tuple[Axis, str]]:
    """Each of several axes that one number counts, the last one fastest, as an expression of the number."""
    found: list[tuple[Axis, str]] = []
    inner: Dim | None = None
    for position in reversed(range(len(axes))):
        axis = axes[position]
        part = counter if inner is None else f"({counter} // ({text(inner)}))"
        found.append((axis, part if position == 0 else f"{part} % ({text(axis.extent)})"))
        inner = axis.extent if inner is None else inner * axis.extent
    return found[::-1]


def counted(
    axes: Sequence[Axis],
    counter: str,
    lines: list[str],
    body: Body,
    *,
    prefix: str,
    dimension: int | None = None,
    mask: str = "",
) -> dict[Axis, Block]:
    """Each of several axes that one number counts as a variable, `prefix` and its position unless it is the number
    itself; the statements that make them are added to the lines."""
    found: dict[Axis, Block] = {}
    for position, (axis, text) in enumerate(divided(axes, counter, body.dim)):
        name = counter if text == counter else f"{prefix}{position}"
        if name != text:
            lines.append(f"{name} = {text}")
        found[axis] = Block(name, dimension, mask)
    return found


def mask_of(name: str, count: Dim, size: int, lines: list[str], body: Body, mask: str = "") -> str:
    """The mask of the indices that exist of blocks of a size, `mask` or named for them; "" where all do. The statement
    that makes it is added to the lines."""
    if count.constant is not None and count.constant % size == 0:
        return ""
    mask = mask or f"{name}_inside"
    lines.append(f"{mask} = {name} < {body.dim(count)}")
    return mask


COMPARED = {"le": "<=", "lt": "<", "ge": ">=", "gt": ">"}
"""Comparisons of positions, as Triton writes them."""

NEAR = 1 << 15
"""The most that a position may be away from one of an axis, or the distance of two, for 32 bits to hold it."""


def _are_near(*nodes: Expr) -> bool:
    """Whether expressions, of which one depends on an axis, are positions along an axis, distances of two, or small
    numbers: they fit 32 bits where addresses do."""
    return any(isinstance(node, Index) and axes_of(node.dim) for node in nodes) and all(map(_is_near, nodes))


def _is_near(node: Expr) -> bool:
    if isinstance(node, Const):
        return node.dtype.is_integer and abs(node.value) <= NEAR
    if not isinstance(node, Index):
        return False
    signs: list[int] = []
    for monomial, coefficient in node.dim.terms:
        if not monomial and abs(coefficient) <= NEAR:
            continue
        if len(monomial) != 1 or abs(coefficient) != 1 or not isinstance(monomial[0], Axis):
            return False
        signs.append(coefficient)
    return sorted(signs) in ([], [-1], [1], [-1, 1])


def _axes(node: Expr) -> frozenset[Axis]:
    return frozenset(atom for atom in free_atoms(node) if isinstance(atom, Axis))


def _axes_of_tests(tests: Iterable[_Test]) -> frozenset[Axis]:
    return frozenset[Axis]().union(*(test.axes for test in tests))


def _reads(node: Expr) -> bool:
    """Whether a condition decides about what it may do: it loads something, or reports what is wrong."""
    if node.known_loads is None:
        from opweld.tensor.expr import loads

        loads(node)
    if node.known_loads:
        return True
    if isinstance(node, Binary) and node.op in ("div", "mod", "fmod") and not node.x.dtype.is_float:
        return True
    return any(_reads(operand) for operand in node.operands) or any(
        isinstance(atom, Value) for dim in dims_of(node) for atom in dim.atoms
    )

"""The invariants of tensor programs; every stage that creates one may be checked with `verify`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeAlias

from opweld.errors import OpweldError
from opweld.tensor.dim import ONE, Atom, Axis, Dim, Symbol, Value, as_dim, atoms_of, nonnegative, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import (
    Binary,
    Bitcast,
    Const,
    Expr,
    Load,
    Lookup,
    Reduce,
    Select,
    Unary,
    dims_of,
    free_atoms,
    walk,
)
from opweld.tensor.externs import EXTERNS
from opweld.tensor.operators import BINARY, WORDS
from opweld.tensor.program import Extern, Scan, State, Tensor, TensorProgram

Signature: TypeAlias = "tuple[DType, tuple[Dim, ...]]"

_ANY_NUMBER_UNARY = frozenset({"neg", "abs", "sign", "floor", "ceil", "round", "isnan", "isinf"})
_LOGICAL = frozenset({"and", "or", "xor"})
_BITWISE = frozenset({"bitand", "bitor", "bitxor", "shl", "shr"})


def verify(program: TensorProgram) -> None:
    """Checks names, order of definition, ranks, dtypes, axes, symbols, guards and outputs.

    Raises OpweldError naming the tensor and what is wrong with it."""
    Verifier(program).run()


class Verifier:
    """Checks the parts of a program; verifiers of later forms derive from it.

    `visible`: dtype and shape of each value that may be loaded so far."""

    def __init__(self, program: TensorProgram) -> None:
        self.program = program
        self.symbols: frozenset[Atom] = frozenset(source.symbol for source in program.symbols)
        self.names: set[str] = set()
        self.visible: dict[str, Signature] = {}

    def run(self) -> None:
        """Checks everything."""
        program = self.program
        for value in program.inputs:
            self._define(value.name, value.dtype, value.shape)
            self._check_dims(f"input {value.name!r}", value.shape, frozenset())
        for value in program.constants:
            if any(size < 0 for size in value.shape):
                self._fail(f"constant {value.name!r}", f"has the negative shape {value.shape}")
            self._define(value.name, value.dtype, tuple(as_dim(size) for size in value.shape))
        self._check_symbols()
        for guard in program.guards:
            if guard.kind not in ("zero", "nonzero", "least"):
                self._fail(f"guard {guard.dim}", f"has the kind {guard.kind!r}; expected 'zero', 'nonzero' or 'least'")
            self._check_dims(f"guard {guard.dim} ({guard.reason})", (guard.dim,), frozenset())
        for item in program.items:
            if isinstance(item, Scan):
                self._check_scan(item)
            elif isinstance(item, Extern):
                self._check_extern(item)
            else:
                self.check_tensor(item, self.visible)
                self._define(item.name, item.dtype, item.shape)
        public: dict[str, Signature] = {}
        for name, value in program.outputs:
            if value not in self.visible:
                self._fail(f"output {name!r}", f"is the value {value!r}, which is not defined")
            if public.setdefault(name, self.visible[value]) != self.visible[value]:
                self._fail(f"output {name!r}", "is there twice, as different values")
        self._check_persistent(public)

    def _fail(self, what: str, why: str) -> NoReturn:
        raise OpweldError(f"tensor program {self.program.name!r}: {what} {why}")

    def _define(self, name: str, dtype: DType, shape: tuple[Dim, ...], inner: bool = False) -> None:
        if name in self.names:
            self._fail(f"value {name!r}", "is defined twice")
        self.names.add(name)
        if not inner:
            self.visible[name] = (dtype, shape)

    def _check_symbols(self) -> None:
        inputs = {value.name: value for value in self.program.inputs}
        for source in self.program.symbols:
            what = f"symbol {source.symbol}"
            if any(
                isinstance(s, Symbol) and s.name == source.symbol.name and s is not source.symbol for s in self.symbols
            ):
                self._fail(what, "has the name of another symbol")
            found = inputs.get(source.input)
            if found is None:
                self._fail(what, f"comes from {source.input!r}, which is not an input")
            if source.divisor < 1:
                self._fail(what, f"has the divisor {source.divisor}")
            if source.by_value and found.dtype.is_float:
                self._fail(what, f"is an element of {source.input!r}, which is {found.dtype!r} and not an integer")
            if source.position < 0 or (not source.by_value and source.position >= len(found.shape)):
                self._fail(what, f"is at position {source.position} of {source.input!r} of rank {len(found.shape)}")

    def _check_persistent(self, outputs: Mapping[str, Signature]) -> None:
        inputs = {value.name: value for value in self.program.inputs}
        for name in ("input", "output"):
            taken = [getattr(state, name) for state in self.program.states]
            twice = next((value for value in taken if taken.count(value) > 1), None)
            if twice is not None:
                self._fail(f"{name} {twice!r}", "is in two states")
        for state in self.program.states:
            what = f"state {state.input!r}"
            if state.input not in inputs or state.output not in outputs:
                self._fail(what, f"becomes {state.output!r}: there is no such input or output")
            before, (dtype, shape) = inputs[state.input], outputs[state.output]
            if before.dtype is not dtype or len(before.shape) != len(shape):
                self._fail(what, f"of {before.dtype!r}{list(before.shape)} becomes {dtype!r}{list(shape)}")
            if (state.axis is None) != (state.length is None) or not -1 < (state.axis or 0) < max(1, len(shape)):
                self._fail(what, f"appends along axis {state.axis} behind {state.length}")
            others = [p for p in range(len(shape)) if p != state.axis]
            if any(before.shape[p] is not shape[p] for p in others):
                self._fail(what, f"of shape {list(before.shape)} becomes one of {list(shape)}")
            if state.axis is None or state.length is None:
                continue
            self._check_dims(what, (state.length,), frozenset())
            room = before.shape[state.axis] - shape[state.axis]
            guarded = any(guard.kind == "least" and guard.dim is room for guard in self.program.guards)
            if not guarded and not nonnegative(room):
                self._fail(what, f"becomes {shape[state.axis]} long, which no guard keeps within its capacity")
            if not nonnegative(shape[state.axis] - state.length):
                self._fail(what, f"of length {state.length} becomes {shape[state.axis]} long: it shrinks")

    def _check_dims(self, what: str, dims: Sequence[Dim], axes: frozenset[Atom]) -> None:
        """Every atom is a known symbol or one of the axes; run-time values only where axes are allowed."""
        for dim in dims:
            for atom in atoms_of(dim):
                if isinstance(atom, Symbol) and atom not in self.symbols:
                    self._fail(what, f"uses the symbol {atom}, which no input defines")
                if isinstance(atom, Axis | Value) and not axes:
                    self._fail(what, f"has the size {dim}, which depends on {atom}")

    def _check_axes(self, what: str, axes: Sequence[Axis]) -> None:
        if len(set(axes)) != len(axes):
            self._fail(what, "has an axis twice")
        self._check_dims(what, [axis.extent for axis in axes], frozenset())

    def check_tensor(self, tensor: Tensor, visible: Mapping[str, Signature], outer: tuple[Axis, ...] = ()) -> None:
        """Raises OpweldError for a tensor with invalid axes, a body of another dtype, or loads of values that are not
        visible; `outer` are axes around it."""
        what = _label(tensor.name, tensor.origin)
        self._check_axes(what, tensor.axes)
        if tensor.body.dtype is not tensor.dtype:
            self._fail(what, f"is {tensor.dtype!r}, but its body is {tensor.body.dtype!r}")
        self._check_body(what, tensor.body, (*outer, *tensor.axes), visible)

    def _check_body(self, what: str, body: Expr, axes: tuple[Axis, ...], visible: Mapping[str, Signature]) -> None:
        for atom in free_atoms(body):
            if isinstance(atom, Axis) and atom not in axes:
                self._fail(what, f"depends on the axis {atom}, which is not one of its axes")
            if isinstance(atom, Symbol) and atom not in self.symbols:
                self._fail(what, f"uses the symbol {atom}, which no input defines")
        bound: dict[Expr, frozenset[Axis]] = {}
        for node in walk(body):
            inside: frozenset[Axis] = frozenset()
            values = (atom for dim in dims_of(node) for atom in atoms_of(dim) if isinstance(atom, Value))
            for child in (*node.operands, *(value.expr for value in values)):
                inside |= bound[child]
            if isinstance(node, Reduce):
                self._check_axes(what, node.axes)
                captured = [axis for axis in node.axes if axis in inside or axis in axes]
                if captured:
                    self._fail(what, f"reduces over the axis {captured[0]}, which is bound inside or around already")
                inside |= frozenset(node.axes)
            bound[node] = inside
            problem = _type_problem(node, visible)
            if problem is not None:
                self._fail(what, problem)

    def _check_scan(self, scan: Scan) -> None:
        what = _label(f"scan over {scan.time}", scan.origin)
        self._check_axes(what, (scan.time,))
        inner = dict(self.visible)
        for state in scan.states:
            self._check_state(state, scan)
            self._define(state.name, state.dtype, state.shape, inner=True)
            inner[state.name] = (state.dtype, state.shape)
        for step in scan.steps:
            self.check_tensor(step, inner, (scan.time,))
            self._define(step.name, step.dtype, step.shape, inner=True)
            inner[step.name] = (step.dtype, step.shape)
        steps = {step.name: step for step in scan.steps}
        states = {state.name: state for state in scan.states}
        for state in scan.states:
            update = steps.get(state.update)
            if update is None:
                self._fail(what, f"updates {state.name!r} by {state.update!r}, which is not one of its steps")
            if update.dtype is not state.dtype or update.shape != state.shape:
                self._fail(
                    what,
                    f"updates {state.name!r}, {state.dtype!r}{list(state.shape)}, "
                    f"by {update.name!r}, {update.dtype!r}{list(update.shape)}",
                )
        for name, step in scan.stacked:
            if step not in steps:
                self._fail(what, f"stacks {step!r} as {name!r}, which is not one of its steps")
            self._define(name, steps[step].dtype, (scan.time.extent, *steps[step].shape))
        for name, state in scan.final:
            if state not in states:
                self._fail(what, f"gives {state!r} as {name!r}, which is not one of its states")
            self._define(name, states[state].dtype, states[state].shape)

    def _check_extern(self, extern: Extern) -> None:
        what = _label(f"extern {extern.function}", extern.origin)
        if extern.function not in EXTERNS:
            self._fail(what, "is not a known function")
        for name in extern.operands:
            if name not in self.visible:
                self._fail(what, f"reads {name!r}, which is not defined before")
        self._check_dims(what, (*extern.numbers, extern.rows), frozenset())
        sizes = [product(self.visible[name][1]) for name in extern.operands]
        sizes += [product(result.shape) for result in extern.results]
        function = EXTERNS[extern.function]
        whole = function.whole(len(extern.operands), len(extern.results))
        for position, (size, part) in enumerate(zip(sizes, function.parts(extern.numbers), strict=True)):
            rows = ONE if position in whole else extern.rows
            if size is not part * rows:
                self._fail(what, f"has a value of {size} elements where {rows} rows of {part} are required")
        for result in extern.results:
            self._check_dims(what, result.shape, frozenset())
            self._define(result.name, result.dtype, result.shape)

    def _check_state(self, state: State, scan: Scan) -> None:
        what = _label(state.name, scan.origin)
        self._check_axes(what, state.axes)
        if state.initial.dtype is not state.dtype:
            self._fail(what, f"is {state.dtype!r}, but its initial value is {state.initial.dtype!r}")
        self._check_body(what, state.initial, state.axes, self.visible)


def _label(name: str, origin: tuple[str, ...]) -> str:
    return f"tensor {name!r}" + (f" (from {', '.join(origin)})" if origin else "")


def _type_problem(node: Expr, visible: Mapping[str, Signature]) -> str | None:
    """What is wrong with one node, whose operands are right; None when nothing is."""
    for dim in dims_of(node):
        for atom in atoms_of(dim):
            if isinstance(atom, Value) and not atom.expr.dtype.is_integer:
                return f"uses {atom.expr!r} of {atom.expr.dtype!r} as an index"
    if isinstance(node, Load):
        return _load_problem(node, visible)
    if isinstance(node, Unary):
        return None if _unary_fits(node) else f"applies {node.op} to {node.x.dtype!r} in {node!r}"
    if isinstance(node, Binary):
        fits = node.x.dtype is node.y.dtype and _binary_fits(node)
        return None if fits else f"applies {node.op} to {node.x.dtype!r} and {node.y.dtype!r} in {node!r}"
    if isinstance(node, Select):
        fits = node.condition.dtype is DType.BOOL and node.x.dtype is node.y.dtype is node.dtype
        return None if fits else f"selects {node.x.dtype!r} or {node.y.dtype!r} by {node.condition.dtype!r} in {node!r}"
    if isinstance(node, Bitcast):
        fits = node.x.dtype.bits == node.dtype.bits
        return None if fits else f"takes the bits of {node.x.dtype!r} for {node.dtype!r} in {node!r}"
    if isinstance(node, Lookup):
        return None if node.x.dtype is DType.U8 else f"looks up a {node.x.dtype!r} in {node!r}"
    if isinstance(node, Reduce):
        fits = not node.body.dtype.is_storage_only and (node.body.dtype is DType.BOOL) == (node.kind in ("any", "all"))
        return None if fits else f"reduces {node.body.dtype!r} by {node.kind} in {node!r}"
    if isinstance(node, Const) and not isinstance(node.value, bool) and node.dtype is DType.BOOL:
        return f"has the bool literal {node.value!r}"
    return None


def _load_problem(node: Load, visible: Mapping[str, Signature]) -> str | None:
    if node.tensor not in visible:
        return f"loads {node.tensor!r}, which is not defined before"
    dtype, shape = visible[node.tensor]
    if dtype is not node.dtype:
        return f"loads {node.tensor!r} as {node.dtype!r}, but it is {dtype!r}"
    if len(shape) != len(node.indices):
        return f"loads {node.tensor!r} of rank {len(shape)} at {len(node.indices)} indices"
    if bool(node.guards) != (node.fill is not None):
        return f"loads {node.tensor!r} with {len(node.guards)} guards and the fill {node.fill}"
    if node.fill is not None and node.fill.dtype is not node.dtype:
        return f"fills a load of {node.dtype!r} with {node.fill.dtype!r}"
    return None


def _unary_fits(node: Unary) -> bool:
    dtype = node.x.dtype
    if dtype.is_storage_only:
        return False
    if node.op == "not":
        return dtype is DType.BOOL
    if node.op == "bitnot":
        return dtype.is_integer
    return dtype.is_float or (node.op in _ANY_NUMBER_UNARY and dtype.is_integer)


def _binary_fits(node: Binary) -> bool:
    dtype = node.x.dtype
    if dtype.is_storage_only:
        return False
    if node.op in _LOGICAL:
        return dtype is DType.BOOL
    if node.op in _BITWISE:
        return dtype.is_integer
    if node.op == "atan2":
        return dtype.is_float
    if node.op in WORDS:
        return dtype is DType.I32
    return dtype is not DType.BOOL or BINARY[node.op].is_test

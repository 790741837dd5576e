"""LSTM, GRU and RNN: a matrix product of all time steps at once, then a recurrence over the hidden states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from opweld.errors import ModelError, UnsupportedError
from opweld.ops.activation import Formula, recurrent_activation
from opweld.ops.arithmetic import accumulator, add, larger, mul, smaller, sub, widen
from opweld.ops.emitted import Body, Emitted, Indices, define, emit
from opweld.ops.fact import Fact
from opweld.ops.loop import Carried, Loop, Outcome, backwards, loop_over
from opweld.ops.operands import describe, elements_of, given, require_float, require_rank, required, wanted
from opweld.ops.registry import Inference, Lowering, attribute, fresh_axes, infers, lowers
from opweld.tensor.dim import Dim, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, at_least_zero, const, reduce, select

GATES: Mapping[str, int] = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEFAULT_ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "GRU": ("Sigmoid", "Tanh"),
    "RNN": ("Tanh",),
}
TAKES_ALPHA = frozenset(("affine", "elu", "hardsigmoid", "leakyrelu", "scaledtanh", "thresholdedrelu"))
TAKES_BETA = frozenset(("affine", "hardsigmoid", "scaledtanh"))


@infers("LSTM", "GRU", "RNN")
def infer_recurrent(scope: Inference, node: ir.Node) -> list[Fact]:
    """X [T, B, I], W [D, gates * H, I], R [D, gates * H, H] -> Y [T, D, B, H], Y_h [D, B, H] and for LSTM Y_c."""
    if attribute(node, "layout", 0):
        raise UnsupportedError(
            f"{describe(node)}: layout 1 (batch first) is not supported yet. Transpose outside of it."
        )
    x, w, r = (require_rank(scope.fact(required(node, i)), 3, node, 3) for i in range(3))
    require_float(x, node)
    steps, batch, features = x.shape
    hidden = r.shape[2]
    rows = hidden * GATES[node.op_type]
    directions = len(_directions(node))
    checks: list[tuple[Fact, tuple[Dim | int, ...]]] = [
        (w, (directions, rows, features)),
        (r, (directions, rows, hidden)),
    ]
    if (bias := given(node, 3)) is not None:
        checks.append((scope.fact(bias), (directions, rows * 2)))
    checks.extend(
        (scope.fact(v), (directions, batch, hidden)) for v in (given(node, 5), given(node, 6)) if v is not None
    )
    if (peephole := given(node, 7)) is not None:
        checks.append((scope.fact(peephole), (directions, hidden * 3)))
    for fact, expected in checks:
        require_rank(fact, len(expected), node, len(expected))
        for extent, size in zip(fact.shape, expected, strict=True):
            scope.same(extent, as_dim(size), node, f"sizes of {describe(node)}")
    _check_lengths(scope, node, steps)
    every = Fact(x.dtype, (steps, as_dim(directions), batch, hidden))
    last = Fact(x.dtype, every.shape[1:])
    return [every, last, last][: len(node.outputs)]


def _directions(node: ir.Node) -> tuple[bool, ...]:
    """Whether each direction of the node runs backwards."""
    name = attribute(node, "direction", "forward")
    known = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    if name not in known:
        raise ModelError(f"{describe(node)}: direction {name!r} is none of {', '.join(known)}")
    return known[name]


def _check_lengths(scope: Inference, node: ir.Node, steps: Dim) -> None:
    lengths = given(node, 4)
    if lengths is None:
        return
    elements = elements_of(scope.fact(lengths))
    if elements is None or any(length is not steps for length in elements.flat):
        raise UnsupportedError(
            f"{describe(node)}: sequence lengths that differ from the length of the input are not supported yet. "
            f"Leave the input sequence_lens out and feed sequences of one length."
        )


@dataclass(frozen=True)
class Cell:
    """One direction of a recurrent node: `at` is the input's index in time at the recurrence's step."""

    scope: Lowering
    node: ir.Node
    direction: int
    reverse: bool
    loop: Loop
    steps: Dim
    batch: Dim
    hidden: Dim
    dtype: DType
    activations: Sequence[Formula] = field(default=())

    @property
    def at(self) -> Dim:
        """The index in time that the current step reads."""
        return self.steps - 1 - self.loop.time if self.reverse else self.loop.time

    @property
    def step_shape(self) -> tuple[Dim, Dim]:
        """The shape of a state."""
        return self.batch, self.hidden

    def element(self, position: int, *indices: Dim) -> Expr:
        """An element of an input that has a leading axis of directions."""
        return widen(self.scope.load(required(self.node, position), (as_dim(self.direction), *indices)))

    def bias(self, row: Dim, recurrent: bool) -> Expr | None:
        """An element of the input's or the recurrent half of the bias; None when there is none."""
        if given(self.node, 3) is None:
            return None
        return self.element(3, row + self.hidden * GATES[self.node.op_type] if recurrent else row)

    def input_gates(self, recurrent_bias_rows: int) -> Emitted:
        """Emits X W^T + bias for all time steps: [T, B, gates * H]. The recurrent half of the bias is added for so many
        gates from the first on."""
        x = required(self.node, 0)
        features, rows = self.scope.fact(x).shape[2], self.hidden * GATES[self.node.op_type]

        def product(i: Indices) -> Expr:
            (k,) = fresh_axes((features,), "k")
            data = widen(self.scope.load(x, (i[0], i[1], k.dim)))
            return reduce("sum", (k,), mul(data, self.element(1, i[2], k.dim)))

        gates = emit(self.scope, (self.steps, self.batch, rows), product, "input_product")
        if given(self.node, 3) is None:
            return gates
        limit = self.hidden * recurrent_bias_rows

        def biased(i: Indices) -> Expr:
            first, second = self.bias(i[2], recurrent=False), self.bias(i[2], recurrent=True)
            assert first is not None and second is not None
            guarded = select(at_least_zero(limit - 1 - i[2]), second, const(0, second.dtype))
            return add(gates.at(i), add(first, guarded))

        return emit(self.scope, (self.steps, self.batch, rows), biased, "input_gates")

    def state(self, position: int, hint: str) -> Carried:
        """A state that starts with an optional input, or zero."""

        def initial(i: Indices) -> Expr:
            return const(0, self.dtype) if given(self.node, position) is None else self.element(position, *i)

        return self.loop.state(self.step_shape, self.dtype, initial, hint)

    def recurrent_product(self, source: Body, first_gate: int, gates: int, hint: str) -> Emitted:
        """A step tensor [B, gates * H]: state times the recurrent weights of some gates."""

        def body(i: Indices) -> Expr:
            (k,) = fresh_axes((self.hidden,), "k")
            weight = self.element(2, self.hidden * first_gate + i[1], k.dim)
            return reduce("sum", (k,), mul(source((i[0], k.dim)), weight))

        return self.loop.step((self.batch, self.hidden * gates), body, hint)

    def clip(self, x: Expr) -> Expr:
        """The input of an activation, clamped when the node asks for it."""
        limit = attribute(self.node, "clip", None)
        return x if limit is None else smaller(larger(x, -float(limit)), float(limit))


def _lstm(cell: Cell) -> Outcome:
    """i, o, f, c gates; c' = f * c + i * g, h' = o * tanh(c'). Peepholes see c; coupled gates have f = 1 - i."""
    inputs = cell.input_gates(4)
    h, c = cell.state(5, "hidden"), cell.state(6, "cell")
    product = cell.recurrent_product(h.before, 0, 4, "recurrent_product")
    sigmoid, squash_input, squash_cell = cell.activations
    coupled = bool(attribute(cell.node, "input_forget", 0))
    peephole = given(cell.node, 7) is not None

    def gate(i: Indices, number: int, memory: Expr | None, peephole_row: int) -> Expr:
        row = cell.hidden * number + i[1]
        total = add(inputs.at((cell.at, i[0], row)), product.at((i[0], row)))
        if peephole and memory is not None:
            total = add(total, mul(cell.element(7, cell.hidden * peephole_row + i[1]), memory))
        return cell.clip(total)

    def cell_after(i: Indices) -> Expr:
        memory = c.before(i)
        update = sigmoid(gate(i, 0, memory, 0))
        keep = sub(1, update) if coupled else sigmoid(gate(i, 2, memory, 2))
        return add(mul(keep, memory), mul(update, squash_input(gate(i, 3, None, 0))))

    after = cell.loop.step(cell.step_shape, cell_after, "cell_after")

    def hidden_after(i: Indices) -> Expr:
        memory = after.at(i)
        return mul(sigmoid(gate(i, 1, memory, 1)), squash_cell(memory))

    hidden = cell.loop.step(cell.step_shape, hidden_after, "hidden_after")
    return cell.loop.close(((h, hidden), (c, after)), hidden)


def _gru(cell: Cell) -> Outcome:
    """z, r, h gates; h' = (1 - z) * n + z * h, where n sees r * h, or r * (h R + bias) with linear_before_reset."""
    linear = bool(attribute(cell.node, "linear_before_reset", 0))
    inputs = cell.input_gates(2 if linear else 3)
    h = cell.state(5, "hidden")
    sigmoid, squash = cell.activations
    product = cell.recurrent_product(h.before, 0, 3 if linear else 2, "recurrent_product")

    def gate(i: Indices, number: int) -> Expr:
        row = cell.hidden * number + i[1]
        return sigmoid(cell.clip(add(inputs.at((cell.at, i[0], row)), product.at((i[0], row)))))

    def linear_candidate(i: Indices) -> Expr:
        row = cell.hidden * 2 + i[1]
        inner, bias = product.at((i[0], row)), cell.bias(row, recurrent=True)
        return mul(gate(i, 1), inner if bias is None else add(inner, bias))

    candidate: Body = linear_candidate
    if not linear:
        reset = cell.loop.step(cell.step_shape, lambda i: mul(gate(i, 1), h.before(i)), "reset")
        candidate = cell.recurrent_product(reset.at, 2, 1, "candidate_product").at

    def hidden_after(i: Indices) -> Expr:
        total = add(inputs.at((cell.at, i[0], cell.hidden * 2 + i[1])), candidate(i))
        update = gate(i, 0)
        return add(mul(sub(1, update), squash(cell.clip(total))), mul(update, h.before(i)))

    hidden = cell.loop.step(cell.step_shape, hidden_after, "hidden_after")
    return cell.loop.close(((h, hidden),), hidden)


def _rnn(cell: Cell) -> Outcome:
    """h' = f(x W^T + h R^T + bias)"""
    inputs = cell.input_gates(1)
    h = cell.state(5, "hidden")
    product = cell.recurrent_product(h.before, 0, 1, "recurrent_product")
    (squash,) = cell.activations
    hidden = cell.loop.step(
        cell.step_shape,
        lambda i: squash(cell.clip(add(inputs.at((cell.at, *i)), product.at(i)))),
        "hidden_after",
    )
    return cell.loop.close(((h, hidden),), hidden)


CELLS: Mapping[str, Callable[[Cell], Outcome]] = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


@lowers("LSTM", "GRU", "RNN")
def lower_recurrent(scope: Lowering, node: ir.Node) -> None:
    """One recurrence a direction; the outputs stack the directions."""
    x = scope.fact(required(node, 0))
    steps, batch, _ = x.shape
    hidden = scope.fact(required(node, 2)).shape[2]
    outcomes: list[Outcome] = []
    for direction, reverse in enumerate(_directions(node)):
        cell = Cell(
            scope,
            node,
            direction,
            reverse,
            loop_over(scope, node, steps),
            steps,
            batch,
            hidden,
            accumulator(x.dtype),
            _activations(node, direction),
        )
        outcome = CELLS[node.op_type](cell)
        outcomes.append(Outcome(backwards(outcome.stacked, steps), outcome.last) if reverse else outcome)
    every = wanted(node, 0)
    if every is not None:
        define(scope, every, lambda i: _of_direction([o.stacked for o in outcomes], i[1], (i[0], *i[2:])))
    for position in range(len(outcomes[0].last)):
        output = wanted(node, position + 1)
        if output is not None:
            lasts = [outcome.last[position] for outcome in outcomes]
            define(scope, output, lambda i, lasts=lasts: _of_direction(lasts, i[0], i[1:]))


def _of_direction(bodies: Sequence[Body], direction: Dim, indices: Indices) -> Expr:
    first = bodies[0](indices)
    return first if len(bodies) == 1 else select(at_least_zero(-direction), first, bodies[1](indices))


def _activations(node: ir.Node, direction: int) -> list[Formula]:
    """The activations of one direction; alpha and beta are dealt out to the functions that take them, in order."""
    defaults = DEFAULT_ACTIVATIONS[node.op_type]
    directions = len(_directions(node))
    names = [str(name) for name in attribute(node, "activations", None) or defaults * directions]
    if len(names) != len(defaults) * directions and not (node.op_type == "RNN" and len(names) == 2):
        raise ModelError(f"{describe(node)}: expected {len(defaults) * directions} activations, got {names}")
    alphas = iter(attribute(node, "activation_alpha", None) or ())
    betas = iter(attribute(node, "activation_beta", None) or ())
    formulas = [
        recurrent_activation(
            name,
            next(alphas, None) if name.lower() in TAKES_ALPHA else None,
            next(betas, None) if name.lower() in TAKES_BETA else None,
            node,
        )
        for name in names
    ]
    return formulas[direction * len(defaults) : (direction + 1) * len(defaults)]

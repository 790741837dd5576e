"""LSTM, GRU and RNN: a matrix product for all time steps at once, then a recurrence over the hidden states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.activation import Formula, recurrent_activation
from opweld.ops.arithmetic import accumulator, add, apply, larger, mul, smaller, sub, where, widen
from opweld.ops.dynamic import steps_of
from opweld.ops.emitted import Body, Emitted, Indices, define, emit
from opweld.ops.expansion import DOMAIN
from opweld.ops.fact import Fact
from opweld.ops.loop import Carried, Loop, Outcome, loop_over
from opweld.ops.operands import describe, elements_of, given, require_float, require_rank, required, wanted
from opweld.ops.registry import Inference, Lowering, attribute, fresh_axes, infers, lowers
from opweld.tensor.dim import Dim, Value, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, at_least_zero, cast, const, index, reduce, select

GATES: Mapping[str, int] = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEFAULT_ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "GRU": ("Sigmoid", "Tanh"),
    "RNN": ("Tanh",),
}
LANES = 16
"""Extremes are found for as many interleaved elements: as many float32 as fill a vector of any target."""
TAKES_ALPHA = frozenset(("affine", "elu", "hardsigmoid", "leakyrelu", "scaledtanh", "thresholdedrelu"))
TAKES_BETA = frozenset(("affine", "hardsigmoid", "scaledtanh"))


@infers("LSTM", "GRU", "RNN")
@infers("LSTM", domain=DOMAIN)
def infer_recurrent(scope: Inference, node: ir.Node) -> list[Fact]:
    """X [T, B, I], W [D, gates * H, I], R [D, gates * H, H] -> Y [T, D, B, H], Y_h [D, B, H] and for LSTM Y_c. With
    layout 1 the batch comes first: X [B, T, I], states [B, D, H], Y [B, T, D, H]."""
    batch_first = bool(attribute(node, "layout", 0))
    x, w, r = (require_rank(scope.fact(required(node, i)), 3, node, 3) for i in range(3))
    require_float(x, node)
    steps, batch, features = _sizes(node, x)
    hidden = r.shape[2]
    declared = attribute(node, "hidden_size", None)
    if declared is not None:
        scope.same(hidden, as_dim(declared), node, f"hidden_size of {describe(node)}")
    rows = hidden * GATES[node.op_type]
    directions = len(_directions(node))
    checks: list[tuple[Fact, tuple[Dim | int, ...]]] = [
        (w, (directions, rows, features)),
        (r, (directions, rows, hidden)),
    ]
    if (bias := given(node, 3)) is not None:
        checks.append((scope.fact(bias), (directions, rows * 2)))
    state = (batch, directions, hidden) if batch_first else (directions, batch, hidden)
    checks.extend((scope.fact(v), state) for v in (given(node, 5), given(node, 6)) if v is not None)
    if (lengths := given(node, 4)) is not None:
        checks.append((scope.fact(lengths), (batch,)))
    if (peephole := given(node, 7)) is not None:
        checks.append((scope.fact(peephole), (directions, hidden * 3)))
    for fact, expected in checks:
        require_rank(fact, len(expected), node, len(expected))
        for extent, size in zip(fact.shape, expected, strict=True):
            scope.same(extent, as_dim(size), node, f"sizes of {describe(node)}")
    last = Fact(x.dtype, tuple(map(as_dim, state)))
    every = Fact(x.dtype, (batch, steps, *last.shape[1:]) if batch_first else (steps, *last.shape))
    return [every, last, last][: len(node.outputs)]


def _sizes(node: ir.Node, x: Fact) -> tuple[Dim, Dim, Dim]:
    """Steps, batch and features of the input."""
    first, second, features = x.shape
    return (second, first, features) if attribute(node, "layout", 0) else (first, second, features)


def _directions(node: ir.Node) -> tuple[bool, ...]:
    """Whether each direction of the node runs backwards."""
    name = attribute(node, "direction", "forward")
    known = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    if name not in known:
        raise ModelError(f"{describe(node)}: direction {name!r} is none of {', '.join(known)}")
    return known[name]


def _lengths(scope: Lowering, node: ir.Node, steps: Dim) -> ir.Value | None:
    """The lengths of the sequences, unless all are known to equal the number of steps."""
    lengths = given(node, 4)
    elements = None if lengths is None else elements_of(scope.fact(lengths))
    return None if elements is not None and all(length is steps for length in elements.flat) else lengths


@dataclass(frozen=True)
class Cell:
    """One direction of a recurrent node. `lengths` holds the length of each sequence, where not all have `steps`;
    `rounds` says whether the recurrent products read states quantised to 8 bits."""

    scope: Lowering
    node: ir.Node
    direction: int
    reverse: bool
    loop: Loop
    steps: Dim
    batch: Dim
    hidden: Dim
    dtype: DType
    lengths: ir.Value | None
    activations: Sequence[Formula] = field(default=())
    rounds: bool = False

    def at(self, batch: Dim) -> Dim:
        """The index in time that the current step of a sequence reads."""
        return self.mirrored(self.loop.time, batch) if self.reverse else self.loop.time

    def mirrored(self, time: Dim, batch: Dim) -> Dim:
        """The time mirrored within its sequence; beyond the end of a sequence, any valid index."""
        if self.lengths is None:
            return self.steps - 1 - time
        place = sub(self.length(batch), add(index(time), 1))
        return Value(where(self.goes_on(time, batch), place, 0), self.steps).dim

    def length(self, batch: Dim) -> Expr:
        """The number of steps of a sequence."""
        assert self.lengths is not None
        return cast(self.scope.load(self.lengths, (batch,)), DType.I64)

    def goes_on(self, time: Dim, batch: Dim) -> Expr:
        """Whether a sequence has not ended before a step."""
        return apply("lt", index(time), self.length(batch))

    def carried(self, i: Indices, after: Expr, state: Carried) -> Expr:
        """The state after the step, unchanged for a sequence that has ended."""
        return after if self.lengths is None else where(self.goes_on(self.loop.time, i[0]), after, state.before(i))

    def in_order(self, stacked: Body) -> Body:
        """A stacked result [T, B, H] in order of time, zero after the end of a sequence."""

        def body(i: Indices) -> Expr:
            time = self.mirrored(i[0], i[1]) if self.reverse else i[0]
            element = stacked((time, *i[1:]))
            return element if self.lengths is None else where(self.goes_on(i[0], i[1]), element, 0)

        return body

    @property
    def step_shape(self) -> tuple[Dim, Dim]:
        """The shape of a state."""
        return self.batch, self.hidden

    def element(self, position: int, *indices: Dim) -> Expr:
        """An element of an input that has a leading axis of directions."""
        return widen(self.scope.load(required(self.node, position), (as_dim(self.direction), *indices)))

    def bias(self, row: Dim, recurrent: bool) -> Expr | None:
        """An element of the input half or the recurrent half of the bias; None without a bias."""
        if given(self.node, 3) is None:
            return None
        return self.element(3, row + self.hidden * GATES[self.node.op_type] if recurrent else row)

    def input_gates(self, recurrent_bias_rows: int) -> Emitted:
        """Emits X W^T + bias for all time steps: [T, B, gates * H]. The recurrent half of the bias is added for the
        first `recurrent_bias_rows` gates."""
        x = required(self.node, 0)
        features, rows = self.scope.fact(x).shape[2], self.hidden * GATES[self.node.op_type]

        def product(i: Indices) -> Expr:
            (k,) = fresh_axes((features,), "k")
            place = (i[1], i[0]) if attribute(self.node, "layout", 0) else (i[0], i[1])
            data = widen(self.scope.load(x, (*place, k.dim)))
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
            value = given(self.node, position)
            if value is None:
                return const(0, self.dtype)
            direction = as_dim(self.direction)
            place = (i[0], direction, i[1]) if attribute(self.node, "layout", 0) else (direction, *i)
            return widen(self.scope.load(value, place))

        return self.loop.state(self.step_shape, self.dtype, initial, hint)

    def recurrent_product(self, source: Body, first_gate: int, gates: int, hint: str) -> Body:
        """The state times the recurrent weights of some gates, in each step: [B, gates * H]."""
        state, unit = self.rounded(source) if self.rounds else (source, None)

        def body(i: Indices) -> Expr:
            (k,) = fresh_axes((self.hidden,), "k")
            weight = self.element(2, self.hidden * first_gate + i[1], k.dim)
            return reduce("sum", (k,), mul(state((i[0], k.dim)), weight))

        product = self.loop.step((self.batch, self.hidden * gates), body, hint)
        # The scale stays outside of the sum: a sum of products of two tensors is a contraction, with a third factor it
        # is not.
        return product.at if unit is None else lambda i: mul(product.at(i), unit.at(()))

    def rounded(self, source: Body) -> tuple[Body, Emitted]:
        """The state of all sequences, quantised dynamically to 8 bits: each element minus the zero point, and the
        scale."""
        steps = steps_of(self.loop.step, self.step_shape, source, LANES)
        # Values of 8 bits, so that products of them may be sums of integers.
        whole = self.loop.step(self.step_shape, lambda i: steps.rounded(source(i)), "quantized")
        return self.loop.step(self.step_shape, lambda i: steps.from_zero(whole.at(i)), "rounded").at, steps.size

    def clip(self, x: Expr) -> Expr:
        """The input of an activation, clamped if the node has the attribute `clip`."""
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
        total = add(inputs.at((cell.at(i[0]), i[0], row)), product((i[0], row)))
        if peephole and memory is not None:
            total = add(total, mul(cell.element(7, cell.hidden * peephole_row + i[1]), memory))
        return cell.clip(total)

    def cell_after(i: Indices) -> Expr:
        memory = c.before(i)
        update = sigmoid(gate(i, 0, memory, 0))
        keep = sub(1, update) if coupled else sigmoid(gate(i, 2, memory, 2))
        return cell.carried(i, add(mul(keep, memory), mul(update, squash_input(gate(i, 3, None, 0)))), c)

    after = cell.loop.step(cell.step_shape, cell_after, "cell_after")

    def hidden_after(i: Indices) -> Expr:
        memory = after.at(i)
        return cell.carried(i, mul(sigmoid(gate(i, 1, memory, 1)), squash_cell(memory)), h)

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
        return sigmoid(cell.clip(add(inputs.at((cell.at(i[0]), i[0], row)), product((i[0], row)))))

    def linear_candidate(i: Indices) -> Expr:
        row = cell.hidden * 2 + i[1]
        inner, bias = product((i[0], row)), cell.bias(row, recurrent=True)
        return mul(gate(i, 1), inner if bias is None else add(inner, bias))

    candidate: Body = linear_candidate
    if not linear:
        reset = cell.loop.step(cell.step_shape, lambda i: mul(gate(i, 1), h.before(i)), "reset")
        candidate = cell.recurrent_product(reset.at, 2, 1, "candidate_product")

    def hidden_after(i: Indices) -> Expr:
        total = add(inputs.at((cell.at(i[0]), i[0], cell.hidden * 2 + i[1])), candidate(i))
        update = gate(i, 0)
        after = add(mul(sub(1, update), squash(cell.clip(total))), mul(update, h.before(i)))
        return cell.carried(i, after, h)

    hidden = cell.loop.step(cell.step_shape, hidden_after, "hidden_after")
    return cell.loop.close(((h, hidden),), hidden)


def _rnn(cell: Cell) -> Outcome:
    """h' = f(x W^T + h R^T + bias)"""
    inputs = cell.input_gates(1)
    h = cell.state(5, "hidden")
    product = cell.recurrent_product(h.before, 0, 1, "recurrent_product")
    (squash,) = cell.activations

    def hidden_after(i: Indices) -> Expr:
        total = add(inputs.at((cell.at(i[0]), *i)), product(i))
        return cell.carried(i, squash(cell.clip(total)), h)

    hidden = cell.loop.step(cell.step_shape, hidden_after, "hidden_after")
    return cell.loop.close(((h, hidden),), hidden)


CELLS: Mapping[str, Callable[[Cell], Outcome]] = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


@lowers("LSTM", "GRU", "RNN")
@lowers("LSTM", domain=DOMAIN)
def lower_recurrent(scope: Lowering, node: ir.Node) -> None:
    """One recurrence for each direction; the outputs stack the directions. In the domain of opweld the recurrent
    products read hidden states quantised to 8 bits."""
    x = scope.fact(required(node, 0))
    steps, batch, _ = _sizes(node, x)
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
            _lengths(scope, node, steps),
            _activations(node, direction),
            rounds=node.domain == DOMAIN,
        )
        outcome = CELLS[node.op_type](cell)
        outcomes.append(Outcome(cell.in_order(outcome.stacked), outcome.last))
    _define_outputs(scope, node, outcomes)


def _define_outputs(scope: Lowering, node: ir.Node, outcomes: Sequence[Outcome]) -> None:
    batch_first = bool(attribute(node, "layout", 0))

    def stacked(i: Indices) -> Expr:
        time, direction, batch, unit = (i[1], i[2], i[0], i[3]) if batch_first else i
        return _of_direction([outcome.stacked for outcome in outcomes], direction, (time, batch, unit))

    every = wanted(node, 0)
    if every is not None:
        define(scope, every, stacked)
    for position in range(len(outcomes[0].last)):
        output = wanted(node, position + 1)
        if output is not None:
            define(scope, output, _last([outcome.last[position] for outcome in outcomes], batch_first))


def _last(lasts: Sequence[Body], batch_first: bool) -> Body:
    def body(i: Indices) -> Expr:
        direction, batch = (i[1], i[0]) if batch_first else (i[0], i[1])
        return _of_direction(lasts, direction, (batch, i[2]))

    return body


def _of_direction(bodies: Sequence[Body], direction: Dim, indices: Indices) -> Expr:
    first = bodies[0](indices)
    return first if len(bodies) == 1 else select(at_least_zero(-direction), first, bodies[1](indices))


def _activations(node: ir.Node, direction: int) -> list[Formula]:
    """The activations of one direction; alpha and beta are assigned in order to the functions that take them."""
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

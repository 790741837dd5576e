"""Training optimisers, domain ai.onnx.preview.training: one step of gradient descent, element by element.

R is the learning rate, T the number of steps taken before, X a parameter, G its gradient; V and H are states of an
optimiser.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import add, div, mul, number, root, square, sub, where
from opweld.ops.emitted import Indices, define
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, require_float, require_rank, require_same_dtype, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers, required_attribute
from opweld.tensor.dim import ONE
from opweld.tensor.expr import Expr, binary, cast

DOMAIN = "ai.onnx.preview.training"


@dataclass(frozen=True)
class Step:
    """The operands of a step: the rate, the number of steps in its dtype, and an element each of X, G and states."""

    rate: Expr
    steps: Expr
    x: Expr
    gradient: Expr
    states: Sequence[Expr]


def _adagrad(node: ir.Node, step: Step) -> list[Expr]:
    rate = div(step.rate, add(mul(step.steps, float(attribute(node, "decay_factor", 0.0))), 1.0))
    gradient = _regularized(node, step)
    (squares,) = step.states
    squares = add(squares, square(gradient))
    change = div(mul(rate, gradient), add(root(squares), float(attribute(node, "epsilon", 1e-6))))
    return [sub(step.x, change), squares]


def _adam(node: ir.Node, step: Step) -> list[Expr]:
    alpha, beta = float(attribute(node, "alpha", 0.9)), float(attribute(node, "beta", 0.999))
    gradient = _regularized(node, step)
    mean, squares = step.states
    mean = add(mul(mean, alpha), mul(gradient, 1.0 - alpha))
    squares = add(mul(squares, beta), mul(square(gradient), 1.0 - beta))
    unbiased = div(root(sub(1.0, _power(beta, step.steps))), sub(1.0, _power(alpha, step.steps)))
    rate = where(_begun(step), mul(step.rate, unbiased), step.rate)
    change = div(mul(rate, mean), add(root(squares), float(attribute(node, "epsilon", 1e-6))))
    decay = 1.0 - float(attribute(node, "norm_coefficient_post", 0.0))
    return [mul(sub(step.x, change), decay), mean, squares]


def _momentum(node: ir.Node, step: Step) -> list[Expr]:
    alpha, beta = float(required_attribute(node, "alpha")), float(required_attribute(node, "beta"))
    mode = required_attribute(node, "mode")
    if mode not in ("standard", "nesterov"):
        raise ModelError(f"{describe(node)}: mode is {mode[:100]!r}, expected 'standard' or 'nesterov'")
    gradient = _regularized(node, step)
    (momentum,) = step.states
    weight = where(_begun(step), number(beta, gradient), 1.0)
    momentum = add(mul(momentum, alpha), mul(gradient, weight))
    ahead = momentum if mode == "standard" else add(gradient, mul(momentum, alpha))
    return [sub(step.x, mul(ahead, step.rate)), momentum]


def _regularized(node: ir.Node, step: Step) -> Expr:
    return add(step.gradient, mul(step.x, float(attribute(node, "norm_coefficient", 0.0))))


def _begun(step: Step) -> Expr:
    return binary("gt", step.steps, number(0.0, step.steps))


def _power(base: float, exponent: Expr) -> Expr:
    return binary("pow", number(base, exponent), exponent)


Optimizer = Callable[[ir.Node, Step], list[Expr]]

OPTIMIZERS: Mapping[str, tuple[Optimizer, int]] = {
    "Adagrad": (_adagrad, 1),
    "Adam": (_adam, 2),
    "Momentum": (_momentum, 1),
}
"""The results of a step, X first and then the states, and the number of states."""


def _columns(node: ir.Node) -> list[list[ir.Value]]:
    """The inputs after R and T: all X, all G, all of each state."""
    kinds = 2 + OPTIMIZERS[node.op_type][1]
    values = [required(node, position) for position in range(len(node.inputs))]
    count, rest = divmod(len(values) - 2, kinds)
    if rest or count < 1 or len(node.outputs) != count * (kinds - 1):
        raise ModelError(
            f"{describe(node)}: expected R, T and {kinds} inputs and {kinds - 1} outputs for each parameter, "
            f"got {len(node.inputs)} and {len(node.outputs)}"
        )
    return [values[2 + kind * count :][:count] for kind in range(kinds)]


@infers(*OPTIMIZERS, domain=DOMAIN)
def infer_optimizer(scope: Inference, node: ir.Node) -> list[Fact]:
    """The facts of the parameters, then of the states."""
    for position in (0, 1):
        for dim in require_rank(scope.fact(required(node, position)), 0, node, 1).shape:
            scope.same(dim, ONE, node, "the rate and the number of steps are one number each")
    xs, *others = _columns(node)
    for position, x in enumerate(xs):
        whole = require_float(scope.fact(x), node)
        for fact in (scope.fact(column[position]) for column in others):
            require_same_dtype([whole, fact], node)
            require_rank(fact, whole.rank, node, whole.rank)
            for mine, its in zip(whole.shape, fact.shape, strict=True):
                scope.same(mine, its, node, "a parameter, its gradient and its states have one shape")
    return [scope.fact(x) for _ in range(len(others)) for x in xs]


@lowers(*OPTIMIZERS, domain=DOMAIN)
def lower_optimizer(scope: Lowering, node: ir.Node) -> None:
    """Each output is an expression of the elements at the same position."""
    optimizer, _ = OPTIMIZERS[node.op_type]
    rate, steps = required(node, 0), required(node, 1)
    columns = _columns(node)
    count = len(columns[0])
    for position, output in enumerate(node.outputs):
        kind, parameter = divmod(position, count)

        def body(at: Indices, kind: int = kind, parameter: int = parameter) -> Expr:
            x, gradient, *states = (scope.load(column[parameter], at) for column in columns)
            step = Step(cast(scope.load(rate, at), x.dtype), cast(scope.load(steps, at), x.dtype), x, gradient, states)
            return optimizer(node, step)[kind]

        define(scope, output, body)

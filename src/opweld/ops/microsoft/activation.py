"""Activations, some with a bias on the last axis, and the activations of fused operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.activation import Formula, gelu, gelu_tanh, hard_sigmoid, leaky_relu, relu, swish
from opweld.ops.arithmetic import add, larger, mul, smaller, widen
from opweld.ops.emitted import Indices, define
from opweld.ops.fact import Fact
from opweld.ops.microsoft.domain import MICROSOFT
from opweld.ops.operands import describe, given, require_float, require_rank, require_same_dtype, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.tensor.dim import floordiv
from opweld.tensor.expr import Expr, unary

_GELUS = ("Gelu", "BiasGelu", "FastGelu", "QuickGelu")


@infers(*_GELUS, domain=MICROSOFT)
def infer_gelu(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input; a bias has the size of its last axis."""
    x = require_float(scope.fact(required(node, 0)), node)
    bias = given(node, 1)
    if bias is not None:
        fact = require_rank(scope.fact(bias), 1, node, 1)
        require_same_dtype((x, fact), node)
        scope.same(fact.shape[0], require_rank(x, 1, node).shape[-1], node, "the bias lies along the last axis")
    return [Fact(x.dtype, x.shape)]


@lowers(*_GELUS, domain=MICROSOFT)
def lower_gelu(scope: Lowering, node: ir.Node) -> None:
    """The formula of x, or of x + bias."""
    x, bias = required(node, 0), given(node, 1)
    alpha = float(attribute(node, "alpha", 1.702))
    formulas: Mapping[str, Formula] = {"FastGelu": gelu_tanh, "QuickGelu": lambda value: swish(value, alpha)}
    formula = formulas.get(node.op_type, gelu)

    def body(at: Indices) -> Expr:
        element = widen(scope.load(x, at))
        return formula(element if bias is None else add(element, widen(scope.load(bias, at))))

    define(scope, node.outputs[0], body)


@infers("BiasAdd", domain=MICROSOFT)
def infer_bias_add(scope: Inference, node: ir.Node) -> list[Fact]:
    """The broadcast shape of the data, the bias of its last axis and the other addend."""
    facts = [scope.fact(required(node, position)) for position in range(3)]
    dtype = require_same_dtype(facts, node)
    return [Fact(dtype, scope.broadcast([fact.shape for fact in facts], node))]


@lowers("BiasAdd", domain=MICROSOFT)
def lower_bias_add(scope: Lowering, node: ir.Node) -> None:
    """x + bias + skip"""
    x, bias, skip = (required(node, position) for position in range(3))
    define(scope, node.outputs[0], lambda at: add(add(scope.load(x, at), scope.load(bias, at)), scope.load(skip, at)))


@infers("BiasSplitGelu", domain=MICROSOFT)
def infer_bias_split_gelu(scope: Inference, node: ir.Node) -> list[Fact]:
    """[..., 2 * D] -> [..., D]"""
    x = require_rank(scope.fact(required(node, 0)), 1, node)
    bias = require_rank(scope.fact(required(node, 1)), 1, node, 1)
    half = floordiv(x.shape[-1], 2)
    scope.same(half * 2, x.shape[-1], node, "the last axis has two halves")
    scope.same(bias.shape[0], x.shape[-1], node, "the bias lies along the last axis")
    return [Fact(require_same_dtype((x, bias), node), (*x.shape[:-1], half))]


@lowers("BiasSplitGelu", domain=MICROSOFT)
def lower_bias_split_gelu(scope: Lowering, node: ir.Node) -> None:
    """The first half of x + bias times gelu of the second."""
    x, bias = required(node, 0), required(node, 1)
    half = scope.fact(node.outputs[0]).shape[-1]

    def part(at: Indices) -> Expr:
        return add(widen(scope.load(x, at)), widen(scope.load(bias, at)))

    define(scope, node.outputs[0], lambda at: mul(part(at), gelu(part((*at[:-1], at[-1] + half)))))


def fused_activation(node: ir.Node, parameters: Sequence[float]) -> Formula:
    """The function that a fused operator applies to its result; the parameters are those of the activation, in ONNX's
    order."""
    name = str(attribute(node, "activation", ""))

    def number(position: int, default: float) -> float:
        return float(parameters[position]) if position < len(parameters) else default

    formulas: Mapping[str, Callable[[], Formula]] = {
        "": lambda: lambda x: x,
        "Relu": lambda: relu,
        "Tanh": lambda: lambda x: unary("tanh", x),
        "Sigmoid": lambda: lambda x: unary("sigmoid", x),
        "LeakyRelu": lambda: lambda x: leaky_relu(x, number(0, 0.01)),
        "Clip": lambda: lambda x: smaller(larger(x, number(0, -3.4028235e38)), number(1, 3.4028235e38)),
        "HardSigmoid": lambda: lambda x: hard_sigmoid(x, number(0, 0.2), number(1, 0.5)),
        "Gelu": lambda: gelu,
        "Silu": lambda: lambda x: swish(x, 1.0),
    }
    if name not in formulas:
        raise ModelError(
            f"{describe(node)}: unknown activation {name!r}; known are {', '.join(filter(None, formulas))}"
        )
    return formulas[name]()

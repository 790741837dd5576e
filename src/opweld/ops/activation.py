"""Formulas of unary operators: from the name and attributes of a node to a function of one expression."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import add, apply, div, larger, mul, smaller, square, sub, where
from opweld.ops.operands import describe
from opweld.ops.registry import attribute
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, const, unary

Formula: TypeAlias = "Callable[[Expr], Expr]"

PRIMITIVES: Mapping[str, str] = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseNot": "bitnot",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "IsNaN": "isnan",
    "Log": "log",
    "Neg": "neg",
    "Not": "not",
    "Reciprocal": "reciprocal",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softplus": "softplus",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
"""Operators that are one unary expression."""

SELU_ALPHA, SELU_GAMMA = 1.6732631921768188, 1.0507010221481323


def relu(x: Expr) -> Expr:
    """max(x, 0)"""
    return larger(x, 0)


def leaky_relu(x: Expr, slope: Expr | float) -> Expr:
    """x where x >= 0, else slope * x"""
    return where(apply("ge", x, 0), x, mul(x, slope))


def elu(x: Expr, alpha: float) -> Expr:
    """x where x >= 0, else alpha * (exp(x) - 1)"""
    return where(apply("lt", x, 0), mul(sub(unary("exp", x), 1), alpha), x)


def selu(x: Expr, alpha: float, gamma: float) -> Expr:
    """gamma * elu(x, alpha)"""
    return mul(elu(x, alpha), gamma)


def celu(x: Expr, alpha: float) -> Expr:
    """x where x >= 0, else alpha * (exp(x / alpha) - 1)"""
    return where(apply("lt", x, 0), mul(sub(unary("exp", div(x, alpha)), 1), alpha), x)


def hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    """alpha * x + beta clamped to [0, 1]"""
    return larger(smaller(add(mul(x, alpha), beta), 1), 0)


def hard_swish(x: Expr) -> Expr:
    """x * hard_sigmoid(x, 1/6, 1/2)"""
    return mul(x, hard_sigmoid(x, 1 / 6, 0.5))


def gelu(x: Expr) -> Expr:
    """x / 2 * (1 + erf(x / sqrt 2))"""
    return mul(mul(x, 0.5), add(unary("erf", mul(x, math.sqrt(0.5))), 1))


def gelu_tanh(x: Expr) -> Expr:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))"""
    inner = mul(add(x, mul(mul(square(x), x), 0.044715)), math.sqrt(2 / math.pi))
    return mul(mul(x, 0.5), add(unary("tanh", inner), 1))


def mish(x: Expr) -> Expr:
    """x * tanh(softplus(x))"""
    return mul(x, unary("tanh", unary("softplus", x)))


def swish(x: Expr, alpha: float) -> Expr:
    """x * sigmoid(alpha * x)"""
    return mul(x, unary("sigmoid", x if alpha == 1 else mul(x, alpha)))


def softsign(x: Expr) -> Expr:
    """x / (1 + |x|)"""
    return div(x, add(unary("abs", x), 1))


def thresholded_relu(x: Expr, alpha: float) -> Expr:
    """x where x > alpha, else 0"""
    return where(apply("gt", x, alpha), x, 0)


def shrink(x: Expr, bias: float, lambd: float) -> Expr:
    """x + bias below -lambd, x - bias above lambd, 0 between"""
    return where(apply("lt", x, -lambd), add(x, bias), where(apply("gt", x, lambd), sub(x, bias), 0))


def is_infinite(x: Expr, negative: bool, positive: bool) -> Expr:
    """Whether x is one of the selected infinities."""
    if negative and positive:
        return unary("isinf", x)
    if not negative and not positive:
        return const(False, DType.BOOL)
    return binary("eq", x, const(math.inf if positive else -math.inf, x.dtype))


def _gelu_of(node: ir.Node) -> Formula:
    approximate = attribute(node, "approximate", "none")
    if approximate not in ("none", "tanh"):
        raise ModelError(f"{describe(node)}: approximate must be 'none' or 'tanh', got {approximate!r}")
    return gelu_tanh if approximate == "tanh" else gelu


def _number(node: ir.Node, name: str, default: float) -> float:
    return float(attribute(node, name, default))


def _flag(node: ir.Node, name: str) -> bool:
    return bool(attribute(node, name, 1))


FORMULAS: Mapping[str, Callable[[ir.Node], Formula]] = {
    "Celu": lambda n: lambda x: celu(x, _number(n, "alpha", 1.0)),
    "Elu": lambda n: lambda x: elu(x, _number(n, "alpha", 1.0)),
    "Gelu": _gelu_of,
    "HardSigmoid": lambda n: lambda x: hard_sigmoid(x, _number(n, "alpha", 0.2), _number(n, "beta", 0.5)),
    "HardSwish": lambda n: hard_swish,
    "IsInf": lambda n: lambda x: is_infinite(x, _flag(n, "detect_negative"), _flag(n, "detect_positive")),
    "LeakyRelu": lambda n: lambda x: leaky_relu(x, _number(n, "alpha", 0.01)),
    "Mish": lambda n: mish,
    "Relu": lambda n: relu,
    "Selu": lambda n: lambda x: selu(x, _number(n, "alpha", SELU_ALPHA), _number(n, "gamma", SELU_GAMMA)),
    "Shrink": lambda n: lambda x: shrink(x, _number(n, "bias", 0.0), _number(n, "lambd", 0.5)),
    "Softsign": lambda n: softsign,
    "Swish": lambda n: lambda x: swish(x, _number(n, "alpha", 1.0)),
    "ThresholdedRelu": lambda n: lambda x: thresholded_relu(x, _number(n, "alpha", 1.0)),
}
"""Operators that are a formula of one input and attributes."""

UNARY_OPERATORS = (*PRIMITIVES, *FORMULAS)


def formula_of(node: ir.Node) -> Formula:
    """The function that a unary node computes."""
    primitive = PRIMITIVES.get(node.op_type)
    if primitive is not None:
        return lambda x: unary(primitive, x)
    return FORMULAS[node.op_type](node)


def recurrent_activation(name: str, alpha: float | None, beta: float | None, node: ir.Node) -> Formula:
    """The activation of a recurrent operator by its ONNX name, in any case, with its defaults for alpha and beta."""

    def a(default: float) -> float:
        return default if alpha is None else alpha

    def b(default: float) -> float:
        return default if beta is None else beta

    formulas: dict[str, Formula] = {
        "affine": lambda x: add(mul(x, a(1.0)), b(0.0)),
        "elu": lambda x: elu(x, a(1.0)),
        "hardsigmoid": lambda x: hard_sigmoid(x, a(0.2), b(0.5)),
        "leakyrelu": lambda x: leaky_relu(x, a(0.01)),
        "relu": relu,
        "scaledtanh": lambda x: mul(unary("tanh", mul(x, b(1.0))), a(1.0)),
        "sigmoid": lambda x: unary("sigmoid", x),
        "softplus": lambda x: unary("softplus", x),
        "softsign": softsign,
        "tanh": lambda x: unary("tanh", x),
        "thresholdedrelu": lambda x: thresholded_relu(x, a(1.0)),
    }
    formula = formulas.get(name.lower())
    if formula is None:
        raise ModelError(f"{describe(node)}: unknown activation {name!r}; known are {', '.join(sorted(formulas))}")
    return formula

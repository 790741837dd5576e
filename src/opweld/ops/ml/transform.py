"""Transforms of the scores of classical machine learning, and labels from scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.ops.arithmetic import add, apply, div, mul, root, square, sub, where
from opweld.ops.emitted import Body, Emitted, Indices, emit
from opweld.ops.operands import describe
from opweld.ops.registry import Lowering, attribute
from opweld.ops.rows import Rows, rows_of
from opweld.ops.softmax import softmax_of
from opweld.tensor.dim import Dim, Value, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, unary

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def transform_of(node: ir.Node) -> str:
    """The name of the transform; TreeEnsemble numbers them."""
    name = attribute(node, "post_transform", "NONE")
    if isinstance(name, int):
        name = TRANSFORMS[name] if 0 <= name < len(TRANSFORMS) else f"number {name}"
    if name not in TRANSFORMS:
        raise ModelError(f"{describe(node)}: post_transform {name!r} is none of {', '.join(TRANSFORMS)}")
    return str(name)


def transformed(scope: Lowering, transform: str, scores: Emitted, shape: tuple[Dim, Dim]) -> Body:
    """The scores [rows, classes] after the transform of the node."""
    rows = rows_of(scope, shape, scores.at, (1,))
    bodies: Mapping[str, Callable[[], Body]] = {
        "NONE": lambda: scores.at,
        "SOFTMAX": lambda: softmax_of(rows),
        "LOGISTIC": lambda: lambda i: unary("sigmoid", scores.at(i)),
        "SOFTMAX_ZERO": lambda: _softmax_zero(rows),
        "PROBIT": lambda: lambda i: probit(scores.at(i)),
    }
    return bodies[transform]()


def _softmax_zero(rows: Rows) -> Body:
    """Softmax over the scores that are not zero; zeros stay practically zero."""
    largest = rows.total("max", rows.element, "max")

    def power(i: Indices) -> Expr:
        score, most = rows.element(i), largest.at(rows.row(i))
        small = apply("le", unary("abs", score), 1e-7)
        return where(small, mul(score, unary("exp", unary("neg", most))), unary("exp", sub(score, most)))

    def counted(i: Indices) -> Expr:
        return where(apply("le", unary("abs", rows.element(i)), 1e-7), 0.0, powers.at(i))

    powers = rows.per_element(power, "exp")
    total = rows.total("sum", counted, "total")
    return lambda i: where(
        apply("eq", total.at(rows.row(i)), 0), powers.at(i), div(powers.at(i), total.at(rows.row(i)))
    )


def probit(p: Expr) -> Expr:
    """The inverse of the normal distribution function, in Winitzki's approximation as in ONNX Runtime."""
    x = sub(mul(p, 2.0), 1.0)
    logarithm = unary("log", sub(1.0, square(x)))
    half = add(mul(logarithm, 0.5), 2 / (math.pi * 0.147))
    inner = root(sub(root(sub(square(half), div(logarithm, 0.147))), half))
    return mul(mul(unary("sign", x), inner), math.sqrt(2))


def labels_of(node: ir.Node, *names: str) -> list[int]:
    """The integer labels of the classes; strings are refused."""
    if attribute(node, "classlabels_strings", None):
        raise UnsupportedError(
            f"{describe(node)}: its classes have strings as labels, and opweld computes numbers only. "
            "Train the model with integer labels (sklearn.preprocessing.LabelEncoder), and look names up outside."
        )
    for name in names:
        found = attribute(node, name, None)
        if found:
            return [int(label) for label in found]
    return []


def define_best(scope: Lowering, output: ir.Value, labels: list[int], scores: Emitted, shape: tuple[Dim, Dim]) -> None:
    """Defines the labels of the best scores, the first of equal ones."""
    rows = rows_of(scope, shape, scores.at, (1,))
    best = rows.total("argmax", scores.at, "best")
    define_label(scope, output, labels, best.at)


def define_label(scope: Lowering, output: ir.Value, labels: list[int], choice: Body) -> None:
    """Defines the label of each row by the number of its class, an int64."""
    table = Emitted(scope.constant(np.asarray(labels, np.int64), "labels"), DType.I64)
    rows = scope.fact(output).shape
    chosen = emit(scope, rows, choice, "class")
    scope.alias(
        output, emit(scope, rows, lambda i: table.at((Value(chosen.at(i), as_dim(len(labels))).dim,)), "label").name
    )

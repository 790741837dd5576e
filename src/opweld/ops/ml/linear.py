"""Linear models: weighted sums of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import add, apply, sub, where
from opweld.ops.emitted import Emitted, Indices, define, emit
from opweld.ops.fact import Fact
from opweld.ops.matmul import contraction
from opweld.ops.ml.domain import ML
from opweld.ops.ml.transform import define_best, define_label, labels_of, transform_of, transformed
from opweld.ops.operands import describe, require_rank, required, wanted
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers, required_attribute
from opweld.tensor.dim import ZERO, Axis, Dim, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, cast, const, index, unary

Weights: TypeAlias = "np.ndarray[tuple[int, int], np.dtype[np.float32]]"


def weights_of(node: ir.Node, name: str, rows: int) -> Weights:
    """A list of numbers as rows of one length."""
    values = np.asarray(attribute(node, name, None) or (), np.float32)
    if rows < 1 or values.size % rows:
        raise ModelError(f"{describe(node)}: {values.size} {name} are not {rows} rows of one length")
    return values.reshape(rows, values.size // rows)


def require_features(scope: Inference, node: ir.Node, count: int) -> Dim:
    """How many rows the input has, which is [rows, features] or one row of that many features."""
    x = require_rank(scope.fact(required(node, 0)), 1, node, 2)
    scope.same(x.shape[-1], as_dim(count), node, f"rows have {count} features")
    return x.shape[0] if x.rank == 2 else as_dim(1)


def weighted(scope: Lowering, node: ir.Node, weights: Weights, rows: Dim) -> Emitted:
    """Emits the sums [rows, outputs] of the features weighted by each row of [outputs, features]."""
    x = required(node, 0)
    table = Emitted(scope.constant(weights, "coefficients"), DType.F32)

    def total(at: Indices) -> Expr:
        k = Axis("k", as_dim(weights.shape[1]))
        return contraction((k,), cast(scope.load(x, (at[0], k.dim)), DType.F32), table.at((at[1], k.dim)))

    return emit(scope, (rows, as_dim(weights.shape[0])), total, "product")


def linear(scope: Lowering, node: ir.Node, names: tuple[str, str], outputs: int, rows: Dim) -> Emitted:
    """Emits the sums [rows, outputs] of weighted features and intercepts."""
    product = weighted(scope, node, weights_of(node, names[0], outputs), rows)
    intercepts = attribute(node, names[1], None)
    if not intercepts:
        return product
    added = Emitted(scope.constant(np.asarray(intercepts, np.float32), "intercepts"), DType.F32)
    return emit(scope, (rows, as_dim(outputs)), lambda at: add(product.at(at), added.at(at[1:])), "scores")


def _checked(node: ir.Node, outputs: int) -> int:
    """The number of features of a node with that many outputs."""
    intercepts = attribute(node, "intercepts", None) or ()
    if len(intercepts) not in (0, outputs):
        raise ModelError(f"{describe(node)}: {len(intercepts)} intercepts are given for {outputs} sums")
    transform_of(node)
    return weights_of(node, "coefficients", outputs).shape[1]


@infers("LinearRegressor", domain=ML)
def infer_regressor(scope: Inference, node: ir.Node) -> list[Fact]:
    """[rows, features] -> float32 [rows, targets]"""
    targets = int(attribute(node, "targets", 1))
    rows = require_features(scope, node, _checked(node, targets))
    return [Fact(DType.F32, (rows, as_dim(targets)))]


@lowers("LinearRegressor", domain=ML)
def lower_regressor(scope: Lowering, node: ir.Node) -> None:
    """The transform of coefficients * features + intercepts"""
    rows, _ = scope.fact(node.outputs[0]).shape
    targets = int(attribute(node, "targets", 1))
    scores = linear(scope, node, ("coefficients", "intercepts"), targets, rows)
    define(scope, node.outputs[0], transformed(scope, transform_of(node), scores, (rows, as_dim(targets))))


@infers("LinearClassifier", domain=ML)
def infer_classifier(scope: Inference, node: ir.Node) -> list[Fact]:
    """[rows, features] -> int64 labels [rows], float32 scores [rows, classes]; one sum distinguishes two classes."""
    required_attribute(node, "coefficients")
    sums, labels = _sums(node), _labels(node)
    rows = require_features(scope, node, _checked(node, sums))
    if sums != len(labels) and not (sums == 1 and len(labels) == 2):
        raise ModelError(f"{describe(node)}: {sums} sums do not distinguish {len(labels)} classes")
    return [Fact(DType.I64, (rows,)), Fact(DType.F32, (rows, as_dim(len(labels))))]


def _sums(node: ir.Node) -> int:
    return len(attribute(node, "intercepts", None) or ()) or max(1, len(_labels(node)))


def _labels(node: ir.Node) -> list[int]:
    labels = labels_of(node, "classlabels_ints")
    if not labels:
        raise ModelError(f"{describe(node)}: attribute 'classlabels_ints' is missing")
    return labels


@lowers("LinearClassifier", domain=ML)
def lower_classifier(scope: Lowering, node: ir.Node) -> None:
    """The transform of coefficients * features + intercepts, and the label of the largest sum."""
    labels, sums = _labels(node), _sums(node)
    (rows,) = scope.fact(node.outputs[0]).shape
    scores = linear(scope, node, ("coefficients", "intercepts"), sums, rows)
    if sums < len(labels):
        return _define_pair(scope, node, labels, scores)
    shape = (rows, as_dim(sums))
    if (label := wanted(node, 0)) is not None:
        define_best(scope, label, labels, scores, shape)
    if (output := wanted(node, 1)) is not None:
        define(scope, output, transformed(scope, transform_of(node), scores, shape))
    return None


def _define_pair(scope: Lowering, node: ir.Node, labels: Sequence[int], scores: Emitted) -> None:
    """Two classes that one sum distinguishes: the second where it is positive."""
    logistic = transform_of(node) == "LOGISTIC"

    def score(at: Indices) -> Expr:
        return scores.at((at[0], ZERO))

    def both(at: Indices) -> Expr:
        value = unary("sigmoid", score(at)) if logistic else score(at)
        return where(apply("eq", index(at[1]), 1), value, sub(1.0, value))

    if (label := wanted(node, 0)) is not None:
        define_label(scope, label, list(labels), lambda at: where(apply("gt", score(at), 0), const(1, DType.I64), 0))
    if (output := wanted(node, 1)) is not None:
        define(scope, output, both)

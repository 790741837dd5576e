"""Support vector machines: weighted sums of kernels of a row and each support vector."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.ops.arithmetic import add, apply, larger, mul, smaller, square, sub, where
from opweld.ops.elementwise import power
from opweld.ops.emitted import Body, Emitted, Indices, define, emit
from opweld.ops.fact import Fact
from opweld.ops.matmul import contraction
from opweld.ops.ml.domain import ML
from opweld.ops.ml.linear import Weights, require_features, weighted, weights_of
from opweld.ops.ml.transform import define_best, labels_of, transform_of, transformed
from opweld.ops.operands import describe, required, wanted
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.tensor.dim import ZERO, Axis, Dim, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, const, index, reduce, select, unary

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")

MOST_WEIGHTS = 1 << 26
"""The most weights of pairs of classes: one is stored for each support vector and pair, though most are zero."""

# ------------------------------------------------------------------------------------------------------------- kernels


def _numbers(node: ir.Node, name: str, *counts: int) -> list[Any]:
    """A list that must be as long as one of the counts."""
    values = list(attribute(node, name, None) or ())
    if len(values) not in counts:
        expected = " or ".join(str(count) for count in counts)
        raise ModelError(f"{describe(node)}: {name} has {len(values)} numbers where {expected} are expected")
    return values


def _kernel(node: ir.Node) -> str:
    kernel = str(attribute(node, "kernel_type", "LINEAR"))
    if kernel not in KERNELS:
        raise ModelError(f"{describe(node)}: kernel_type {kernel!r} is none of {', '.join(KERNELS)}")
    _numbers(node, "kernel_params", *((0, 3) if kernel == "LINEAR" else (3,)))
    return kernel


def _likeness(scope: Lowering, node: ir.Node, vectors: Weights, rows: Dim) -> Emitted:
    """Emits the kernel of each row and each support vector, [rows, vectors], unless it is linear."""
    kernel = _kernel(node)
    if kernel == "RBF":
        return _radial(scope, node, vectors, rows)
    gamma, offset, degree = (float(number) for number in attribute(node, "kernel_params", ()))
    product = weighted(scope, node, vectors, rows)

    def body(at: Indices) -> Expr:
        value = add(mul(product.at(at), gamma), offset)
        return unary("tanh", value) if kernel == "SIGMOID" else power(value, const(degree, DType.F32))

    return emit(scope, (rows, as_dim(len(vectors))), body, "kernel")


def _radial(scope: Lowering, node: ir.Node, vectors: Weights, rows: Dim) -> Emitted:
    """exp(-gamma |x - v|^2). Distances are summed directly: |x|^2 - 2 x v + |v|^2 would be a matrix product, but
    cancels where rows and vectors are closer to each other than to the origin."""
    x, gamma = required(node, 0), float(attribute(node, "kernel_params", ())[0])
    # Features first, so that vectors run along neighbouring support vectors.
    table = Emitted(scope.constant(np.ascontiguousarray(vectors.T), "vectors"), DType.F32)

    def distance(at: Indices) -> Expr:
        k = Axis("k", as_dim(vectors.shape[1]))
        apart = sub(cast(scope.load(x, (at[0], k.dim)), DType.F32), table.at((k.dim, at[1])))
        return reduce("sum", (k,), square(apart))

    shape = (rows, as_dim(len(vectors)))
    squares = emit(scope, shape, distance, "distance")
    return emit(scope, shape, lambda at: unary("exp", mul(squares.at(at), -gamma)), "kernel")


def _sums(
    scope: Lowering, node: ir.Node, vectors: Weights | None, weights: Weights, rho: Sequence[float], rows: Dim
) -> Emitted:
    """Emits the sums [rows, outputs] of kernels weighted by [outputs, vectors], minus a rho for each; without support
    vectors, the weights are those of features."""
    shape = (rows, as_dim(len(weights)))
    if vectors is None:
        product = weighted(scope, node, weights, rows)
    elif _kernel(node) == "LINEAR":
        # One sum of features for each output, with exact weights: large kernels would cancel in float32.
        folded = weights.astype(np.float64) @ vectors.astype(np.float64)
        product = weighted(scope, node, folded.astype(np.float32), rows)
    else:
        likeness = _likeness(scope, node, vectors, rows)
        table = Emitted(scope.constant(weights, "coefficients"), DType.F32)

        def total(at: Indices) -> Expr:
            v = Axis("v", as_dim(len(vectors)))
            return contraction((v,), likeness.at((at[0], v.dim)), table.at((at[1], v.dim)))

        product = emit(scope, shape, total, "product")
    added = Emitted(scope.constant(np.asarray(rho, np.float32), "rho"), DType.F32)
    return emit(scope, shape, lambda at: add(product.at(at), added.at(at[1:])), "scores")


# ---------------------------------------------------------------------------------------------------------- regression


def _supports(node: ir.Node) -> int:
    """How many support vectors a regressor has; if none, its coefficients weight the features."""
    count = int(attribute(node, "n_supports", 0))
    if count < 0:
        raise ModelError(f"{describe(node)}: n_supports must not be negative, got {count}")
    return count


@infers("SVMRegressor", domain=ML)
def infer_regressor(scope: Inference, node: ir.Node) -> list[Fact]:
    """[rows, features] -> float32 [rows, 1]"""
    count = _supports(node)
    _kernel(node)
    _numbers(node, "rho", 1)
    if transform_of(node) != "NONE":
        raise UnsupportedError(
            f"{describe(node)}: ONNX Runtime leaves post_transform out of regressions. Set it to NONE, and add an "
            "operator after this one that computes it."
        )
    if count:
        _numbers(node, "coefficients", count)
    vectors = weights_of(node, "support_vectors", count) if count else weights_of(node, "coefficients", 1)
    return [Fact(DType.F32, (require_features(scope, node, vectors.shape[1]), as_dim(1)))]


@lowers("SVMRegressor", domain=ML)
def lower_regressor(scope: Lowering, node: ir.Node) -> None:
    """coefficients * kernels + rho; of one class its sign, which is -1 for zero."""
    output, count = node.outputs[0], _supports(node)
    rows, _ = scope.fact(output).shape
    vectors = weights_of(node, "support_vectors", count) if count else None
    sums = _sums(scope, node, vectors, weights_of(node, "coefficients", 1), _numbers(node, "rho", 1), rows)
    if not attribute(node, "one_class", 0):
        scope.alias(output, sums.name)
        return
    define(scope, output, lambda at: where(apply("gt", sums.at(at), 0), const(1.0, DType.F32), -1.0))


# ------------------------------------------------------------------------------------------------------ classification


def _labels(node: ir.Node) -> list[int]:
    labels = labels_of(node, "classlabels_ints")
    if len(labels) < 2:
        raise ModelError(f"{describe(node)}: at least two classlabels_ints are expected, got {labels}")
    return labels


def _vectors_per_class(node: ir.Node, classes: int) -> list[int]:
    """How many support vectors each class has; an empty list for a model without any."""
    counts = [int(count) for count in _numbers(node, "vectors_per_class", 0, classes)]
    if min(counts, default=0) < 0:
        raise ModelError(f"{describe(node)}: vectors_per_class must not be negative, got {counts}")
    return counts if sum(counts) else []


@infers("SVMClassifier", domain=ML)
def infer_classifier(scope: Inference, node: ir.Node) -> list[Fact]:
    """[rows, features] -> int64 labels [rows], float32 scores [rows, N]. N is the number of classes, but that of pairs
    of more than two classes where there are support vectors and no probabilities."""
    classes = len(_labels(node))
    pairs, counts = classes * (classes - 1) // 2, _vectors_per_class(node, classes)
    transform = transform_of(node)
    if not counts:
        # The first one is added to every sum.
        _numbers(node, "rho", *sorted({1, pairs, classes}))
        features = weights_of(node, "coefficients", classes).shape[1]
        return _facts(require_features(scope, node, features), classes)
    _kernel(node)
    _numbers(node, "rho", pairs)
    _numbers(node, "coefficients", (classes - 1) * sum(counts))
    likely = _numbers(node, "prob_a", 0, pairs)
    _numbers(node, "prob_b", len(likely))
    if pairs * sum(counts) > MOST_WEIGHTS:
        raise UnsupportedError(
            f"{describe(node)}: {sum(counts)} support vectors of {pairs} pairs of classes are more than opweld keeps "
            "weights for. Use a model of fewer classes, or one against the rest for each class."
        )
    if pairs == 1 and not likely and transform == "PROBIT":
        raise UnsupportedError(
            f"{describe(node)}: PROBIT of one score gives one number where two classes have two. Set post_transform to "
            "NONE, or give probabilities (prob_a, prob_b)."
        )
    rows = require_features(scope, node, weights_of(node, "support_vectors", sum(counts)).shape[1])
    return _facts(rows, classes if likely or pairs == 1 else pairs)


def _facts(rows: Dim, scores: int) -> list[Fact]:
    return [Fact(DType.I64, (rows,)), Fact(DType.F32, (rows, as_dim(scores)))]


@lowers("SVMClassifier", domain=ML)
def lower_classifier(scope: Lowering, node: ir.Node) -> None:
    """Classes are compared in pairs, and the class that wins most is the label. Scores are those of the pairs, or
    probabilities computed from them. Without support vectors each class has a sum of features, and the largest wins."""
    labels = _labels(node)
    (rows,) = scope.fact(node.outputs[0]).shape
    classes, rho = as_dim(len(labels)), attribute(node, "rho", ())
    counts = _vectors_per_class(node, len(labels))
    if not counts:
        coefficients = weights_of(node, "coefficients", len(labels))
        scores = votes = _sums(scope, node, None, coefficients, [rho[0]] * len(labels), rows)
    else:
        vectors = weights_of(node, "support_vectors", sum(counts))
        scores = _sums(scope, node, vectors, _pair_weights(node, counts), rho, rows)
        votes = _votes(scope, scores, len(labels), rows)
    if (label := wanted(node, 0)) is not None:
        define_best(scope, label, labels, votes, (rows, classes))
    if (output := wanted(node, 1)) is not None:
        define(scope, output, _written(scope, node, scores, len(labels), rows))


def _written(scope: Lowering, node: ir.Node, scores: Emitted, classes: int, rows: Dim) -> Body:
    """The results computed from the scores."""
    transform, counts = transform_of(node), _vectors_per_class(node, classes)
    if counts and attribute(node, "prob_a", None):
        likely = _probabilities(scope, node, scores, classes, rows)
        return transformed(scope, transform, likely, (rows, as_dim(classes)))
    if counts and classes == 2:
        return _both(scores, transform)
    return transformed(scope, transform, scores, (rows, scope.fact(node.outputs[1]).shape[1]))


def _pairs(classes: int) -> list[tuple[int, int]]:
    """The pairs of classes in the order of their scores."""
    return list(itertools.combinations(range(classes), 2))


def _pair_weights(node: ir.Node, counts: Sequence[int]) -> Weights:
    """Weights [pairs, vectors]: of the pair (i, j), row j - 1 of the coefficients for vectors of class i, row i for
    those of j, zeros elsewhere."""
    classes = len(counts)
    coefficients = weights_of(node, "coefficients", classes - 1)
    ends = np.cumsum(counts)
    own = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    weights = np.zeros((classes * (classes - 1) // 2, sum(counts)), np.float32)
    for row, (i, j) in zip(weights, _pairs(classes), strict=True):
        row[own[i]] = coefficients[j - 1, own[i]]
        row[own[j]] = coefficients[i, own[j]]
    return weights


def _votes(scope: Lowering, scores: Emitted, classes: int, rows: Dim) -> Emitted:
    """Emits how many pairs each class wins, [rows, classes]: the first one where the score is positive."""
    pairs = np.asarray(_pairs(classes), np.int64)
    table = Emitted(scope.constant(pairs, "pairs"), DType.I64)

    def wins(at: Indices) -> Expr:
        p = Axis("p", as_dim(len(pairs)))
        above = apply("gt", scores.at((at[0], p.dim)), 0)
        winner = select(above, table.at((p.dim, 0)), table.at((p.dim, 1)))
        return reduce("sum", (p,), cast(binary("eq", winner, index(at[1])), DType.I64))

    return emit(scope, (rows, as_dim(classes)), wins, "votes")


def _both(scores: Emitted, transform: str) -> Body:
    """The scores of two classes from the score s of their pair: (-s, s), logistic (sigmoid(-s), sigmoid(s)). Other
    transforms ONNX Runtime does not apply; the scores are (1 - s, s) then."""

    def body(at: Indices) -> Expr:
        score = scores.at((at[0], ZERO))
        other = unary("neg", score) if transform in ("NONE", "LOGISTIC") else sub(1.0, score)
        value = where(apply("eq", index(at[1]), 0), other, score)
        return unary("sigmoid", value) if transform == "LOGISTIC" else value

    return body


def _probabilities(scope: Lowering, node: ir.Node, scores: Emitted, classes: int, rows: Dim) -> Emitted:
    """Emits the probabilities [rows, classes] that agree best with those of the pairs, sigmoids of their scores."""
    pairs = as_dim(len(_pairs(classes)))
    slopes, shifts = (
        Emitted(scope.constant(np.asarray(attribute(node, name, ()), np.float32), name), DType.F32)
        for name in ("prob_a", "prob_b")
    )

    def first(at: Indices) -> Expr:
        score = add(mul(scores.at(at), slopes.at(at[1:])), shifts.at(at[1:]))
        return smaller(larger(unary("sigmoid", unary("neg", score)), 1e-7), 1 - 1e-7)

    likely = emit(scope, (rows, pairs), first, "likely")
    result = (DType.F32, (rows, as_dim(classes)))
    (made,) = scope.extern("couple", [likely.name], [result], (classes, pairs), rows)
    return Emitted(made, DType.F32)

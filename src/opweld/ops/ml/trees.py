"""Ensembles of decision trees."""

from __future__ import annotations

from collections.abc import Sequence

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import apply, sub, where
from opweld.ops.emitted import Emitted, Indices, define, emit
from opweld.ops.fact import Fact
from opweld.ops.ml.domain import ML
from opweld.ops.ml.forest import AGGREGATES, Forest, listed_forest, numbered_forest, numbers_of
from opweld.ops.ml.transform import define_best, define_label, labels_of, transform_of, transformed
from opweld.ops.operands import describe, require_rank, required, wanted
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers, required_attribute
from opweld.tensor.dim import as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, cast, const, index, unary

# ---------------------------------------------------------------------------------------------------------- regression


@infers("TreeEnsembleRegressor", "TreeEnsemble", domain=ML)
def infer_regressor(scope: Inference, node: ir.Node) -> list[Fact]:
    """[rows, features] -> [rows, targets]; float32, but TreeEnsemble keeps the dtype of its input."""
    forest = _forest(node)
    transform_of(node)
    _aggregate(node)
    _base(node, forest.targets)
    x = _rows(scope, node, forest)
    dtype = x.dtype if node.op_type == "TreeEnsemble" else DType.F32
    return [Fact(dtype, (x.shape[0], as_dim(forest.targets)))]


@lowers("TreeEnsembleRegressor", "TreeEnsemble", domain=ML)
def lower_regressor(scope: Lowering, node: ir.Node) -> None:
    """The transform of the aggregated leaves that a row reaches."""
    forest, output = _forest(node), node.outputs[0]
    scores = _scores(scope, node, forest, _base(node, forest.targets), _aggregate(node))
    shape = scope.fact(output).shape
    define(scope, output, transformed(scope, transform_of(node), scores, (shape[0], shape[1])))


def _forest(node: ir.Node) -> Forest:
    if node.op_type == "TreeEnsembleClassifier":
        return listed_forest(node, "class", len(_labels(node)))
    targets = int(attribute(node, "n_targets", 1))
    if targets < 1:
        raise ModelError(f"{describe(node)}: n_targets must be at least 1, got {targets}")
    return numbered_forest(node, targets) if node.op_type == "TreeEnsemble" else listed_forest(node, "target", targets)


def _aggregate(node: ir.Node) -> int:
    """The number of `AGGREGATES`; TreeEnsemble counts from the average on."""
    found = attribute(node, "aggregate_function", "SUM")
    if isinstance(found, int):
        found = dict(enumerate(("AVERAGE", "SUM", "MIN", "MAX"))).get(found, f"number {found}")
    if found not in AGGREGATES:
        raise ModelError(f"{describe(node)}: aggregate_function {found!r} is none of {', '.join(AGGREGATES)}")
    return AGGREGATES.index(found)


def _base(node: ir.Node, targets: int) -> list[float]:
    """The base value of each sum."""
    values = [float(value) for value in numbers_of(node, "base_values")]
    if len(values) not in (0, 1, targets):
        raise ModelError(f"{describe(node)}: {len(values)} base values are given for {targets} sums")
    return (values * targets if len(values) == 1 else values) or [0.0] * targets


def _rows(scope: Inference, node: ir.Node, forest: Forest) -> Fact:
    x = require_rank(scope.fact(required(node, 0)), 2, node, 2)
    scope.at_least(x.shape[1] - forest.features, 0, node, "rows have the features that the trees test")
    return x


def _scores(scope: Lowering, node: ir.Node, forest: Forest, base: Sequence[float], aggregate: int) -> Emitted:
    """Emits the sums of all rows, in float32, of float64 rows in float64."""
    x = required(node, 0)
    fact = scope.fact(x)
    dtype = DType.F64 if fact.dtype is DType.F64 else DType.F32
    rows = emit(scope, fact.shape, lambda at: cast(scope.load(x, at), dtype), "rows")
    made = forest.apply(scope, rows.name, (fact.shape[0], fact.shape[1]), dtype, base, aggregate)
    return Emitted(made, dtype)


# ------------------------------------------------------------------------------------------------------ classification


def _labels(node: ir.Node) -> list[int]:
    labels = labels_of(node, "classlabels_int64s")
    if not labels:
        raise ModelError(f"{describe(node)}: attribute 'classlabels_int64s' is missing")
    return labels


@infers("TreeEnsembleClassifier", domain=ML)
def infer_classifier(scope: Inference, node: ir.Node) -> list[Fact]:
    """[rows, features] -> int64 labels [rows], float32 scores [rows, classes]"""
    forest = _forest(node)
    transform_of(node)
    required_attribute(node, "nodes_treeids")
    x = _rows(scope, node, forest)
    if len(numbers_of(node, "base_values")) not in (0, 1, forest.targets):
        raise ModelError(f"{describe(node)}: there must be a base value for each of {forest.targets} classes")
    return [Fact(DType.I64, x.shape[:1]), Fact(DType.F32, (x.shape[0], as_dim(forest.targets)))]


@lowers("TreeEnsembleClassifier", domain=ML)
def lower_classifier(scope: Lowering, node: ir.Node) -> None:
    """The sums of the classes' weights, and the label of the largest. If the leaves have weights of only one of two
    classes, the label is by that sum."""
    forest, labels = _forest(node), _labels(node)
    ids = {int(number) for number in numbers_of(node, "class_ids")}
    if len(labels) == 2 and len(ids) == 1:
        return _lower_binary(scope, node, forest, labels, ids.pop())
    scores = _scores(scope, node, forest, _base(node, forest.targets), 0)
    shape = (scope.fact(required(node, 0)).shape[0], as_dim(forest.targets))
    if (label := wanted(node, 0)) is not None:
        define_best(scope, label, labels, scores, shape)
    if (output := wanted(node, 1)) is not None:
        define(scope, output, transformed(scope, transform_of(node), scores, shape))
    return None


def _lower_binary(scope: Lowering, node: ir.Node, forest: Forest, labels: list[int], weighed: int) -> None:
    """The score s of one class: a probability, 1 - s the other's, where no weight is negative; else s and -s."""
    base = [float(value) for value in numbers_of(node, "base_values")]
    added = [0.0, 0.0]
    added[weighed] = base[-1] if base else 0.0
    scores = _scores(scope, node, forest, added, 0)
    probability = all(float(weight) >= 0 for weight in numbers_of(node, "class_weights"))
    logistic = transform_of(node) == "LOGISTIC"

    def score(at: Indices) -> Expr:
        return scores.at((at[0], as_dim(weighed)))

    def passed(at: Indices) -> Expr:
        above = apply("gt", score(at), 0.5 if probability else 0.0)
        return where(above, const(1, DType.I64), 0)

    def both(at: Indices) -> Expr:
        other = sub(1.0, score(at)) if probability and not logistic else unary("neg", score(at))
        value = where(apply("eq", index(at[1]), 1), score(at), other)
        return unary("sigmoid", value) if logistic else value

    if (label := wanted(node, 0)) is not None:
        define_label(scope, label, labels, passed)
    if (output := wanted(node, 1)) is not None:
        define(scope, output, both)

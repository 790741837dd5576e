"""Decision trees as tables that are traversed from roots to leaves; see `_trees` of `tensor/externs.py`.

A node is four integers: the feature that it tests, which outcomes of the comparison with the threshold pass, the next
entry if it passes, and the next entry if not. An entry of the tables is the number of a node, or ~number of a leaf.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.operands import describe
from opweld.ops.registry import Lowering, attribute
from opweld.tensor.dim import Dim, as_dim
from opweld.tensor.dtype import DType

LESS, EQUAL, GREATER, NAN = 1, 2, 4, 8
PASSING: Mapping[str, int] = {
    "BRANCH_LEQ": LESS | EQUAL,
    "BRANCH_LT": LESS,
    "BRANCH_GTE": GREATER | EQUAL,
    "BRANCH_GT": GREATER,
    "BRANCH_EQ": EQUAL,
    "BRANCH_NEQ": LESS | GREATER | NAN,
}
"""Outcomes of comparing a value with the threshold that pass the test of a node."""

MODES = tuple(PASSING)
"""The tests in the order in which TreeEnsemble numbers them."""

AGGREGATES: Sequence[str] = ("SUM", "MIN", "MAX", "AVERAGE")
"""How `_trees` numbers the aggregates of leaves."""


@dataclass(frozen=True)
class Branch:
    """A test: `passing` are outcomes, `on_true` and `on_false` keys of branches or leaves."""

    feature: int
    passing: int
    threshold: float
    on_true: object
    on_false: object


@dataclass(frozen=True)
class Forest:
    """Branches by key, (target, weight) pairs of leaves by key, and the keys of the roots, in order."""

    branches: Mapping[object, Branch]
    leaves: Mapping[object, Sequence[tuple[int, float]]]
    roots: Sequence[object]
    targets: int

    def check(self, node: ir.Node) -> None:
        """ModelError unless every path from a root ends in a leaf."""
        state: dict[object, bool] = {}
        for root in self.roots:
            stack = [(root, False)]
            while stack:
                key, left = stack.pop()
                if left:
                    state[key] = True
                    continue
                if key in state:
                    if not state[key]:
                        raise ModelError(f"{describe(node)}: tree node {key} leads to itself")
                    continue
                if key in self.leaves:
                    continue
                if key not in self.branches:
                    raise ModelError(f"{describe(node)}: tree node {key} does not exist")
                state[key] = False
                stack.append((key, True))
                branch = self.branches[key]
                stack += [(branch.on_true, False), (branch.on_false, False)]
        for pairs in self.leaves.values():
            if any(not 0 <= target < self.targets for target, _ in pairs):
                raise ModelError(f"{describe(node)}: a leaf names a target outside of the {self.targets}")
        if any(branch.feature < 0 for branch in self.branches.values()):
            raise ModelError(f"{describe(node)}: a tree node tests a feature with a negative number")

    @property
    def features(self) -> int:
        """The number of features that a row must have."""
        return 1 + max((branch.feature for branch in self.branches.values()), default=-1)

    def apply(self, scope: Lowering, x: str, shape: tuple[Dim, Dim], dtype: DType, base: Any, aggregate: int) -> str:
        """Emits the sums of all rows, [rows, targets]; x is the tensor of the rows, of the dtype of the tables."""
        numbers = {key: number for number, key in enumerate(self.branches)}
        numbers |= {key: ~number for number, key in enumerate(self.leaves)}
        nodes = [
            (branch.feature, branch.passing, numbers[branch.on_true], numbers[branch.on_false])
            for branch in self.branches.values()
        ]
        pairs = [pair for leaf in self.leaves.values() for pair in leaf]
        begins = np.cumsum([0, *(len(leaf) for leaf in self.leaves.values())])
        tables: list[tuple[Iterable[Any], Any, str]] = [
            (nodes, np.int32, "nodes"),
            ([branch.threshold for branch in self.branches.values()], dtype.numpy, "thresholds"),
            ([numbers[root] for root in self.roots], np.int32, "roots"),
            (begins, np.int32, "begins"),
            ([target for target, _ in pairs], np.int32, "targets"),
            ([weight for _, weight in pairs], dtype.numpy, "weights"),
            (base, dtype.numpy, "base"),
        ]
        arrays = [np.asarray(list(values), kind).reshape(-1) for values, kind, _ in tables]
        names = [scope.constant(array, hint) for array, (_, _, hint) in zip(arrays, tables, strict=True)]
        sizes = (len(nodes), len(self.roots), len(self.leaves), len(pairs), self.targets)
        result = (dtype, (shape[0], as_dim(self.targets)))
        (made,) = scope.extern("trees", [x, *names], [result], (shape[1], *sizes, aggregate), shape[0])
        return made


def numbers_of(node: ir.Node, name: str, default: Sequence[Any] = ()) -> list[Any]:
    """A list of numbers, stored as a list or as a tensor `NAME_as_tensor`."""
    tensor = attribute(node, f"{name}_as_tensor", None)
    found = attribute(node, name, None)
    if tensor is not None and found is not None:
        raise ModelError(f"{describe(node)}: {name} is given twice")
    return list(tensor.reshape(-1)) if tensor is not None else list(default if found is None else found)


def same_lengths(node: ir.Node, lists: Mapping[str, Sequence[Any]]) -> None:
    """ModelError unless all lists are as long as the first one."""
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        raise ModelError(f"{describe(node)}: lists of one length are expected, got {lengths}")


def listed_forest(node: ir.Node, kind: str, targets: int) -> Forest:
    """The trees of TreeEnsembleRegressor and TreeEnsembleClassifier: `kind` begins the names of their leaves' lists."""
    columns = {name: numbers_of(node, f"nodes_{name}") for name in _COLUMNS}
    count = len(columns["nodeids"])
    missing = numbers_of(node, "nodes_missing_value_tracks_true", (0,) * count) or [0] * count
    same_lengths(node, {**columns, "missing_value_tracks_true": missing})
    rows = zip(*(columns[name] for name in _COLUMNS), missing, strict=True)
    branches: dict[object, Branch] = {}
    leaves: dict[object, list[tuple[int, float]]] = {}
    roots: dict[int, object] = {}
    for tree, number, feature, mode, value, on_true, on_false, tracks in rows:
        key = (int(tree), int(number))
        if key in branches or key in leaves:
            raise ModelError(f"{describe(node)}: tree {tree} has two nodes of number {number}")
        roots.setdefault(int(tree), key)
        if mode == "LEAF":
            leaves[key] = []
            continue
        if mode not in PASSING:
            raise ModelError(f"{describe(node)}: mode {mode!r} is none of {', '.join(PASSING)} and LEAF")
        passing = PASSING[mode] | (NAN if tracks else 0)
        branches[key] = Branch(int(feature), passing, float(value), (tree, int(on_true)), (tree, int(on_false)))
    own = {name: numbers_of(node, f"{kind}_{name}") for name in ("treeids", "nodeids", "ids", "weights")}
    same_lengths(node, own)
    for tree, number, target, weight in zip(*own.values(), strict=True):
        key = (int(tree), int(number))
        if key not in leaves:
            raise ModelError(f"{describe(node)}: node {number} of tree {tree} has a weight, but is no leaf")
        leaves[key].append((int(target), float(weight)))
    forest = Forest(branches, leaves, list(roots.values()), targets)
    forest.check(node)
    return forest


_COLUMNS = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")


def numbered_forest(node: ir.Node, targets: int) -> Forest:
    """The trees of TreeEnsemble: nodes and leaves by position. A test of set membership is a chain of tests."""
    features, on_true, on_false = (
        numbers_of(node, f"nodes_{n}") for n in ("featureids", "truenodeids", "falsenodeids")
    )
    leaf_true, leaf_false = numbers_of(node, "nodes_trueleafs"), numbers_of(node, "nodes_falseleafs")
    splits, modes = _tensor(node, "nodes_splits"), _tensor(node, "nodes_modes")
    missing = numbers_of(node, "nodes_missing_value_tracks_true", (0,) * len(features)) or [0] * len(features)
    columns = (features, modes, splits, on_true, leaf_true, on_false, leaf_false, missing)
    same_lengths(node, {str(number): column for number, column in enumerate(columns)})
    members = iter(_sets(_tensor(node, "membership_values")))
    branches: dict[object, Branch] = {}
    for number, (feature, mode, split, yes, yes_leaf, no, no_leaf, tracks) in enumerate(zip(*columns, strict=True)):
        passed, failed = ("leaf" if yes_leaf else "node", int(yes)), ("leaf" if no_leaf else "node", int(no))
        nan = NAN if tracks else 0
        key: object = ("node", number)
        if int(mode) < len(MODES):
            branches[key] = Branch(int(feature), PASSING[MODES[int(mode)]] | nan, float(split), passed, failed)
            continue
        values = next(members, list[float]())
        for position, value in enumerate(values):
            last = position == len(values) - 1
            rest: object = failed if last else ("member", number, position)
            branches[key] = Branch(int(feature), EQUAL | nan, float(value), passed, rest)
            key = rest
        if not values:
            branches[key] = Branch(int(feature), nan, 0.0, passed, failed)
    weights, ids = _tensor(node, "leaf_weights"), numbers_of(node, "leaf_targetids")
    same_lengths(node, {"leaf_weights": weights, "leaf_targetids": ids})
    pairs = enumerate(zip(ids, weights, strict=True))
    leaves: dict[object, list[tuple[int, float]]] = {("leaf", i): [(int(t), float(w))] for i, (t, w) in pairs}
    roots = [("node", int(root)) for root in numbers_of(node, "tree_roots")]
    # A tree of one leaf is written as a node whose two branches lead to that leaf.
    forest = Forest(branches, leaves, roots, targets)
    forest.check(node)
    return forest


def _tensor(node: ir.Node, name: str) -> list[Any]:
    found = attribute(node, name, None)
    return [] if found is None else list(found.reshape(-1))


def _sets(values: Sequence[float]) -> list[list[float]]:
    """Sets that are concatenated, each terminated by NaN."""
    found: list[list[float]] = [[]]
    for value in values:
        if value != value:
            found.append([])
        else:
            found[-1].append(float(value))
    return found

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import opweld
from opweld.errors import ModelError, UnsupportedError
from opweld.tensor.flow import interpret_flow
from tests.unit.ops.one_node import Array, flow_of, integers, normal
from tests.unit.ops.runtime_node import ML, check_runtime, runtime_model

INT64 = {0: TensorProto.INT64}

# --------------------------------------------------------------------------------------------------------------- trees


class Trees:
    """Random trees as the lists of a node: complete ones, but that each node may be a leaf early."""

    def __init__(self, trees: int, features: int, targets: int, kind: str, seed: int = 0, **options: Any) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        self.leaves: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
        self.features, self.targets, self.kind = features, targets, kind
        self.modes: list[str] = options.get("modes", ["BRANCH_LEQ"])
        self.least: float = options.get("least", -1.0)
        for tree in range(trees):
            self._grow(tree, 0, depth=4)

    def _grow(self, tree: int, number: int, depth: int) -> None:
        leaf = depth == 0 or self.random.random() < 0.2
        row = (
            tree,
            number,
            int(self.random.integers(self.features)),
            "LEAF" if leaf else str(self.random.choice(self.modes)),
            float(np.round(self.random.standard_normal(), 1).astype(np.float32)),
            0 if leaf else 2 * number + 1,
            0 if leaf else 2 * number + 2,
            int(self.random.integers(2)),
        )
        for column, value in zip(self.nodes.values(), row, strict=True):
            column.append(value)
        if not leaf:
            self._grow(tree, 2 * number + 1, depth - 1)
            self._grow(tree, 2 * number + 2, depth - 1)
            return
        for target in range(self.targets):
            weight = float(self.random.uniform(self.least, 1))
            for column, value in zip(self.leaves.values(), (tree, number, target, weight), strict=True):
                column.append(value)

    def attributes(self) -> dict[str, Any]:
        nodes = {f"nodes_{name}": column for name, column in self.nodes.items()}
        return {**nodes, **{f"{self.kind}_{name}": column for name, column in self.leaves.items()}}


COLUMNS = (
    "treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true"
)  # fmt: skip


def rows(count: int = 17, features: int = 5) -> Array:
    """Rows with values that thresholds equal, and NaN."""
    x = np.round(normal(count, features), 1)
    x[count // 2, 1:3] = np.nan
    return x


@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_tree_regressors(aggregate: str, targets: int) -> None:
    attributes: dict[str, Any] = {"n_targets": targets, "aggregate_function": aggregate}
    attributes |= Trees(11, 5, targets, "target").attributes()
    dims = {0: ["n", 5]}
    check_runtime("TreeEnsembleRegressor", [rows()], ML, dims=dims, more=[[rows(1)]], **attributes)
    check_runtime("TreeEnsembleRegressor", [rows()], ML, base_values=[0.5] * targets, **attributes)


@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"])
def test_tests_of_tree_nodes(mode: str) -> None:
    attributes = Trees(9, 5, 2, "target", seed=3, modes=[mode]).attributes()
    check_runtime("TreeEnsembleRegressor", [rows()], ML, n_targets=2, **attributes)


def test_tests_of_several_kinds_in_one_tree() -> None:
    modes = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"]
    attributes = Trees(9, 5, 2, "target", seed=4, modes=modes).attributes()
    check_runtime("TreeEnsembleRegressor", [rows()], ML, n_targets=2, **attributes)


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_rows_of_other_types(dtype: Any) -> None:
    x = (normal(12, 5) * 3).astype(dtype)
    attributes: dict[str, Any] = {"classlabels_int64s": [0, 1, 2], **Trees(5, 5, 3, "class").attributes()}
    check_runtime("TreeEnsembleClassifier", [x], ML, outputs=2, types=INT64, **attributes)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_tree_classifiers(transform: str) -> None:
    attributes = Trees(7, 5, 3, "class").attributes()
    attributes |= {"classlabels_int64s": [7, -3, 4], "post_transform": transform}
    options: dict[str, Any] = {"outputs": 2, "types": INT64}
    check_runtime("TreeEnsembleClassifier", [rows()], ML, **options, **attributes)
    check_runtime("TreeEnsembleClassifier", [rows()], ML, base_values=[0.5, -0.5, 0.25], **options, **attributes)


def test_two_classes_with_a_score_each() -> None:
    # ONNX Runtime gives the second label whenever its score is positive; here it is that of the larger score.
    attributes: dict[str, Any] = {"classlabels_int64s": [5, 6], **Trees(7, 5, 2, "class", least=0.0).attributes()}
    model = runtime_model("TreeEnsembleClassifier", [rows()], ML, outputs=2, types=INT64, **attributes)
    found = interpret_flow(flow_of(model), {"x0": rows()})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(found["y1"], np.asarray(session.run(["y1"], {"x0": rows()})[0]), rtol=1e-6)
    np.testing.assert_array_equal(found["y0"], 5 + found["y1"].argmax(1))


@pytest.mark.parametrize("least", [0.0, -1.0])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_one_score_tells_two_classes_apart(transform: str, least: float) -> None:
    attributes = Trees(7, 5, 1, "class", least=least).attributes()
    attributes |= {"classlabels_int64s": [4, 2], "post_transform": transform}
    if least == 0:
        attributes["class_weights"] = [weight / 7 for weight in attributes["class_weights"]]
    check_runtime("TreeEnsembleClassifier", [rows()], ML, outputs=2, types=INT64, **attributes)


def tree_ensemble(x: Array, sets: bool) -> dict[str, Any]:
    """Two trees of the fifth version: x0 <= 0.1 ? (x1 in {0.5, 1.5, 2} or x1 < 0.5 ? ...) : ...; and a lone test."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)

    def tensor(name: str, values: list[Any], kind: int = kind) -> onnx.TensorProto:
        return helper.make_tensor(name, kind, [len(values)], values)

    attributes: dict[str, Any] = {
        "tree_roots": [0, 2],
        "n_targets": 2,
        "nodes_featureids": [0, 1, 2],
        "nodes_modes": tensor("m", [0, 6 if sets else 1, 3], TensorProto.UINT8),
        "nodes_splits": tensor("s", [0.1, 0.5, -0.3]),
        "nodes_truenodeids": [1, 0, 3],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [2, 1, 2],
        "nodes_falseleafs": [1, 1, 1],
        "leaf_targetids": [0, 1, 0, 1],
        "leaf_weights": tensor("w", [1.5, -2.0, 4.0, 0.75]),
    }
    if sets:
        attributes["membership_values"] = tensor("v", [0.5, 1.5, 2.0, float("nan")])
    return attributes


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sets", [False, True])
def test_tree_ensembles(sets: bool, dtype: Any) -> None:
    x = np.array([[0, 0.5, 1], [0, 2, -1], [0.1, 1.4, -0.3], [3, 3, -0.31], [-1, -1, -1]], dtype)
    options: dict[str, Any] = {"version": 5, "types": {0: helper.np_dtype_to_tensor_dtype(x.dtype)}}
    check_runtime("TreeEnsemble", [x], ML, dims={0: ["n", 3]}, **options, **tree_ensemble(x, sets))


def test_trees_that_are_none_are_refused() -> None:
    attributes = Trees(2, 5, 1, "target").attributes()
    turned = dict(attributes, nodes_truenodeids=[0] * len(attributes["nodes_truenodeids"]))
    with pytest.raises(ModelError, match="leads to itself"):
        flow_of(runtime_model("TreeEnsembleRegressor", [rows()], ML, **turned))
    with pytest.raises(ModelError, match="does not exist"):
        missing = [999] * len(attributes["nodes_truenodeids"])
        flow_of(runtime_model("TreeEnsembleRegressor", [rows()], ML, **dict(attributes, nodes_falsenodeids=missing)))
    with pytest.raises(ModelError, match="one length"):
        flow_of(runtime_model("TreeEnsembleRegressor", [rows()], ML, **dict(attributes, nodes_values=[1.0])))
    with pytest.raises(ModelError, match="outside of the 1"):
        far = [5] * len(attributes["target_ids"])
        flow_of(runtime_model("TreeEnsembleRegressor", [rows()], ML, **dict(attributes, target_ids=far)))
    with pytest.raises(ModelError, match="the trees test"):
        flow_of(runtime_model("TreeEnsembleRegressor", [normal(3, 1)], ML, **attributes))


# -------------------------------------------------------------------------------------------------------- linear models


@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressors(targets: int) -> None:
    weights = [float(v) for v in normal(targets * 5)]
    check_runtime("LinearRegressor", [normal(7, 5)], ML, dims={0: ["n", 5]}, coefficients=weights, targets=targets)
    intercepts = [0.5, -1.0, 2.0][:targets]
    options: dict[str, Any] = {"coefficients": weights, "intercepts": intercepts, "targets": targets}
    check_runtime("LinearRegressor", [normal(1, 5)], ML, **options)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float64])
def test_linear_classifiers(dtype: Any, transform: str) -> None:
    x = (normal(9, 4) * 2).astype(dtype)
    options: dict[str, Any] = {"outputs": 2, "types": INT64, "post_transform": transform}
    weights = [float(v) for v in normal(12)]
    options |= {"coefficients": weights, "intercepts": [0.1, 0.2, -0.3], "classlabels_ints": [3, 1, 2]}
    check_runtime("LinearClassifier", [x], ML, dims={0: ["n", 4]}, **options)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_one_sum_tells_two_classes_apart(transform: str) -> None:
    options: dict[str, Any] = {"outputs": 2, "types": INT64, "post_transform": transform}
    options |= {"coefficients": [1.0, -2.0, 0.5], "intercepts": [0.25], "classlabels_ints": [5, 8]}
    check_runtime("LinearClassifier", [normal(9, 3)], ML, **options)


# ------------------------------------------------------------------------------------------------------------- features


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_scalers_and_normalizers(dtype: Any) -> None:
    x = (normal(6, 3) * 4).astype(dtype)
    x[2] = 0
    check_runtime("Scaler", [x], ML, dims={0: ["n", 3]}, offset=[0.5, -1.0, 2.0], scale=[2.0, 0.5, 1.5])
    check_runtime("Scaler", [x], ML, offset=[0.5], scale=[2.0])
    for norm in ("L1", "L2"):
        check_runtime("Normalizer", [x], ML, norm=norm)
    check_runtime("Normalizer", [np.abs(x)], ML, norm="MAX")


def test_imputers() -> None:
    x = normal(4, 3)
    x[1, 2] = x[0, 0] = np.nan
    check_runtime("Imputer", [x], ML, imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=float("nan"))
    check_runtime("Imputer", [x], ML, imputed_value_floats=[9.0], replaced_value_float=float("nan"))
    x[0, 1] = 7
    check_runtime("Imputer", [x], ML, imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=7.0)
    options: dict[str, Any] = {"imputed_value_int64s": [10, 20, 30], "replaced_value_int64": 3, "types": INT64}
    check_runtime("Imputer", [integers(4, 3)], ML, **options)


def test_binarizers() -> None:
    check_runtime("Binarizer", [normal(4, 3)], ML, threshold=0.25)


def test_one_hot_encoders() -> None:
    for dtype in (np.int64, np.float32):
        x = integers(5, 2, low=0, high=6, dtype=dtype)
        check_runtime("OneHotEncoder", [x], ML, cats_int64s=[1, 3, 4], zeros=1)
    with pytest.raises(UnsupportedError, match="Set zeros=1"):
        flow_of(runtime_model("OneHotEncoder", [integers(3)], ML, cats_int64s=[1], zeros=0))


def test_label_encoders() -> None:
    x = integers(5, 4, low=0, high=6)
    options: dict[str, Any] = {"version": 2, "keys_int64s": [3, 1, 5]}
    check_runtime("LabelEncoder", [x], ML, values_floats=[0.5, 1.5, 2.5], default_float=-7.0, **options)
    check_runtime("LabelEncoder", [x], ML, values_int64s=[7, 8, 9], types=INT64, **options)
    floats = np.array([1.5, np.nan, 3.0, 2.0], np.float32)
    keys: dict[str, Any] = {"keys_floats": [1.5, float("nan")], "values_floats": [10.0, 20.0]}
    found = [np.array([10, 20, 0, 0], np.float32)]
    check_runtime("LabelEncoder", [floats], ML, version=4, expected=found, **keys)
    tensors = {"keys_tensor": np.array([1, 2], np.int64), "values_tensor": np.array([4, 5], np.int64)}
    tensors["default_tensor"] = np.array([-9], np.int64)
    stored: dict[str, Any] = {name: numpy_helper.from_array(array, name) for name, array in tensors.items()}
    check_runtime("LabelEncoder", [x], ML, version=4, types=INT64, **stored)


def test_extractors() -> None:
    x = normal(4, 6)
    check_runtime("ArrayFeatureExtractor", [x, np.array([[1, 5, 0]])], ML, constant=(1,), dims={0: ["n", 6]})
    check_runtime("ArrayFeatureExtractor", [x, np.array([2])], ML)
    check_runtime("ArrayFeatureExtractor", [normal(2, 3, 6), np.array([4, 4, 1])], ML)
    check_runtime("ArrayFeatureExtractor", [normal(6), np.array([4, 1])], ML)


def test_vectorizers() -> None:
    options: dict[str, Any] = {"inputdimensions": [2, 4, 1]}
    check_runtime("FeatureVectorizer", [normal(3, 2), normal(3, 4), normal(3, 1)], ML, **options)


def test_trees_as_compiled() -> None:
    attributes = Trees(19, 5, 3, "target", modes=["BRANCH_LEQ", "BRANCH_GT"]).attributes()
    model = runtime_model("TreeEnsembleRegressor", [rows()], ML, dims={0: ["n", 5]}, n_targets=3, **attributes)
    program = opweld.compile(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for count in (1, 17, 100):
        x = rows(count)
        np.testing.assert_allclose(
            program.run({"x0": x})["y0"], np.asarray(session.run(None, {"x0": x})[0]), rtol=1e-5, atol=1e-5
        )

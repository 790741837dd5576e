from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

import opweld
from opweld.errors import ModelError, UnsupportedError
from opweld.tensor.flow import interpret_flow
from tests.unit.ops.one_node import Array, flow_of, normal
from tests.unit.ops.runtime_node import ML, check_runtime, runtime_model

FEATURES = 5
CLASSIFIED: dict[str, Any] = {"outputs": 2, "types": {0: TensorProto.INT64}}
KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]


def numbers(*shape: int, seed: int = 0) -> list[float]:
    return [float(value) for value in normal(*shape, seed=seed).reshape(-1)]


def machine(classes: int, kernel: str = "RBF", degree: float = 3.0, likely: bool = False) -> dict[str, Any]:
    """The attributes of a classifier whose classes have 3, 4, ... support vectors."""
    counts, pairs = [3 + number for number in range(classes)], classes * (classes - 1) // 2
    attributes: dict[str, Any] = {
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.5, degree],
        "vectors_per_class": counts,
        "support_vectors": numbers(sum(counts), FEATURES),
        "coefficients": numbers(classes - 1, sum(counts), seed=1),
        "rho": numbers(pairs, seed=2),
        "classlabels_ints": [7, -3, 4, 9, 1][:classes],
    }
    if likely:
        attributes |= {"prob_a": [-abs(a) for a in numbers(pairs, seed=3)], "prob_b": numbers(pairs, seed=4)}
    return attributes


def regressor(kernel: str = "RBF", **options: Any) -> dict[str, Any]:
    attributes: dict[str, Any] = {"kernel_type": kernel, "kernel_params": [0.3, 0.5, 3.0], "n_supports": 6}
    attributes |= {"support_vectors": numbers(6, FEATURES), "coefficients": numbers(6, seed=1), "rho": [0.25]}
    return attributes | options


def rows(count: int = 40) -> Array:
    return normal(count, FEATURES, seed=9)


# ------------------------------------------------------------------------------------------------------ classification


@pytest.mark.parametrize("likely", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("kernel", KERNELS)
def test_classifiers(kernel: str, classes: int, likely: bool) -> None:
    options: dict[str, Any] = CLASSIFIED | {"dims": {0: ["n", FEATURES]}, "more": [[rows(1)], [rows(7)]]}
    check_runtime("SVMClassifier", [rows()], ML, **options, **machine(classes, kernel, likely=likely))


@pytest.mark.parametrize("degree", [1.0, 2.0, 4.0])
def test_degrees_of_polynomials(degree: float) -> None:
    check_runtime("SVMClassifier", [rows()], ML, **CLASSIFIED, **machine(3, "POLY", degree))


@pytest.mark.parametrize("likely", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("transform", ["SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"])
def test_transforms(transform: str, classes: int, likely: bool) -> None:
    attributes: dict[str, Any] = machine(classes, likely=likely) | {"post_transform": transform}
    if transform == "PROBIT" and not likely:
        attributes |= {"coefficients": [0.01] * len(attributes["coefficients"])}
        attributes |= {"rho": [0.4] * len(attributes["rho"])}
        if classes == 2:
            with pytest.raises(UnsupportedError, match="Set post_transform to NONE"):
                flow_of(runtime_model("SVMClassifier", [rows()], ML, **CLASSIFIED, **attributes))
            return
    check_runtime("SVMClassifier", [rows()], ML, tolerance=1e-5, **CLASSIFIED, **attributes)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float64])
def test_rows_of_other_types(dtype: Any) -> None:
    check_runtime("SVMClassifier", [(rows() * 3).astype(dtype)], ML, **CLASSIFIED, **machine(3))


def test_far_from_the_origin_distances_stay_exact() -> None:
    attributes = machine(3)
    attributes["support_vectors"] = [value + 1000 for value in attributes["support_vectors"]]
    check_runtime("SVMClassifier", [rows() + 1000], ML, **CLASSIFIED, **attributes)


def test_large_linear_kernels_do_not_cancel() -> None:
    # ONNX Runtime rounds each kernel to float32, and is off by more than the largest result here.
    x, coefficients = rows() * 1000, normal(6, seed=1).astype(np.float64)[None]
    vectors = 1000 * normal(6, FEATURES).astype(np.float64)
    vectors[5:] = -(coefficients[:, :5] @ vectors[:5]) / coefficients[0, 5]
    vectors = vectors.astype(np.float32).astype(np.float64)
    attributes = regressor("LINEAR", support_vectors=[float(value) for value in vectors.reshape(-1)])
    wanted = x.astype(np.float64) @ (coefficients @ vectors).T + 0.25
    check_runtime("SVMRegressor", [x], ML, expected=[wanted.astype(np.float32)], **attributes)


def test_classes_may_lack_support_vectors() -> None:
    attributes: dict[str, Any] = machine(3) | {"vectors_per_class": [0, 12, 0]}
    check_runtime("SVMClassifier", [rows()], ML, **CLASSIFIED, **attributes)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_classifiers_without_support_vectors(transform: str) -> None:
    attributes: dict[str, Any] = {"coefficients": numbers(3, FEATURES), "rho": [0.25], "classlabels_ints": [3, 1, 2]}
    attributes |= {"post_transform": transform, "kernel_params": [0.1, 0.0, 3.0], "kernel_type": "RBF"}
    check_runtime("SVMClassifier", [rows()], ML, **CLASSIFIED, **attributes)


def test_two_classes_with_a_sum_each() -> None:
    # ONNX Runtime gives the second label whenever a sum is positive; here it is that of the larger sum.
    attributes: dict[str, Any] = {"coefficients": numbers(2, FEATURES), "rho": [0.25], "classlabels_ints": [5, 6]}
    model = runtime_model("SVMClassifier", [rows()], ML, kernel_params=[0.1, 0.0, 3.0], **CLASSIFIED, **attributes)
    found = interpret_flow(flow_of(model), {"x0": rows()})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(found["y1"], np.asarray(session.run(["y1"], {"x0": rows()})[0]), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found["y0"], 5 + found["y1"].argmax(1))


# ---------------------------------------------------------------------------------------------------------- regression


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("kernel", KERNELS)
def test_regressors(kernel: str, one_class: int) -> None:
    options: dict[str, Any] = {"dims": {0: ["n", FEATURES]}, "more": [[rows(1)]]}
    check_runtime("SVMRegressor", [rows()], ML, **options, **regressor(kernel, one_class=one_class))


def test_regressors_without_support_vectors() -> None:
    attributes: dict[str, Any] = {"coefficients": numbers(FEATURES), "rho": [0.25], "kernel_params": [0.1, 0.0, 3.0]}
    check_runtime("SVMRegressor", [rows()], ML, **attributes)
    check_runtime("SVMRegressor", [rows()], ML, kernel_type="RBF", one_class=1, **attributes)


def test_a_row_of_its_own() -> None:
    check_runtime("SVMRegressor", [rows(1)[0]], ML, **regressor())


# ------------------------------------------------------------------------------------------------- compiled and refused


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_probabilities_as_compiled(classes: int) -> None:
    attributes = machine(classes, likely=True)
    model = runtime_model("SVMClassifier", [rows()], ML, dims={0: ["n", FEATURES]}, **CLASSIFIED, **attributes)
    program = opweld.compile(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for count in (1, 17, 100):
        x = rows(count)
        labels, scores = session.run(None, {"x0": x})
        found = program.run({"x0": x})
        np.testing.assert_array_equal(found["y0"], np.asarray(labels))
        np.testing.assert_allclose(found["y1"], np.asarray(scores), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"coefficients": [1.0]}, "the_SVMClassifier.*coefficients has 1 numbers where 24 are expected"),
        ({"rho": [1.0]}, "rho has 1 numbers where 3"),
        ({"prob_a": [1.0], "prob_b": [1.0]}, "prob_a has 1 numbers where 0 or 3"),
        ({"prob_b": [1.0]}, "prob_b has 1 numbers where 0"),
        ({"support_vectors": [1.0]}, "are not 12 rows of one length"),
        ({"vectors_per_class": [12]}, "vectors_per_class has 1 numbers"),
        ({"vectors_per_class": [14, -2, 0]}, "must not be negative"),
        ({"kernel_params": [0.1]}, "kernel_params has 1 numbers where 3"),
        ({"kernel_type": "COSINE"}, "none of LINEAR, POLY, RBF, SIGMOID"),
        ({"classlabels_ints": [4]}, "at least two"),
        ({"support_vectors": [1.0] * 48}, "rows have 4 features"),
    ],
)
def test_classifiers_that_do_not_fit_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        flow_of(runtime_model("SVMClassifier", [rows()], ML, **CLASSIFIED, **machine(3) | changed))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"coefficients": [1.0]}, "the_SVMRegressor.*coefficients has 1 numbers where 6 are expected"),
        ({"rho": [1.0, 2.0]}, "rho has 2 numbers where 1"),
        ({"n_supports": -1}, "must not be negative"),
        ({"n_supports": 7}, "coefficients has 6 numbers where 7"),
        ({"support_vectors": [1.0]}, "are not 6 rows of one length"),
    ],
)
def test_regressors_that_do_not_fit_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        flow_of(runtime_model("SVMRegressor", [rows()], ML, **regressor() | changed))


def test_labels_may_be_strings() -> None:
    attributes: dict[str, Any] = machine(3) | {"classlabels_strings": ["a", "b", "c"]}
    del attributes["classlabels_ints"]
    kinds: dict[int, int] = {0: TensorProto.STRING}
    model = runtime_model("SVMClassifier", [rows()], ML, outputs=2, types=kinds, **attributes)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = np.asarray(session.run(["y0"], {"x0": rows()})[0])
    np.testing.assert_array_equal(opweld.compile(model).run({"x0": rows()})["y0"], expected)


def test_what_opweld_does_not_do_is_refused_with_a_remedy() -> None:
    with pytest.raises(UnsupportedError, match="Set it to NONE"):
        flow_of(runtime_model("SVMRegressor", [rows()], ML, **regressor(post_transform="LOGISTIC")))

"""`opweld.compile(estimator)`: representative estimators, and what is refused."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, TunedThresholdClassifierCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC

import opweld
from opweld.errors import InputError, ModelError, ModelTypeError, OptionError, UnsupportedError
from opweld.frontend.estimators.answers import answers
from tests.estimators.answers import feeds_of, wrong
from tests.estimators.data import data, table
from tests.patience import PATIENCE_S


def _xgboost() -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=8, max_depth=3)


def _lightgbm() -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(n_estimators=8, min_child_samples=5, verbose=-1)


ESTIMATORS: dict[str, tuple[Callable[[], Any], str]] = {
    "logistic regression": (lambda: make_pipeline(StandardScaler(), LogisticRegression()), "classes"),
    "random forest": (lambda: RandomForestClassifier(20, random_state=0), "classes"),
    "random forest of numbers": (lambda: RandomForestRegressor(20, random_state=0), "numbers"),
    "histogram boosting": (lambda: HistGradientBoostingClassifier(max_iter=10), "classes"),
    "histogram boosting of numbers": (lambda: HistGradientBoostingRegressor(max_iter=10), "numbers"),
    "support vectors": (lambda: SVC(random_state=0), "classes"),
    "nearest neighbours": (lambda: KNeighborsClassifier(3), "classes"),
    "k-means": (lambda: KMeans(4, random_state=0, n_init="auto"), "numbers"),
    "perceptron": (lambda: MLPClassifier((16,), random_state=0, max_iter=30), "classes"),
    "isolation forest": (lambda: IsolationForest(n_estimators=10, random_state=0), "numbers"),
    "XGBoost": (_xgboost, "classes"),
    "LightGBM": (_lightgbm, "numbers"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_saved_estimator_answers_as_the_estimator_does(name: str, tmp_path: Path) -> None:
    make, target = ESTIMATORS[name]
    given = data()
    estimator = make().fit(given.rows, getattr(given, target))
    opweld.compile(estimator).save(tmp_path / "estimator.opweld")
    model = opweld.load(tmp_path / "estimator.opweld")
    assert [(info.name, info.dtype, info.shape) for info in model.inputs] == [("X", "float32", ("batch", 6))]
    for batch in (1, 7, len(given.rows)):
        assert wrong(model, estimator, given.rows[:batch]) == ""


@pytest.fixture(scope="module")
def mixed() -> Any:
    """A pipeline of columns of numbers with gaps, of integers and of texts, whose classes are texts."""
    rows = table()
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    texts = OneHotEncoder(handle_unknown="ignore")
    columns = ColumnTransformer([("numbers", numbers, ["age", "fare", "deck"]), ("texts", texts, ["port", "sex"])])
    classes = np.where(rows["age"] + rows["deck"] * 5 + (rows["sex"] == "male") * 10 > 60, "lost", "saved")
    return make_pipeline(columns, RandomForestClassifier(20, random_state=0)).fit(rows, classes)


def test_columns_of_a_dataframe_are_inputs(mixed: Any, tmp_path: Path) -> None:
    rows = table()
    made = opweld.compile(mixed, rows[:1])
    assert [(info.name, info.shape) for info in made.inputs] == [(name, ("batch", 1)) for name in rows.columns]
    made.save(tmp_path / "mixed.opweld")
    model = opweld.load(tmp_path / "mixed.opweld")
    for batch in (1, 7, len(rows)):
        assert wrong(model, mixed, rows[:batch]) == ""
    unknown = rows[:2].assign(port="Belfast")
    assert wrong(model, mixed, unknown) == ""


def test_arrays_by_column_say_the_same(mixed: Any) -> None:
    rows = table()
    by_name = {name: rows[name].to_numpy() for name in rows.columns}
    assert wrong(opweld.compile(mixed, by_name), mixed, rows) == ""


def test_verify_compares_with_the_estimator(mixed: Any) -> None:
    rows = table()
    model = opweld.compile(mixed, rows[:1])
    found = model.verify(feeds_of(model, rows))
    assert found.passed
    assert found.reference == "Pipeline itself"
    assert [own.name for own in found.comparisons] == ["label", "probabilities"]
    again = pickle.loads(pickle.dumps(model))
    assert again.verify(feeds_of(again, rows)).passed


@pytest.mark.parametrize(
    "estimator", [make_pipeline(StandardScaler(), LinearRegression()), GaussianProcessRegressor(alpha=0.1)], ids=str
)
def test_rows_of_float64_are_fed_as_such(estimator: Any) -> None:
    """A Gaussian process needs them: its weights are large, and cancel."""
    given = data()
    rows = given.rows.astype(np.float64)
    estimator.fit(rows, given.numbers)
    model = opweld.compile(estimator, rows)
    assert model.inputs[0].dtype == "float64"
    for batch in (1, 7, len(rows)):
        assert wrong(model, estimator, rows[:batch], rtol=1e-10) == ""


@pytest.mark.filterwarnings("ignore")
def test_boosters_and_names_of_columns() -> None:
    import lightgbm
    import pandas
    import xgboost

    given = data()
    named = pandas.DataFrame(given.rows, columns=list("abcdef"))
    own = xgboost.train({"objective": "reg:squarederror"}, xgboost.DMatrix(named, label=given.numbers), 5)
    found = opweld.compile(own).run({"X": given.rows})["variable"]
    np.testing.assert_allclose(found[:, 0], own.predict(xgboost.DMatrix(named)), rtol=1e-5, atol=1e-5)
    assert opweld.compile(own).verify({"X": given.rows}).reference == "Booster itself"
    other = lightgbm.train({"verbose": -1}, lightgbm.Dataset(given.rows.copy(), label=given.numbers), 5)
    assert wrong(opweld.compile(other), other, given.rows) == ""
    for classes, objective in ((given.binary, "binary:logistic"), (given.classes, "multi:softprob")):
        several = {"num_class": 3} if objective == "multi:softprob" else {}
        chosen = xgboost.train({"objective": objective, **several}, xgboost.DMatrix(named, label=classes), 4)
        assert wrong(opweld.compile(chosen), chosen, given.rows) == ""
    fitted = _xgboost().fit(named, given.classes)
    assert wrong(opweld.compile(fitted), fitted, given.rows) == ""
    assert fitted.get_booster().feature_names == list("abcdef")


def test_what_is_refused(mixed: Any) -> None:
    from scipy import sparse

    given = data()
    with pytest.raises(ModelError, match="RandomForestClassifier is not fitted: call fit"):
        opweld.compile(RandomForestClassifier().set_params(n_estimators=3), given.rows)
    with pytest.raises(UnsupportedError, match="or texts, give rows: opweld"):
        opweld.compile(mixed)
    scaler = StandardScaler().fit(given.rows)
    with pytest.raises(UnsupportedError, match=r"sparse matrix.*X.toarray\(\)"):
        opweld.compile(scaler, sparse.csr_matrix(given.rows))
    with pytest.raises(InputError, match=r"ndarray of 1 axes; expected an array of two axes"):
        opweld.compile(scaler, given.rows[0])
    with pytest.raises(InputError, match="column 'X' holds texts and float; give the rows as a DataFrame"):
        opweld.compile(scaler, np.array([["a", 1.0]], object))
    with pytest.raises(OptionError, match="any number of rows"):
        opweld.compile(scaler, given.rows, dynamic_shapes={"X": {0: "batch"}})
    with pytest.raises(UnsupportedError, match="FunctionTransformer cannot be converted to ONNX"):
        opweld.compile(FunctionTransformer(np.sin).fit(given.rows), given.rows)
    tuned = TunedThresholdClassifierCV(LogisticRegression()).fit(given.rows, given.binary)
    with pytest.raises(UnsupportedError, match="leaves the threshold of TunedThresholdClassifierCV out"):
        opweld.compile(tuned, given.rows)
    grouped = _xgboost().set_params(num_parallel_tree=3).fit(given.rows, given.classes)
    with pytest.raises(UnsupportedError, match="num_parallel_tree"):
        opweld.compile(grouped)
    with pytest.raises(ModelTypeError, match="an estimator of scikit-learn, XGBoost or LightGBM"):
        opweld.compile(cast("Any", object()), given.rows)


def _tuned() -> Any:
    return TunedThresholdClassifierCV(LogisticRegression())


def _voting(estimator: Any) -> Any:
    return VotingClassifier([("own", estimator)], voting="hard", flatten_transform=False)


@pytest.mark.parametrize(
    "estimator",
    [
        _voting(_tuned()),
        StackingClassifier([("own", _tuned())], LogisticRegression()),
        GridSearchCV(_tuned(), {"estimator__C": [1.0]}),
        OneVsRestClassifier(_tuned()),
        make_pipeline(StandardScaler(), _voting(make_pipeline(StandardScaler(), _tuned()))),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_what_is_refused_is_refused_within_other_estimators(estimator: Any) -> None:
    given = data()
    with pytest.raises(UnsupportedError, match="leaves the threshold of TunedThresholdClassifierCV out"):
        opweld.compile(estimator.fit(given.rows, given.binary))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "value", "told"), [("linear_tree", True, "linear_tree"), ("boosting", "rf", "'rf'")])
def test_trees_of_lightgbm_that_converters_get_wrong_are_refused(name: str, value: Any, told: str) -> None:
    import lightgbm

    given = data()
    settings: Any = {"n_estimators": 3, "bagging_freq": 1, "bagging_fraction": 0.6, "verbose": -1, name: value}
    numbers: Any = lightgbm.LGBMRegressor(**settings).fit(given.rows, given.numbers)
    classes: Any = lightgbm.LGBMClassifier(**settings).fit(given.rows, given.classes)
    steps = make_pipeline(StandardScaler(), lightgbm.LGBMRegressor(**settings)).fit(given.rows, given.numbers)
    for own in (numbers, classes, numbers.booster_, classes.booster_, steps):
        with pytest.raises(UnsupportedError, match=told) as caught:
            opweld.compile(own)
        assert "give rows" not in str(caught.value)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["dart", "gblinear"])
def test_boosters_of_xgboost_that_are_no_sums_of_trees_are_refused(name: str) -> None:
    from xgboost import XGBRegressor

    given = data()
    fitted = XGBRegressor(n_estimators=3, booster=name).fit(given.rows, given.numbers)
    for own in (fitted, fitted.get_booster()):
        with pytest.raises(UnsupportedError, match=f"booster='gbtree' in place of '{name}'$"):
            opweld.compile(own)


def test_rows_are_asked_for_where_they_help_only() -> None:
    from xgboost import XGBRegressor

    given, rows = data(), table()
    missing = XGBRegressor(n_estimators=3, missing=-1.0).fit(given.rows, given.numbers)
    with pytest.raises(UnsupportedError, match="missing values are not nan") as caught:
        opweld.compile(missing)
    assert "give rows" not in str(caught.value)
    for estimator in (OneHotEncoder(), ColumnTransformer([("texts", OneHotEncoder(), ["port"])])):
        with pytest.raises(UnsupportedError, match="or texts, give rows: opweld"):
            opweld.compile(estimator.fit(rows[["port"]]))


@pytest.mark.filterwarnings("ignore")
def test_a_converter_that_the_caller_registered_is_checked_too() -> None:
    from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost
    from skl2onnx import update_registered_converter
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes
    from xgboost import XGBClassifier

    options = {"nocl": [True, False], "zipmap": [True, False, "columns"]}
    update_registered_converter(
        XGBClassifier,
        "XGBoostXGBClassifier",
        calculate_linear_classifier_output_shapes,
        convert_xgboost,
        options=options,
    )
    given = data()
    with pytest.raises(UnsupportedError, match="num_parallel_tree"):
        opweld.compile(_xgboost().set_params(num_parallel_tree=3).fit(given.rows, given.classes))
    fitted = _xgboost().fit(given.rows, given.classes)
    assert wrong(opweld.compile(fitted), fitted, given.rows) == ""


@pytest.mark.parametrize("second", ["compile", "answers"])
def test_threads_that_overlap_leave_warnings_as_they_were(second: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import skl2onnx

    given = data()
    fitted = LinearRegression().fit(given.rows, given.numbers)
    convert, predict = skl2onnx.to_onnx, fitted.predict
    within, go_on, first_done = threading.Event(), threading.Event(), threading.Event()

    def converted(*args: Any, **options: Any) -> Any:
        if within.is_set():
            assert first_done.wait(PATIENCE_S)
        else:
            within.set()
            assert go_on.wait(PATIENCE_S)
        return convert(*args, **options)

    def predicted(rows: Any) -> Any:
        assert first_done.wait(PATIENCE_S)
        return predict(rows)

    monkeypatch.setattr(skl2onnx, "to_onnx", converted)
    before = list(warnings.filters)
    one = threading.Thread(target=lambda: opweld.compile(fitted))
    one.start()
    assert within.wait(PATIENCE_S)
    monkeypatch.setattr(fitted, "predict", predicted)
    other = threading.Thread(
        target=lambda: (
            opweld.compile(fitted)
            if second == "compile"
            else answers(fitted, given.rows, ["variable"], [(len(given.rows), 1)])
        )
    )
    other.start()
    other.join(0.5)  # it comes to its own filters, or to the lock before them
    go_on.set()
    one.join(PATIENCE_S)
    first_done.set()
    other.join(PATIENCE_S)
    assert list(warnings.filters) == before


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_stub_of_a_library_is_no_library(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, ModuleType(library))
    given = data()
    fitted = LinearRegression().fit(given.rows, given.numbers)
    assert wrong(opweld.compile(fitted), fitted, given.rows) == ""
    with pytest.raises(ModelTypeError):
        opweld.compile(cast("Any", object()))


def test_a_converter_that_is_not_installed_is_named(tmp_path: Path) -> None:
    program = """
import sys
sys.modules["skl2onnx"] = None
from sklearn.linear_model import LinearRegression
import opweld
try:
    opweld.compile(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]))
except opweld.errors.ModelTypeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert "the model is a scikit-learn estimator" in done.stdout, done.stderr
    assert "pip install 'opweld[estimators]'" in done.stdout

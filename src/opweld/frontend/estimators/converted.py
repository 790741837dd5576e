"""Estimators to ONNX, by skl2onnx, and by the converters of onnxmltools for XGBoost and LightGBM."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

import onnx

from opweld.errors import ModelError, UnsupportedError, in_line
from opweld.foreign import is_of
from opweld.frontend.estimators.misconverted import misconversion
from opweld.frontend.estimators.quiet import without_warnings
from opweld.frontend.estimators.rows import Columns

BATCH = "batch"
"""The dim of all rows."""

_ML_OPSET = 3
"""Of ai.onnx.ml: the newest that all converters of skl2onnx write."""

_TYPES = {"float32": "Float", "float64": "Double", "bool": "Boolean", "str": "String"}
_NEEDS_ROWS = re.compile(r"column name|invalid literal for int|could not convert string")
"""Errors of converters that were told of one matrix of numbers, and met a column's name, or a text."""

_MIXED = re.compile(r"\btypes?\b|at most \d+ input")
"""Errors of converters that met columns of several dtypes where they take one."""


def converted(estimator: Any, columns: Columns, *, examples: bool) -> onnx.ModelProto:
    """The estimator as an ONNX model, with `BATCH` for the number of rows, and probabilities as an array.

    Args:
        examples: whether the columns are known from rows that were given.

    Raises ModelError for an estimator that is not fitted, UnsupportedError with the converter's reason for one that
    has no converter. ImportError where a converter is not installed."""
    title = type(estimator).__name__
    _check_fitted(estimator)
    convert = _converter(estimator)
    try:
        with without_warnings(), _patched():
            model = convert(columns)
    except ImportError:
        raise
    except Exception as error:  # converters raise whatever they like
        told = " ".join(in_line(str(error) or type(error).__name__).split())
        if "nable to find a shape calculator" in told or "nable to find a converter" in told:
            told = "one of its steps has no converter; skl2onnx.update_registered_converter adds one of your own"
        remedy = _remedy(told, columns, examples)
        raise UnsupportedError(f"{title} cannot be converted to ONNX: {told[:400]}{remedy}") from error
    for value in model.graph.input:
        dim = value.type.tensor_type.shape.dim[0]
        dim.Clear()
        dim.dim_param = BATCH
    return model


def _remedy(told: str, columns: Columns, examples: bool) -> str:
    """What helps against an error of a converter, where that is known."""
    if not examples and _NEEDS_ROWS.search(told):
        return "; if it takes columns by name, or texts, give rows: opweld.compile(estimator, X[:1])"
    floats = {dtype for dtype in columns.dtypes.values() if dtype.startswith("float")}
    if len(floats) > 1 and _MIXED.search(told):
        return "; a step may take columns of one dtype only: give rows whose numbers are all float32, or all float64"
    return ""


def _check_fitted(estimator: Any) -> None:
    if not is_of(estimator, "sklearn.base", "BaseEstimator"):
        return  # a booster is what training made
    validation, exceptions = _module("sklearn.utils.validation"), _module("sklearn.exceptions")
    try:
        validation.check_is_fitted(estimator)
    except exceptions.NotFittedError as error:
        raise ModelError(f"{type(estimator).__name__} is not fitted: call fit, then compile it") from error


def _converter(estimator: Any) -> Callable[[Columns], onnx.ModelProto]:
    """What converts an estimator with these columns."""
    for library, convert in (("xgboost", _xgboost_booster), ("lightgbm", _lightgbm_booster)):
        if is_of(estimator, library, "Booster"):
            return lambda columns: convert(estimator, columns)
    return lambda columns: _of_skl2onnx(estimator, columns)


def _of_skl2onnx(estimator: Any, columns: Columns) -> onnx.ModelProto:
    skl2onnx = _module("skl2onnx")
    _register_boosters()
    estimator = _unnamed(estimator)
    last = _last(estimator)
    return skl2onnx.to_onnx(
        estimator,
        initial_types=_initial_types(columns, "skl2onnx"),
        options={id(last): {"zipmap": False}} if _has_zipmap(last) else None,
        target_opset={"": skl2onnx.__max_supported_opset__, "ai.onnx.ml": _ML_OPSET},
    )


def _initial_types(columns: Columns, converter: str) -> list[tuple[str, Any]]:
    """What a converter is told of the inputs, with types of its own. Texts are a column of their own."""
    data_types = _module(f"{converter}.common.data_types")

    def type_of(dtype: str) -> Any:
        prefix = _TYPES.get(dtype, dtype.capitalize().replace("Ui", "UI"))
        return getattr(data_types, f"{prefix}TensorType")

    return [(name, type_of(dtype)([None, columns.width])) for name, dtype in columns.dtypes.items()]


def _last(estimator: Any) -> Any:
    """The last step of a Pipeline, or the estimator."""
    while hasattr(estimator, "steps"):
        estimator = estimator.steps[-1][1]
    return estimator


def _has_zipmap(estimator: Any) -> bool:
    """Whether skl2onnx would make dicts of an estimator's probabilities."""
    registration = _module("skl2onnx.common._registration")
    try:
        alias = _module("skl2onnx").get_model_alias(type(estimator))
        allowed = registration.get_converter(alias).get_allowed_options()
    except (RuntimeError, ValueError):
        return False
    return "zipmap" in (allowed or ())


def _unnamed(estimator: Any) -> Any:
    """The estimator; a copy without names of columns where its last step is an XGBoost model that has them, as
    onnxmltools takes features by number only."""
    if hasattr(estimator, "steps"):
        name, last = estimator.steps[-1]
        if (unnamed := _unnamed(last)) is last:
            return estimator
        outer = copy.copy(estimator)
        outer.steps = [*estimator.steps[:-1], (name, unnamed)]
        return outer
    if not hasattr(estimator, "get_booster") or estimator.get_booster().feature_names is None:
        return estimator
    unnamed = copy.deepcopy(estimator)
    unnamed.get_booster().feature_names = None
    return unnamed


def _xgboost_booster(booster: Any, columns: Columns) -> onnx.ModelProto:
    _refuse_misconverted(booster)
    bare = booster.copy()
    bare.feature_names = None  # onnxmltools takes features by number only
    return _module("onnxmltools").convert_xgboost(bare, initial_types=_initial_types(columns, "onnxmltools.convert"))


def _lightgbm_booster(booster: Any, columns: Columns) -> onnx.ModelProto:
    _refuse_misconverted(booster)
    return _module("onnxmltools").convert_lightgbm(
        booster, initial_types=_initial_types(columns, "onnxmltools.convert"), zipmap=False
    )


def _register_boosters() -> None:
    """Tells skl2onnx of the converters that onnxmltools has for XGBoost and LightGBM, where these are imported and
    nobody has told it before."""
    skl2onnx, shapes = _module("skl2onnx"), _module("skl2onnx.common.shape_calculator")
    for library, module, classes in _BOOSTERS:
        package: Any = sys.modules.get(library)
        for name in classes:
            kind = getattr(package, name, None)
            if kind is None or _is_registered(kind):
                continue
            converters = _module(f"onnxmltools.convert.{library}.operator_converters.{module}")
            what = "classifier" if "Classifier" in name else "regressor"
            skl2onnx.update_registered_converter(
                kind,
                f"{library}{name}",
                getattr(shapes, f"calculate_linear_{what}_output_shapes"),
                getattr(converters, f"convert_{library}"),
                options=_CLASSIFIER_OPTIONS if what == "classifier" else None,
            )


def _refuse_misconverted(model: Any) -> None:
    if (reason := misconversion(model)) is not None:
        raise UnsupportedError(reason)


def _is_registered(kind: Any) -> bool:
    try:
        _module("skl2onnx").get_model_alias(kind)
    except RuntimeError:
        return False
    return True


_CLASSIFIER_OPTIONS = {"nocl": [True, False], "zipmap": [True, False, "columns"]}
_BOOSTERS = (
    ("xgboost", "XGBoost", ("XGBClassifier", "XGBRegressor", "XGBRFClassifier", "XGBRFRegressor")),
    ("lightgbm", "LightGbm", ("LGBMClassifier", "LGBMRegressor")),
)


@contextmanager
def _patched() -> Generator[None]:
    """skl2onnx as it should be, within `without_warnings`, which keeps other threads out:

    * Every registered converter, of a step or of an estimator within an estimator, refuses what it would get wrong,
      whoever has registered it: XGBoost's are often registered by the caller, as onnxmltools says.
    * skl2onnx 1.20 writes False into a list of integers (which children of HistGradientBoosting take missing values),
      and protobuf 7 takes integers only: its nodes are made with integers."""
    container = _module("skl2onnx.common._container")
    registered = _module("skl2onnx.common._registration").RegisteredConverter
    made, called = container.make_node, registered.__call__

    def make_node(*args: Any, **attributes: Any) -> onnx.NodeProto:
        lists = {name: cast("list[Any]", value) for name, value in attributes.items() if isinstance(value, list)}
        return made(*args, **attributes | {name: _integers(values) for name, values in lists.items()})

    def convert(self: Any, scope: Any, operator: Any, *args: Any) -> Any:
        _refuse_misconverted(getattr(operator, "raw_operator", None))
        return called(self, scope, operator, *args)

    container.make_node, registered.__call__ = make_node, convert
    try:
        yield
    finally:
        container.make_node, registered.__call__ = made, called


def _integers(values: list[Any]) -> list[Any]:
    return [int(own) if isinstance(own, bool) else own for own in values]


def _module(name: str) -> Any:
    """A module of a library that is installed with the extra `estimators`, and ships no types."""
    return import_module(name)

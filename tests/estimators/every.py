"""Every estimator of scikit-learn that skl2onnx has a converter for, and the boosters of other libraries, fitted with a
few rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import skl2onnx
from sklearn.utils import all_estimators, get_tags
from sklearn.utils._test_common.instance_generator import _construct_instances  # what their own tests make

from tests.estimators.data import FEATURES, TEXTS, data

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "GaussianProcessRegressor": {"alpha": 0.1},
    "GenericUnivariateSelect": {"mode": "k_best", "param": 3},
    "KBinsDiscretizer": {"encode": "onehot-dense"},
    "LocalOutlierFactor": {"novelty": True},
    "QuadraticDiscriminantAnalysis": {"reg_param": 0.1},
    "RandomTreesEmbedding": {"sparse_output": False},
    "SelectFpr": {"alpha": 0.9},
    "SelectFromModel": {"max_features": 3, "threshold": -np.inf},
    "SelectFwe": {"alpha": 0.9},
    "SelectKBest": {"k": 3},
    "SelectPercentile": {"percentile": 50},
    "VotingClassifier": {"flatten_transform": False, "voting": "soft"},
}
"""What has to be chosen for a converter: some feature has to be selected."""

BINARY = {"GaussianProcessClassifier", "TunedThresholdClassifierCV", "TargetEncoder", "FixedThresholdClassifier"}
"""Of two classes only."""

TARGETLESS = {"LabelBinarizer", "LabelEncoder"}
"""Encoders of a target."""


@dataclass(frozen=True)
class Fitted:
    """An estimator by name. fit: the fitted estimator, and rows for it; it raises where scikit-learn does."""

    name: str
    fit: Callable[[], tuple[Any, Any]]


def every_estimator() -> Iterator[Fitted]:
    """Those with a converter, in the order of their names."""
    known = set(skl2onnx.supported_converters(from_sklearn=True))
    for name, kind in all_estimators():
        if _alias(kind) in known or f"Sklearn{name}" in known:
            yield Fitted(name, lambda name=name, kind=kind: _fitted(name, kind))
    for name in ("XGBClassifier", "XGBRegressor", "XGBRFClassifier", "XGBRFRegressor"):
        yield Fitted(name, lambda name=name: _boosted("xgboost", name, n_estimators=8))
    for name in ("LGBMClassifier", "LGBMRegressor"):
        yield Fitted(name, lambda name=name: _boosted("lightgbm", name, n_estimators=8, verbose=-1))


def without_converter() -> list[str]:
    """The estimators of scikit-learn that skl2onnx does not convert."""
    known = {own.name for own in every_estimator()}
    return [name for name, _ in all_estimators() if name not in known]


def _alias(kind: type) -> str:
    try:
        return skl2onnx.get_model_alias(kind).removeprefix("Sklearn")
    except RuntimeError:
        return ""


def _fitted(name: str, kind: Any) -> tuple[Any, Any]:
    estimator: Any = next(iter(_construct_instances(kind)))
    estimator.set_params(**SETTINGS.get(name, {}))
    tags = get_tags(estimator)
    given = data(positive=tags.input_tags.positive_only or name.endswith("NB"))
    if name in TARGETLESS:
        column = given.classes[:, None]
        return estimator.fit(given.classes), column
    if name in ("CountVectorizer", "TfidfVectorizer", "HashingVectorizer"):
        return estimator.fit(TEXTS), list(TEXTS)
    rows: Any = given.rows
    if name in ("OneHotEncoder", "OrdinalEncoder", "TargetEncoder"):
        rows = np.random.default_rng(0).integers(0, 4, (len(rows), FEATURES))
    if name == "KernelCenterer":
        rows = rows @ rows.T
    targets = given.binary if name in BINARY else given.classes
    if tags.estimator_type == "regressor" or name.startswith("PLS"):
        targets = np.abs(given.numbers) + 0.1 if name in ("GammaRegressor", "PoissonRegressor") else given.numbers
    if tags.target_tags.multi_output and not tags.target_tags.single_output:
        targets = np.stack([targets, targets[::-1]], 1)
    return estimator.fit(rows, targets), rows


def _boosted(library: str, name: str, **settings: Any) -> tuple[Any, Any]:
    from importlib import import_module

    given = data()
    estimator = getattr(import_module(library), name)(**settings)
    classes = given.binary if name == "XGBRFClassifier" else given.classes  # of more it is refused
    return estimator.fit(given.rows, classes if "Classifier" in name else given.numbers), given.rows

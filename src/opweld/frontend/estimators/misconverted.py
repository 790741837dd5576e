"""Models that converters take, and turn into graphs that answer otherwise; `python -m tests.estimators` looks for
them."""

from __future__ import annotations

import json
from typing import Any


def misconversion(model: Any) -> str | None:
    """Why what skl2onnx 1.20 and onnxmltools 1.16 make of a model answers otherwise than the model; None where nothing
    is known against it.

    Args:
        model: a fitted estimator, without those in it, or a booster.
    """
    kind = type(model).__name__
    if kind == "TunedThresholdClassifierCV":
        return (
            f"skl2onnx 1.20 leaves the threshold of {kind} out, and labels would differ; compile its estimator_, and "
            "compare probabilities with best_threshold_"
        )
    booster = model.get_booster() if hasattr(model, "get_booster") else getattr(model, "booster_", model)
    if hasattr(booster, "save_config"):
        return _of_xgboost(booster, kind)
    if hasattr(booster, "model_to_string"):
        return _of_lightgbm(booster)
    return None


def _of_xgboost(booster: Any, kind: str) -> str | None:
    learner = json.loads(booster.save_config())["learner"]
    gradient_booster = learner["gradient_booster"]
    if (name := gradient_booster["name"]) != "gbtree":
        what = {"dart": "the weights of dropped trees", "gblinear": "linear models"}.get(name, "others than gbtree")
        return f"onnxmltools does not convert {what}: fit with booster='gbtree' in place of {name!r}"
    several = int(learner["learner_model_param"].get("num_class", 0)) > 1
    trees = int(gradient_booster["gbtree_model_param"].get("num_parallel_tree", 1))
    if trees > 1 and (several or kind == "XGBClassifier"):
        return "onnxmltools gives trees to the wrong classes where num_parallel_tree is above 1"
    return None


def _of_lightgbm(booster: Any) -> str | None:
    lines = set(booster.model_to_string().splitlines())  # "name=value" each: of the model first, then of each tree
    if "is_linear=1" in lines:
        return "onnxmltools leaves out the linear models in the leaves: fit with linear_tree=False"
    if "average_output" in lines:
        return "onnxmltools divides by 100 trees, however many there are: fit with boosting_type other than 'rf'"
    return None

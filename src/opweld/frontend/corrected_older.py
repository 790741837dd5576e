"""Operators with the semantics of older opsets, for ONNX's evaluator, which has the newest only."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx.reference.op_run import OpRun

from opweld.frontend.older import DEFAULTS, ONE_AXIS

Array = NDArray[Any]


def _opset(operator: OpRun) -> int:
    return int(operator.run_params["opsets"].get("", ONE_AXIS))


def _given(operator: OpRun) -> set[str]:
    """The attributes of a node, without defaults."""
    return {attribute.name for attribute in operator.onnx_node.attribute}


def _rows(operator: OpRun, x: Array, attributes: dict[str, Any]) -> tuple[Array, int]:
    """The data reshaped so that an operator is along one axis, and that axis: before `ONE_AXIS` it is over all axes
    from `axis` on, by default from the second."""
    if _opset(operator) >= ONE_AXIS:
        return x, int(attributes["axis"])
    axis = int(attributes["axis"]) % x.ndim if "axis" in _given(operator) else min(1, x.ndim)
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])), 1


class Softmax(OpRun):
    """Over all axes from one on before opset 13."""

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        rows, axis = _rows(self, x, attributes)
        made = np.exp(_shifted(rows, axis))
        return ((made / made.sum(axis=axis, keepdims=True)).astype(x.dtype).reshape(x.shape),)


class LogSoftmax(OpRun):
    """The same, without the logarithm of a result rounded to 0."""

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        rows, axis = _rows(self, x, attributes)
        shifted = _shifted(rows, axis)
        made = shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
        return (made.astype(x.dtype).reshape(x.shape),)


def _shifted(rows: Array, axis: int) -> Array:
    return rows - rows.max(axis=axis, keepdims=True, initial=-np.inf)


class Hardmax(OpRun):
    """The same; one at the first maximum."""

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        rows, axis = _rows(self, x, attributes)
        made = np.zeros_like(rows)
        if x.size:
            np.put_along_axis(made, np.expand_dims(rows.argmax(axis), axis), 1, axis)
        return (made.reshape(x.shape),)


class Selu(OpRun):
    """With its own defaults in opset 1."""

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        until, defaults = DEFAULTS["Selu"]
        if _opset(self) < until:
            attributes |= {name: value for name, value in defaults.items() if name not in _given(self)}
        alpha, gamma = float(attributes["alpha"]), float(attributes["gamma"])
        return ((np.where(x > 0, x, alpha * np.expm1(x)) * gamma).astype(x.dtype),)


OLDER: tuple[type[OpRun], ...] = (Softmax, LogSoftmax, Hardmax, Selu)
"""They replace those of ONNX's evaluator."""

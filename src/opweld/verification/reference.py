"""The right answer: a model computed in float64 by ONNX's own reference evaluator.

Every float32 and float16 of the model becomes float64: weights, constants, casts, declared types. Slow, for checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
from numpy.typing import NDArray

from opweld.errors import UnsupportedError, in_line
from opweld.frontend.evaluator import evaluator, widen_array, widen_model
from opweld.runtime.structure import flattened

Array = NDArray[Any]


def float64_outputs(model: Path | onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Array]:
    """The tensors of all outputs of a model for `feeds`, computed in float64.

    Raises UnsupportedError where the reference evaluator cannot: it lacks an operator, or one takes no float64.
    """
    proto = onnx.load(model) if isinstance(model, Path) else onnx.ModelProto.FromString(model.SerializeToString())
    widen_model(proto)
    return _evaluated(proto, {name: _widen_fed(values) for name, values in feeds.items()})


def own_outputs(model: Path, feeds: Mapping[str, Any]) -> list[Array]:
    """The same in the model's own precision: what rounding alone does to it, on any processor.

    Raises UnsupportedError as `float64_outputs` does."""
    return _evaluated(onnx.load(model), feeds)


def _evaluated(proto: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Array]:
    try:
        with np.errstate(all="ignore"):
            outputs: Sequence[Any] = evaluator(proto).run(None, dict(feeds))  # pyright: ignore[reportAssignmentType]
    except Exception as error:  # The evaluator raises whatever NumPy does.
        raise UnsupportedError(f"no float64 reference for this model: {_told(error)}") from error
    return flattened(outputs)


def _told(error: BaseException) -> str:
    """What the evaluator met first, on one line: around it are errors of the bodies and nodes that it was in."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {in_line(str(error))}"[:200]


def _widen_fed(values: Any) -> Any:
    if isinstance(values, list | tuple):
        return [_widen_fed(value) for value in cast("Sequence[Any]", values)]
    return None if values is None else widen_array(values)


def float64_values(model: Path, feeds: Mapping[str, Any]) -> dict[str, Array]:
    """Every tensor of a model's graph by name, bodies of control flow aside, computed in float64. It takes as much
    memory as all of them together. Raises UnsupportedError as `float64_outputs` does."""
    proto = onnx.load(model)
    widen_model(proto)
    return _all_values(proto, {name: _widen_fed(values) for name, values in feeds.items()})


def own_values(model: Path, feeds: Mapping[str, Any]) -> dict[str, Array]:
    """The same in the model's own precision."""
    return _all_values(onnx.load(model), feeds)


def _all_values(proto: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, Array]:
    try:
        with np.errstate(all="ignore"):
            found = cast("Any", evaluator(proto).run(None, dict(feeds), intermediate=True))
    except Exception as error:  # The evaluator raises whatever NumPy does.
        raise UnsupportedError(f"no float64 reference for this model: {_told(error)}") from error
    return {name: value for name, value in found.items() if isinstance(value, np.ndarray)}


def onnxruntime_values(model: Path, feeds: Mapping[str, Any], names: Sequence[str]) -> dict[str, Array]:
    """Tensors of a model's graph by name, from ONNX Runtime, unoptimised.

    Raises UnsupportedError without it, or where it does not take the model with these as outputs."""
    if not names:
        return {}
    proto = onnx.load(model)
    own = {value.name for value in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in own)
    try:
        whole = proto.SerializeToString()
    except ValueError as error:
        raise UnsupportedError("ONNX Runtime is not asked for the values of a model of more than 2 GB") from error
    return dict(zip(names, _of_onnxruntime(whole, feeds, names, optimised=False), strict=True))


def onnxruntime_outputs(model: Path, feeds: Mapping[str, Any], *, optimised: bool = False) -> list[Array]:
    """The tensors of all outputs of a model from ONNX Runtime, by default unoptimised.

    Raises UnsupportedError without it."""
    return flattened(_of_onnxruntime(str(model), feeds, None, optimised=optimised))


def _of_onnxruntime(
    model: str | bytes, feeds: Mapping[str, Any], names: Sequence[str] | None, *, optimised: bool
) -> Sequence[Any]:
    """What ONNX Runtime makes of a model, by path or as bytes: the outputs of these names, all where None."""
    try:
        import onnxruntime
    except ImportError as error:
        raise UnsupportedError("comparing with ONNX Runtime needs it: pip install 'opweld[onnxruntime]'") from error
    runtime = cast("Any", onnxruntime)
    levels = runtime.GraphOptimizationLevel
    options = runtime.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.log_severity_level = 3
    try:
        session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return session.run(None if names is None else list(names), dict(feeds))
    except Exception as error:  # Its errors have no common class.
        summary = " ".join(str(error).split())[:300]
        raise UnsupportedError(f"ONNX Runtime does not run this model: {summary}") from error

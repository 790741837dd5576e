"""A model and the file that rewriting writes of it, run beside each other: in float64, in their own types, and in ONNX
Runtime as a second opinion."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from numpy.typing import NDArray

from opweld.errors import UnsupportedError
from opweld.frontend import onnx as frontend
from opweld.frontend.evaluator import evaluator
from opweld.rewrite.optimize import Optimized
from opweld.rewrite.passes.merge import OWN_ANSWER
from opweld.rewrite.write import save
from opweld.verification.reference import float64_outputs
from tests.unit.rewrite.sizes import feeds_of_sizes

Array = NDArray[Any]

EXACT = 1e-6
"""Of the scale of a result in float64: weights that were combined are rounded to float32 once more."""

HALVES: Mapping[int, float] = {onnx.TensorProto.FLOAT16: 2.0**-10, onnx.TensorProto.BFLOAT16: 2.0**-7}
"""By type, how far apart numbers are beside 1."""

CLOSE = 1e-5
"""Of the scale of a result that is computed in float32."""


def written(made: Optimized) -> onnx.ModelProto:
    """The model as its file says it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "written.onnx"
        save(made, path)
        return onnx.load(path)


def same_answers(
    model: onnx.ModelProto, proto: onnx.ModelProto, feeds: Mapping[str, Array] | None, *, jumps: bool = False
) -> int:
    """Asserts that a written model gives what the original gives, at two sizes of its symbolic dims; at how many sizes
    that was seen: none where it is random. `jumps`: where numbers are rounded decides what it gives, so that it is
    compared in its own types alone."""
    if any(node.op_type in OWN_ANSWER for node in model.graph.node):
        return 0
    model, proto = _evaluable(model), _evaluable(proto)
    count = 0
    exact = max((4 * HALVES.get(tensor.data_type, 0) for tensor in model.graph.initializer), default=EXACT) or EXACT
    contributed = any(node.domain == "com.microsoft" for node in proto.graph.node)
    for fed, wide in feeds_of_sizes(model, feeds):
        right = wide
        before, peer = _own(model, fed), _peer(model, fed)
        if jumps:
            assert before is not None
            right = before
        else:
            found = _unless_unsupported(contributed, lambda fed=fed: float64_outputs(proto, fed))
            if found is not None:
                _same(right, found, exact)
        after = None if before is None else _own(proto, fed)
        if before is not None and not (after is None and contributed):
            assert after is not None, "ONNX's evaluator computes the original and not what was written"
            _no_worse(right, before, after)
        if peer is not None:
            _no_worse(right, peer, computed(proto, fed))
        count += 1
    return count


def _evaluable(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model that ONNX's evaluator takes: it broadcasts as NumPy does, whatever nodes before opset 7 say."""
    says = any(attribute.name == "broadcast" for node in model.graph.node for attribute in node.attribute)
    return ir.serde.serialize_model(frontend.load(model)) if says else model


def _unless_unsupported(allowed: bool, work: Callable[[], list[Array]]) -> list[Array] | None:
    """The outputs; None where it is allowed that an operator has no reference, as some that only ONNX Runtime has."""
    try:
        return work()
    except UnsupportedError:
        if allowed:
            return None
        raise


def _same(right: Sequence[Array], found: Sequence[Array], exact: float) -> None:
    """Asserts that two answers in float64 are equal, but for the rounding of weights, relative to the scale."""
    for before, after in zip(right, found, strict=True):
        assert before.dtype == after.dtype and before.shape == after.shape
        finite = np.isfinite(before) if before.dtype.kind == "f" else np.ones(before.shape, bool)
        scale = float(np.max(np.abs(before[finite]), initial=0)) if before.dtype.kind == "f" else 0
        np.testing.assert_allclose(after, before, rtol=0, atol=exact * scale)


def _no_worse(right: Sequence[Array], before: Sequence[Array], after: Sequence[Array]) -> None:
    """Asserts that what a runtime makes of the written model is as good as what it makes of the original, but for
    roundings: where that is finite, this is."""
    for wanted, old, new in zip(right, before, after, strict=True):
        # ONNX's evaluator computes some operators of float16 in float32, and forgets to round.
        assert old.shape == new.shape and _is_float(old.dtype) == _is_float(new.dtype)
        if not _is_float(old.dtype):
            np.testing.assert_array_equal(new, old)
            continue
        wide = [np.asarray(array).astype(np.float64) for array in (wanted, old, new)]
        finite = np.isfinite(wide[0]) & np.isfinite(wide[1])
        expected, was, now = (array[finite] for array in wide)
        scale, error = np.max(np.abs(expected), initial=0), np.max(np.abs(was - expected), initial=0)
        allowed = (
            max(CLOSE, *(4 * float(ml_dtypes.finfo(a.dtype).eps) for a in (old, new) if a.itemsize < 4), 0) * scale
        )
        np.testing.assert_allclose(now, expected, rtol=0, atol=max(allowed, 4 * error))
        assert not np.any(np.isnan(wide[2]) & ~np.isnan(wide[1]) & ~np.isnan(wide[0]))


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


def _own(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array] | None:
    """What ONNX's evaluator gives in the types of the model; None where it lacks an operator."""
    try:
        with np.errstate(all="ignore"):
            outputs: Any = evaluator(model).run(None, dict(feeds))
    except Exception:  # noqa: BLE001 - the evaluator raises whatever NumPy does
        return None
    return [np.asarray(array) for array in outputs]


def _peer(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array] | None:
    try:
        return computed(model, feeds)
    except Exception:  # noqa: BLE001 - its errors have no common class
        return None  # it does not take the original


def computed(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """What ONNX Runtime gives, without optimising."""
    options: Any = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session: Any = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(feeds))]

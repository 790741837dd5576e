"""A rewritten model run beside the model that it was, in its own dtypes and at several sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from opweld.rewrite.optimize import Optimized
from tests.unit.rewrite.rewritten import Array, computed, model_of, rewritten


def serialized(made: Optimized) -> onnx.ModelProto:
    """The rewritten model as a file has it."""
    return ir.serde.serialize_model(made.model)


def same(
    text: str,
    weights: Mapping[str, Array],
    sizes: Sequence[Mapping[str, Array]],
    opset: int = 21,
    tolerance: float = 1e-5,
    **options: Any,
) -> Optimized:
    """A model rewritten, which gives what it gave for each of several feeds: in float64 up to a rounding of float32,
    and in its own dtype as ONNX Runtime computes both, up to a part of the scale; integers and special values are
    the same."""
    model = model_of(text, weights, opset)
    made = rewritten(model, sizes[0], **options)
    for feeds in sizes:
        rewritten(model, feeds, **options)
        for before, after in zip(computed(model, feeds), computed(serialized(made), feeds), strict=True):
            assert before.dtype == after.dtype and before.shape == after.shape
            if before.dtype.kind != "f":
                np.testing.assert_array_equal(after, before)
                continue
            finite = np.isfinite(before)
            np.testing.assert_array_equal(after[~finite], before[~finite])
            scale = float(np.max(np.abs(before[finite]), initial=0))
            np.testing.assert_allclose(after[finite], before[finite], rtol=0, atol=tolerance * scale)
    return made

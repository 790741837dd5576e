"""Rounds stored numbers that a rule combines in float64 to the type of the model, once. The rule refuses if that type
cannot represent them, as float16 neither 90000 nor a millionth precisely."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rule import Refusal
from opweld.rewrite.scope import Array


def unfit(
    title: str,
    exact: Array,
    dtype: np.dtype[np.generic],
    source: Array | None = None,
    nodes: tuple[ir.Node, ...] = (),
    *,
    magnitude: Array | None = None,
) -> Refusal | None:
    """A refusal where combined numbers are not finite in a type, or lose digits because they are subnormal in it.

    Args:
        title: their name in messages, as "weights".
        exact: the numbers, in float64.
        source: the original numbers, element by element: those that were subnormal may be so again.
        magnitude: the magnitude relative to which precision is measured, if not themselves: sums may cancel. For
            biases, which are rounded as finely as the results that they are added to, infinity.
    """
    with np.errstate(all="ignore"):
        rounded = exact.astype(dtype).astype(np.float64)
        failed: dict[str, int | str] = {"type": str(dtype), "largest": f"{np.max(np.abs(exact), initial=0):.4g}"}
        if not np.isfinite(rounded).all():
            return Refusal(f"the combined {title} are not finite in their type", failed, nodes)
        info = np.finfo(str(dtype))
        allowed = float(info.eps) * (np.abs(exact) if magnitude is None else magnitude)
        lost = np.abs(rounded - exact) > allowed
        if source is not None:
            lost &= np.abs(source) >= float(info.smallest_normal)
    if lost.any():
        failed = {"type": str(dtype), "smallest": f"{np.min(np.abs(exact[lost])):.4g}"}
        return Refusal(f"the combined {title} are too small for their type", failed, nodes)
    return None


def unfit_bias(exact: Array, dtype: np.dtype[np.generic], nodes: tuple[ir.Node, ...] = ()) -> Refusal | None:
    """The same of biases."""
    return unfit("biases", exact, dtype, None, nodes, magnitude=np.full(exact.shape, np.inf))

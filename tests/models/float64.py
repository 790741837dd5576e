"""The right answers: a model of the zoo in float64, by ONNX's reference evaluator with convolutions from PyTorch.

The evaluator's own convolutions are right but take minutes on an image. Neither shares code with the compiler.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from opweld.frontend.corrected import BatchNormalization, GlobalMaxPool
from opweld.frontend.evaluator import widen_model

Array = NDArray[Any]

CONVOLUTIONS = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}
TRANSPOSED = {
    1: torch.nn.functional.conv_transpose1d,
    2: torch.nn.functional.conv_transpose2d,
    3: torch.nn.functional.conv_transpose3d,
}


class Conv(OpRun):
    """Convolution of one to three dims."""

    op_domain = ""

    def _run(self, x: Array, weights: Array, bias: Array | None = None, **attributes: Any) -> tuple[Array]:
        n = x.ndim - 2
        pads = _pads(x.shape[2:], weights.shape[2:], attributes)
        around = [pad for axis in reversed(range(n)) for pad in (pads[axis], pads[axis + n])]
        result = CONVOLUTIONS[n](
            torch.nn.functional.pad(_tensor(x), around),
            _tensor(weights),
            None if bias is None else _tensor(bias),
            stride=tuple(attributes.get("strides") or [1] * n),
            dilation=tuple(attributes.get("dilations") or [1] * n),
            groups=attributes.get("group") or 1,
        )
        return (result.numpy(),)


class ConvTranspose(OpRun):
    """Transposed convolution with explicit padding, equal on both sides."""

    op_domain = ""

    def _run(self, x: Array, weights: Array, bias: Array | None = None, **attributes: Any) -> tuple[Array]:
        _require_explicit_padding(attributes)
        n = x.ndim - 2
        pads = attributes.get("pads") or [0] * (2 * n)
        if pads[:n] != pads[n:] or attributes.get("output_shape"):
            raise NotImplementedError("ConvTranspose with uneven padding or an output shape")
        result = TRANSPOSED[n](
            _tensor(x),
            _tensor(weights),
            None if bias is None else _tensor(bias),
            stride=tuple(attributes.get("strides") or [1] * n),
            padding=tuple(pads[:n]),
            output_padding=tuple(attributes.get("output_padding") or [0] * n),
            groups=attributes.get("group") or 1,
            dilation=tuple(attributes.get("dilations") or [1] * n),
        )
        return (result.numpy(),)


def _pads(sizes: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, Any]) -> list[int]:
    """What is added before each axis, then what is added after each."""
    n, automatic = len(sizes), attributes.get("auto_pad")
    if automatic not in ("SAME_UPPER", "SAME_LOWER"):
        return [0] * (2 * n) if automatic == "VALID" else list(attributes.get("pads") or [0] * (2 * n))
    strides, dilations = (list(attributes.get(name) or [1] * n) for name in ("strides", "dilations"))
    steps = zip(sizes, kernel, strides, dilations, strict=True)
    added = [max(0, (-(-size // by) - 1) * by + (width - 1) * apart + 1 - size) for size, width, by, apart in steps]
    less, more = [pad // 2 for pad in added], [pad - pad // 2 for pad in added]
    return less + more if automatic == "SAME_UPPER" else more + less


def _require_explicit_padding(attributes: dict[str, Any]) -> None:
    if attributes.get("auto_pad") not in (None, "NOTSET"):
        raise NotImplementedError("a transposed convolution that chooses its own padding")


def _tensor(values: Array) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values))


class Reference:
    """A model that answers in float64."""

    def __init__(self, path: Path) -> None:
        model = onnx.load(path)
        widen_model(model)
        self._evaluator = ReferenceEvaluator(model, new_ops=[BatchNormalization, GlobalMaxPool, Conv, ConvTranspose])

    def run(self, feeds: dict[str, Array]) -> list[Array]:
        """All outputs, floats in float64, in the model's order."""
        wide = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in feeds.items()}
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [np.asarray(output) for output in self._evaluator.run(None, wide)]  # pyright: ignore

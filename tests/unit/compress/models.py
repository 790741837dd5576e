"""A model whose layers have a low rank in what data excite, though not in themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

Array = NDArray[Any]

EXCITED = 8
"""Dimensions that samples have."""


def network() -> onnx.ModelProto:
    """A convolution of one tap with a stride, a MatMul, and a Gemm of transposed weights and a bias."""
    random = np.random.default_rng(7)

    def stored(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(random.standard_normal(shape, np.float32) / np.float32(8), name)

    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[n, 64, 5, 5] x, float[n, 96] z) => (float[n, 48, 4, 4] a, float[n, 80] y) {
            a = Conv <strides = [2, 2], pads = [1, 1, 1, 1], kernel_shape = [1, 1]> (x, w1, b1)
            h = MatMul (z, w2)
            y = Gemm <transB = 1> (h, w3, b3)
        }""")
    model.graph.initializer.extend(
        [stored("w1", 48, 64, 1, 1), stored("b1", 48), stored("w2", 96, 112), stored("w3", 80, 112), stored("b3", 80)]
    )
    return model


def samples(count: int = 6, seed: int = 3) -> list[dict[str, Array]]:
    """Samples that lie in few dimensions, but for a little."""
    mixed = np.random.default_rng(1).standard_normal((2, EXCITED, 96))
    random = np.random.default_rng(seed)

    def rows(count: int, length: int, which: int) -> Array:
        excited = random.standard_normal((count, EXCITED)) @ mixed[which, :, :length]
        return (excited + random.standard_normal((count, length)) / 1000).astype(np.float32)

    return [
        {
            "x": np.ascontiguousarray(np.moveaxis(rows(2 * 25, 64, 0).reshape(2, 5, 5, 64), -1, 1)),
            "z": rows(2, 96, 1),
        }
        for _ in range(count)
    ]

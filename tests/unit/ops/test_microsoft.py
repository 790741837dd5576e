from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import opweld.frontend.reference  # pyright: ignore[reportUnusedImport]  # noqa: F401 - registers what they mean
from opweld.errors import ModelError, UnsupportedError
from opweld.ops.registry import references, supported
from tests.unit.ops.one_node import flow_of, integers, normal
from tests.unit.ops.runtime_node import MICROSOFT, check_runtime, runtime_model

# --------------------------------------------------------------------------------------------------------- activations


@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 6), (0, 4)])
def test_gelus(shape: tuple[int, ...]) -> None:
    x, bias = normal(*shape) * 3, normal(shape[-1])
    dims = {0: ["n", *shape[1:]]} if shape[0] else None
    check_runtime("Gelu", [x], dims=dims)
    check_runtime("BiasGelu", [x, bias], dims=dims)
    check_runtime("FastGelu", [x], dims=dims, tolerance=1e-5)
    check_runtime("FastGelu", [x, bias], dims=dims, tolerance=1e-5)
    check_runtime("QuickGelu", [x])
    check_runtime("QuickGelu", [x], alpha=0.7)


def test_sums_with_a_bias() -> None:
    x, bias, skip = normal(2, 5, 320), normal(320), normal(2, 5, 320)
    check_runtime("BiasAdd", [x, bias, skip], expected=[x + bias + skip])
    wide = normal(2, 3, 10)
    total = (wide + (shift := normal(10))).astype(np.float64)
    erf = np.vectorize(math.erf)(total[..., 5:] / math.sqrt(2))
    wanted = total[..., :5] * total[..., 5:] * (1 + erf) / 2
    check_runtime("BiasSplitGelu", [wide, shift], expected=[wanted.astype(np.float32)])


# --------------------------------------------------------------------------------------------- products, convolutions


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"activation": "Relu", "pads": [1, 1, 1, 1]},
        {"activation": "LeakyRelu", "activation_params": [0.2]},
        {"activation": "Clip", "activation_params": [-0.5, 0.75]},
        {"activation": "HardSigmoid", "activation_params": [0.3, 0.4], "strides": [2, 1]},
        {"activation": "Tanh"},
        {"activation": "Sigmoid"},
    ],
)
def test_fused_convolution(attributes: dict[str, Any]) -> None:
    x, w, bias = normal(1, 3, 6, 5), normal(4, 3, 3, 3), normal(4)
    check_runtime("FusedConv", [x, w, bias], constant=(1, 2), **attributes)
    check_runtime("FusedConv", [x, w], constant=(1,), **attributes)


def test_fused_convolution_with_a_sum() -> None:
    x, w, bias, addend = normal(2, 3, 6, 5), normal(4, 3, 3, 3), normal(4), normal(2, 4, 4, 3)
    check_runtime("FusedConv", [x, w, bias, addend], constant=(1, 2), activation="Relu")
    check_runtime("FusedConv", [x, w, None, addend], constant=(1,), dims={0: ["n", 3, 6, 5], 3: ["n", 4, 4, 3]})


@pytest.mark.parametrize("across", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_fused_gemm(across: tuple[int, int]) -> None:
    a = normal(*((7, 5) if across[0] else (5, 7)))
    b = normal(*((3, 7) if across[1] else (7, 3)))
    options: dict[str, Any] = {"transA": across[0], "transB": across[1], "alpha": 0.5, "beta": 2.0}
    check_runtime("FusedGemm", [a, b, normal(3)], activation="Relu", **options)
    check_runtime("FusedGemm", [a, b], activation="LeakyRelu", activation_alpha=0.3, **options)


@pytest.mark.parametrize("across", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("batches", [((), ()), ((2,), ()), ((2, 3), (2, 3)), ((2, 3), (3,))])
def test_fused_matmul(batches: tuple[tuple[int, ...], tuple[int, ...]], across: tuple[int, int]) -> None:
    a = normal(*batches[0], *((4, 5) if not across[0] else (5, 4)))
    b = normal(*batches[1], *((5, 6) if not across[1] else (6, 5)))
    check_runtime("FusedMatMul", [a, b], transA=across[0], transB=across[1], alpha=0.25)


@pytest.mark.parametrize("across", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_fused_matmul_with_batches_inside(across: tuple[int, int]) -> None:
    a = normal(*((4, 2, 3, 5) if not across[0] else (5, 2, 3, 4)))
    b = normal(*((5, 2, 3, 6) if not across[1] else (6, 2, 3, 5)))
    check_runtime("FusedMatMul", [a, b], transA=across[0], transB=across[1], transBatchA=1, transBatchB=1)


def test_vectors_are_not_transposed() -> None:
    check_runtime("FusedMatMul", [normal(3, 5), normal(5)], transB=1)


# ------------------------------------------------------------------------------------------------------ normalisations


@pytest.mark.parametrize("shape", [(2, 3, 8), (1, 1, 4), (5, 7)])
def test_skip_layer_normalization(shape: tuple[int, ...]) -> None:
    x, skip, hidden = normal(*shape), normal(*shape, seed=1), shape[-1]
    scale, shift, bias = normal(hidden), normal(hidden, seed=2), normal(hidden, seed=3)
    dims = {0: ["n", *shape[1:]], 1: ["n", *shape[1:]]}
    check_runtime("SkipLayerNormalization", [x, skip, scale, shift], dims=dims)
    check_runtime("SkipLayerNormalization", [x, skip, scale], dims=dims, epsilon=1e-3)
    options: dict[str, Any] = {"outputs": 4, "absent": (1, 2), "constant": (2, 3, 4)}
    check_runtime("SkipLayerNormalization", [x, skip, scale, shift, bias], **options)
    options["constant"] = (2, 3)
    check_runtime("SkipSimplifiedLayerNormalization", [x, skip, scale, bias], **options)
    check_runtime("SkipSimplifiedLayerNormalization", [x, skip, scale])


def test_a_skip_without_batch() -> None:
    check_runtime("SkipLayerNormalization", [normal(2, 3, 8), normal(3, 8), normal(8), normal(8, seed=1)])


def test_simplified_layer_normalization_stands_in_the_default_domain() -> None:
    check_runtime("SimplifiedLayerNormalization", [normal(2, 3, 8), normal(8)], "", axis=-1, epsilon=1e-6)
    check_runtime("SimplifiedLayerNormalization", [normal(2, 8), normal(8)], "", outputs=2)


@pytest.mark.parametrize("segments", [False, True])
def test_embed_layer_normalization(segments: bool) -> None:
    ids = integers(2, 5, low=0, high=20, dtype=np.int32)
    parts = integers(2, 5, low=0, high=2, dtype=np.int32) if segments else None
    tables = [normal(20, 8), normal(10, 8, seed=1), normal(2, 8, seed=2) if segments else None]
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    inputs = [ids, parts, *tables, normal(8), normal(8, seed=3)]
    options: dict[str, Any] = {"outputs": 2, "types": {1: 6}}
    dims = {0: ["n", 5], 1: ["n", 5]} if segments else {0: ["n", 5]}
    check_runtime("EmbedLayerNormalization", inputs, constant=(2, 3, 4, 5, 6), dims=dims, **options)
    options |= {"outputs": 3, "mask_index_type": 1}
    check_runtime("EmbedLayerNormalization", [*inputs, mask], **options)
    places = np.array([[4, 3, 2, 1, 0]], np.int32)
    check_runtime("EmbedLayerNormalization", [*inputs, None, places], **options)


def test_triangles() -> None:
    check_runtime("Trilu", [normal(2, 4, 5)], upper=0)
    check_runtime("Trilu", [normal(2, 4, 5), np.array(1)], constant=(1,), upper=1)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_samples_at_a_grid(mode: str, padding: str) -> None:
    arrays = [normal(2, 3, 5, 6), normal(2, 4, 3, 2, seed=1)]
    dims: dict[int, Any] = {0: ("N", 3, "H", "W"), 1: ("N", "h", "w", 2)}
    more = [[normal(1, 3, 7, 2), normal(1, 2, 5, 2, seed=1)]]
    stated: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": 1}
    check_runtime("GridSample", arrays, dims=dims, more=more, **stated)


# -------------------------------------------------------------------------------------------------------------- refused


def test_unknown_operators_and_attributes_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"com\.microsoft::Sampling is not supported yet"):
        flow_of(runtime_model("Sampling", [normal(2, 3)], MICROSOFT))
    with pytest.raises(ModelError, match="has no attribute 'beta'"):
        flow_of(runtime_model("Gelu", [normal(2, 3)], MICROSOFT, beta=1.0))
    with pytest.raises(ModelError, match="wrong type"):
        flow_of(runtime_model("QuickGelu", [normal(2, 3)], MICROSOFT, alpha=1))
    with pytest.raises(ModelError, match="expected 3 to 5 inputs, got 2"):
        flow_of(runtime_model("SkipLayerNormalization", [normal(2, 3), normal(2, 3)], MICROSOFT))
    with pytest.raises(ModelError, match="unknown activation 'Swash'"):
        flow_of(runtime_model("FusedConv", [normal(1, 1, 3), normal(1, 1, 1)], MICROSOFT, activation="Swash"))


def test_every_operator_has_a_meaning_in_float64() -> None:
    own = [tuple(name.split("::")) for name in supported() if name.startswith(f"{MICROSOFT}::")]
    assert len(own) > 30
    assert set(own) == set(references((domain, name) for domain, name in own))

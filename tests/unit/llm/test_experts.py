"""Products of a mixture of experts: what they are, and that an expert which nobody chose is none of their business."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import opweld
from opweld import ir
from opweld.errors import ModelError, OpweldError, UnsupportedError
from opweld.llm.graph_builder import GraphBuilder, graph_input
from opweld.llm.source import DecoderSource
from opweld.llm.stack import stack
from opweld.llm.weights import Blocked, Weight
from opweld.tensor.dtype import DType
from opweld.tensor.experts import EXPERTS, KINDS
from tests.unit.llm.decoders import BLOCK, CONFIGS, PLAIN, digest, weights_of

Array = np.ndarray[Any, Any]

EXPERTS_OF_A_LAYER, OUT, CHOSEN = 5, 70, 2
"""Columns of more than one call, of which the last has two that are computed one by one."""
FORMS: dict[str, dict[str, Any]] = {
    "u4": {"bits": 4, "block": 32, "least": True},
    "u4, wide scales": {"bits": 4, "block": 64, "least": True, "dtype": np.float32},
    "u5": {"bits": 5, "block": 32, "least": True},
    "i8": {"bits": 8, "block": 32, "least": False},
    "i8, small blocks": {"bits": 8, "block": 16, "least": False, "dtype": np.float32},
}


def integers(rng: np.random.Generator, bits: int, block: int, least: bool, dtype: Any = np.float16) -> Blocked:
    size = 128
    shape = (OUT, size // block)
    scales = (rng.random(shape) / 2**bits).astype(dtype).astype(np.float32)
    minimums = (-scales * 7).astype(dtype).astype(np.float32) if least else None
    low = 0 if least else -(2 ** (bits - 1))
    codes = rng.integers(low, low + 2**bits, (OUT, size))
    return Blocked(codes.astype(np.uint8) if least else codes.astype(np.int8), scales, minimums, bits, block)


def matrices(form: str) -> list[Weight]:
    rng = np.random.default_rng(len(form))
    if form in FORMS:
        return [integers(rng, **FORMS[form]) for _ in range(EXPERTS_OF_A_LAYER)]
    made = [
        rng.standard_normal((OUT, 37 if form == "odd" else 128)).astype(np.float32) for _ in range(EXPERTS_OF_A_LAYER)
    ]
    return [*made[:-1], integers(rng, **FORMS["u4"])] if form == "mixed" else [*made]


class Product(GraphBuilder):
    """A product by experts that are fed, of tokens and then of pairs."""

    def graph(self, names: list[str], size: int) -> ir.Graph:
        inputs = [graph_input("chosen", DType.I64, "T", CHOSEN), graph_input("x", DType.F32, "T", size)]
        inputs.append(graph_input("y", DType.F32, "P", size))
        pairs = self._grouped(inputs[0], len(names))
        made = [self._by_experts(names, x, pairs) for x in inputs[1:]]
        for value, name in zip(made, ("of_tokens", "of_pairs"), strict=True):
            value.name = name
        return ir.Graph(inputs, made, self._nodes, self._stored.values())


def product(weights: list[Weight]) -> opweld.Model:
    names = [f"experts.{n}" for n in range(len(weights))]
    read = {name: lambda weight=weight: weight for name, weight in zip(names, weights, strict=True)}

    class Source(DecoderSource):
        def graph(self) -> ir.Graph:
            return Product("mixture", read).graph(names, weights[0].shape[1])

    return opweld.compile(Source(PLAIN, read, BLOCK, lambda _: f"experts {digest(read)}"), threads=2)


def values(weight: Weight) -> Array:
    return np.asarray(weight.values() if isinstance(weight, Blocked) else weight, np.float64)


def in_numpy(weights: list[Weight], chosen: Array, x: Array) -> Array:
    """The products of tokens, as the externs mean them."""
    stacked = stack(weights)
    codes, scales, minimums = [*stacked.parts.values(), None, None][:3]
    assert codes is not None
    kind = "u4" if stacked.bits == 4 else {"uint8": "u8", "int8": "i8", "float32": "f32"}[codes.dtype.name]
    name = KINDS[kind, DType.F16 if scales is not None and scales.dtype == np.float16 else DType.F32]
    pairs, size = chosen.size, x.shape[1]
    block = size if scales is None else size // scales.shape[-1]
    order, starts = np.zeros(pairs, np.int64), np.zeros(len(weights) + 1, np.int64)
    EXPERTS["group_pairs"].compute([chosen.ravel()], [order, starts], (pairs, len(weights)))
    out = np.full((pairs, OUT), np.nan)
    sizes = (pairs, len(x), len(weights), OUT, size, block, int(minimums is not None))
    others = [codes if part is None else part for part in (scales, minimums)]
    for expert in range(len(weights)):
        operands = [np.array([expert, 0, OUT]), x, order, starts, codes, *others]
        EXPERTS[name].compute([np.ravel(operand) for operand in operands], [out.ravel()], sizes)
    return out


@pytest.mark.parametrize("form", [*FORMS, "floats", "odd", "mixed"])
def test_each_row_is_multiplied_by_the_matrices_that_it_chose(form: str) -> None:
    weights = matrices(form)
    model = product(weights)
    rng = np.random.default_rng(3)
    chosen = np.array([[1, 4], [4, 0], [0, 1], [4, 1], [1, 0], [1, 4], [4, 1], [0, 4], [4, 0]], np.int64)
    x, y = (rng.standard_normal((rows, weights[0].shape[1])).astype(np.float32) for rows in (9, 18))
    found = model.run({"chosen": chosen, "x": x, "y": y})
    whole = [values(weight) for weight in weights]
    of_tokens = np.stack([whole[e] @ x[t] for t, row in enumerate(chosen) for e in row])
    of_pairs = np.stack([whole[e] @ y[p] for p, e in enumerate(chosen.ravel())])
    for name, right in (("of_tokens", of_tokens), ("of_pairs", of_pairs)):
        np.testing.assert_allclose(found[name], right, atol=2e-6 * np.abs(right).max(), rtol=0)
    in_float64 = in_numpy(weights, chosen, x.astype(np.float64))
    # Values of weights are rounded to float32 twice, and not here.
    np.testing.assert_allclose(in_float64, of_tokens, atol=2e-7 * np.abs(of_tokens).max(), rtol=0)
    # A token by itself has the same bits.
    for t in range(len(chosen)):
        alone = model.run({"chosen": chosen[t : t + 1], "x": x[t : t + 1], "y": y[2 * t : 2 * t + 2]})
        for name in found:
            np.testing.assert_array_equal(alone[name], found[name][2 * t : 2 * t + 2])


def test_experts_that_nobody_chose_are_not_read() -> None:
    """Weights that are no numbers would show."""
    weights = [np.asarray(weight) for weight in matrices("floats")]
    chosen = np.array([[1, 4], [4, 3]], np.int64)
    fed = {"chosen": chosen, "x": np.ones((2, 128), np.float32), "y": np.ones((4, 128), np.float32)}
    right = product([*weights]).run(fed)
    for unread in (0, 2):
        weights[unread] = np.full_like(weights[unread], np.nan)
    found = product([*weights]).run(fed)
    for name in right:
        np.testing.assert_array_equal(found[name], right[name])


def test_an_expert_that_is_not_there_is_refused() -> None:
    model = product(matrices("floats"))
    for wrong in (-1, EXPERTS_OF_A_LAYER):
        fed = {"chosen": np.array([[0, wrong]]), "x": np.ones((1, 128), np.float32), "y": np.ones((2, 128), np.float32)}
        with pytest.raises(OpweldError, match="out of range"):
            model.run(fed)
    results = [np.zeros(2, np.int64), np.zeros(4, np.int64)]
    with pytest.raises(OpweldError, match="an expert"):
        EXPERTS["group_pairs"].compute([np.array([0, 3])], results, (2, 3))


def test_matrices_are_stacked_as_they_are_where_all_have_one_form() -> None:
    kinds = {form: {name: part.dtype.name for name, part in stack(matrices(form)).parts.items()} for form in FORMS}
    assert kinds["u4"] == {"codes": "uint8", "scales": "float16", "minimums": "float16"}
    assert kinds["u4, wide scales"] == {"codes": "uint8", "scales": "float32", "minimums": "float32"}
    assert kinds["i8"] == {"codes": "int8", "scales": "float16"}
    assert stack(matrices("u4")).parts["codes"].shape == (EXPERTS_OF_A_LAYER, OUT, 64), "two codes in a byte"
    assert [*stack(matrices("mixed")).parts] == ["values"]


def test_what_experts_cannot_have_is_told() -> None:
    config = CONFIGS["mixture"]
    weights = dict(weights_of(config)) | {"layers.1.experts.2.up.bias": lambda: np.zeros(32, np.float32)}
    with pytest.raises(UnsupportedError, match=r"layers\.1\.experts\.2\.up has a bias"):
        DecoderSource(config, weights, BLOCK, lambda _: "").graph()
    with pytest.raises(ModelError, match="configuration no experts"):
        DecoderSource(replace(config, experts=None), weights_of(config), BLOCK, lambda _: "").graph()

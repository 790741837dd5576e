"""What the net has caught, as models of a few nodes, at every level. The stages at fault have tests of their own."""

from __future__ import annotations

import re

import numpy as np
import onnx.parser
import pytest

from tests.random.__main__ import environment
from tests.random.generate import Case
from tests.random.judge import LEVELS, Judge, judge_level

HEADER = '<ir_version: 11, opset_import: ["" : 23]>\n'

FOUND = {
    "padding around a single element": """g (float[1, 1, 1] x) => (float[1, 1, 2] y)
        <float[1, 1, 1] w = {1}> { y = Conv<pads = [0, 1]>(x, w) }""",
    "pooling around a single element": """g (float[1, 1, 1] x) => (float[1, 1, 3] y)
        { y = AveragePool<kernel_shape = [2], pads = [1, 1], strides = [1], count_include_pad = 1>(x) }""",
    "transposed convolution of a single element": """g (float[1, 1, 1] x) => (float[1, 2, 4] y)
        <float[1, 2, 3] w = {1, 2, 3, 4, 5, 6}> { y = ConvTranspose<strides = [2], output_padding = [1]>(x, w) }""",
    "padding after Expand": """g (float[3, 1] x) => (float[3, 9] y)
        <int64[2] s = {3, 4}, int64[4] p = {0, 3, 0, 2}> { a = Expand(x, s) y = Pad(a, p) }""",
    "padding after Tile": """g (float[1, 2] x) => (float[5, 2] y)
        <int64[2] s = {3, 1}, int64[4] p = {1, 0, 1, 0}> { a = Tile(x, s) y = Pad(a, p) }""",
    "padding after a nearest Resize": """g (float[1, 1, 1, 3] x) => (float[1, 1, 5, 4] y)
        <float[4] s = {1, 1, 3, 1}, int64[8] p = {0, 0, 1, 1, 0, 0, 1, 0}>
        { a = Resize<mode = "nearest">(x, , s) y = Pad(a, p) }""",
    "padding after a Gather": """g (float[1, 5] x) => (float[6, 5] y)
        <int64[3] i = {0, 0, 0}, int64[4] p = {2, 0, 1, 0}> { a = Gather(x, i) y = Pad(a, p) }""",
    "a sum over columns that keeps the column": """g (float[2, 3] x, float[2, 3] w) => (float[3] r, float[2, 3] z)
        <int64[1] axis = {0}>
        { s = Sigmoid(x) r = ReduceSum<keepdims = 0>(s, axis) z = Einsum<equation = "ad,ud->ad">(s, w) }""",
    "a row with two producers": """g (float[1, 8] a, float[8, 1] b) => (float[1, 1] y)
        { p = Relu(a) q = Relu(b) y = MatMul(p, q) }""",
    "a recurrence of one unit": """g (float[3, 1, 2] x, float[1, 3, 2] w, float[1, 3, 1] r) => (float[3, 1, 1, 1] y)
        { y = GRU<hidden_size = 1, linear_before_reset = 0>(x, w, r) }""",
    "a product without elements": """g (float[16, 8, 0, 8] x, float[8, 40] w) => (float[16, 8, 0, 40] y)
        { y = MatMul(x, w) }""",
    "an empty axis beside one that is wrapped around": """g (float[0, 3] x) => (float[0, 5] y)
        <int64[4] p = {0, 1, 0, 1}> { y = Pad<mode = "wrap">(x, p) }""",
    "a count that is half of what may be negative": """g (float[N] x) => (int64[?] y)
        <int64 two = {2}, int64 zero = {0}, int64 one = {1}, int64[1] a = {0}>
        { s = Shape(x) n = Squeeze(s, a) d = Sub(n, two) h = Div(d, two) y = Range(zero, h, one) }""",
    "a factor that guards alone move": """g (float[1, 4, H, W] x) => (float[?, ?, ?, ?] y)
        <float[4, 1, 1, 1] u = {1, 2, 3, 4}, float[4, 2, 1, 1] v = {1, 2, 3, 4, 5, 6, 7, 8}>
        { s = Shape(x) o = ConstantOfShape<value: tensor = float[1] {1}>(s) c = Conv<group = 4>(o, u)
          y = Conv<group = 2, pads = [0, 2, 2, 0]>(c, v) }""",
    # the producer's padding stood for the guard of an index that is read from elsewhere
    "guarded index": """g (float[2, 4, 8] x, float[2, 4, 1] u) => (float[2, 8, 5] y)
        <int64[1] k = {1}, float[8, 1, 1] w = {1, 2, 3, 4, 5, 6, 7, 8}>
        {
            a = Conv <kernel_shape = [1]> (x, u)
            v, i = TopK <axis = 1> (a, k)
            y = Conv <kernel_shape = [1], pads = [2, 0], strides = [2]> (v, w)
        }""",
}


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return environment(tmp_path_factory.mktemp("quick"), "quick")


def feeds_of(model: onnx.ModelProto, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(11)
    feeds: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in kind.shape.dim]
        numbers = random.standard_normal(shape) if dtype.kind == "f" else random.integers(0, 3, shape)
        feeds[value.name] = numbers.astype(dtype)
    return feeds


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str, compiler: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in compiler.items():
        monkeypatch.setenv(variable, value)
    model = onnx.parser.parse_model(HEADER + FOUND[name])
    symbols = sorted(set(re.findall(r"\b[A-Z]\b", FOUND[name].partition("=>")[0])))
    choices = [{symbol: size + i for i, symbol in enumerate(symbols)} for size in ((1, 4, 17) if symbols else (1,))]
    judge = Judge(Case(0, model, tuple(feeds_of(model, sizes) for sizes in choices)))
    for level in LEVELS:
        finding = judge_level(judge, level, (1, 2))
        assert finding.outcome == "right", finding

"""Modules as others quantised them: what PT2E writes, parameters that wrap integers, autocast."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

import opweld
from tests.pytorch.function import Function

import_module("torch.ao.quantization.fx._decomposed")  # registers the operators
OPS: Any = torch.ops.quantized_decomposed
INT8, UINT8 = torch.int8, torch.uint8


pytestmark = pytest.mark.usefixtures("inference")


X = torch.linspace(-3, 3, 6 * 16).reshape(6, 16)
CODES = torch.arange(-48, 48, dtype=INT8).reshape(6, 16)
SCALES, ZEROS = torch.linspace(0.01, 0.2, 6), torch.tensor([0, 3, -5, 100, -128, 127])
GROUPS = torch.linspace(0.01, 0.2, 12).reshape(6, 2)


def chosen(x: Tensor) -> Tensor:
    """Bytes by parameters that the run chooses."""
    scale, zero = OPS.choose_qparams.tensor(x, 0, 255, 1e-7, UINT8)
    return OPS.quantize_per_tensor.tensor(x, scale, zero, 0, 255, UINT8)


CASES: dict[str, Callable[[Tensor], Any]] = {
    "by one scale": lambda x: OPS.quantize_per_tensor(x, 0.013, 7, -128, 127, INT8),
    "a reduced range": lambda x: OPS.quantize_per_tensor(x, 0.05, 64, 0, 127, UINT8),
    "halves": lambda x: OPS.quantize_per_tensor(x.half(), 0.013, 7, -128, 127, INT8),
    "by a scale for each row": lambda x: OPS.quantize_per_channel(x, SCALES, ZEROS, 0, -128, 127, INT8),
    "by a scale for each column": lambda x: OPS.quantize_per_channel(x[:, :6], SCALES, ZEROS, 1, -128, 127, INT8),
    "by a scale for each group": lambda x: OPS.quantize_per_channel_group(
        x, GROUPS, torch.ones_like(GROUPS), -8, 7, INT8, 8
    ),
    "by a scale for each token": lambda x: OPS.quantize_per_token(
        x, *OPS.choose_qparams_per_token_asymmetric(x, INT8), -128, 127, INT8
    ),
    "by a symmetric scale for each token": lambda x: OPS.quantize_per_token(
        x, *OPS.choose_qparams_per_token(x, INT8), -128, 127, INT8
    ),
    "parameters for each token": lambda x: OPS.choose_qparams_per_token_asymmetric(x * SCALES[:, None] + 0.1, INT8),
    "from a scale for each token": lambda x: OPS.dequantize_per_token(
        CODES + x.to(INT8), SCALES[:, None].double(), ZEROS[:, None], -128, 127, INT8, torch.float32
    ),
    "by a scale of 16 bits": lambda x: OPS.quantize_per_tensor.tensor(
        x, torch.tensor(0.013, dtype=torch.bfloat16), torch.tensor(7), -128, 127, INT8
    ),
    "by wide scales": lambda x: OPS.quantize_per_channel(x, SCALES.double() / 3, ZEROS, 0, -128, 127, INT8),
    "by narrow scales of groups": lambda x: OPS.quantize_per_channel_group(
        x.bfloat16(),
        torch.full((6, 2), 0.0625, dtype=torch.bfloat16),
        torch.ones(6, 2, dtype=torch.bfloat16),
        -128,
        127,
        INT8,
        8,
    ),
    "from zero points that are no integers": lambda x: OPS.dequantize_per_channel(
        CODES + x.to(INT8), SCALES, ZEROS + 0.5, 0, -128, 127, INT8
    ),
    "from narrow scales": lambda x: OPS.dequantize_per_channel(
        CODES + x.to(INT8), SCALES.bfloat16(), ZEROS, 0, -128, 127, INT8
    ),
    "from wide scales": lambda x: OPS.dequantize_per_channel(
        CODES + x.to(INT8), SCALES.double() / 3, ZEROS, 0, -128, 127, INT8
    ),
    "parameters of halves": lambda x: OPS.choose_qparams.tensor(x.half() + 1, 0, 255, 1e-7, UINT8),
    "symmetric parameters of halves": lambda x: OPS.choose_qparams_symmetric.tensor(
        x.half() + 1, -127, 127, 1e-7, INT8
    ),
    "parameters of bfloat16 for each token": lambda x: OPS.choose_qparams_per_token_asymmetric(
        x.bfloat16() * SCALES[:, None].bfloat16(), INT8
    ),
    "parameters": lambda x: OPS.choose_qparams.tensor(x, 0, 255, 1e-7, UINT8),
    "parameters of nothing but positive numbers": lambda x: OPS.choose_qparams.tensor(x.abs() + 1, 0, 255, 1e-7, UINT8),
    "symmetric parameters": lambda x: OPS.choose_qparams_symmetric.tensor(x, -127, 127, 1e-7, INT8),
    "parameters of zeros": lambda x: OPS.choose_qparams.tensor(x * 0, -128, 127, 1e-7, INT8),
    "by parameters of the run": chosen,
    "from one scale": lambda x: OPS.dequantize_per_tensor(CODES + x.to(INT8), 0.013, 7, -128, 127, INT8),
    "to halves": lambda x: OPS.dequantize_per_tensor(
        CODES + x.to(INT8), 0.013, 7, -128, 127, INT8, out_dtype=torch.bfloat16
    ),
    "from a scale for each row": lambda x: OPS.dequantize_per_channel(
        CODES + x.to(INT8), SCALES, ZEROS, 0, -128, 127, INT8
    ),
    "without zero points": lambda x: OPS.dequantize_per_channel(CODES + x.to(INT8), SCALES, None, 0, -128, 127, INT8),
    "of 32 bits": lambda x: OPS.dequantize_per_channel(
        (x * 1e7).int(), SCALES, ZEROS * 0, 0, -(2**31), 2**31 - 1, torch.int32
    ),
    "from a scale for each group": lambda x: OPS.dequantize_per_channel_group(
        CODES + x.to(INT8), GROUPS, torch.ones_like(GROUPS), -8, 7, INT8, 8, torch.float32
    ),
    "products of integers": lambda x: torch.ops.aten._int_mm((x * 40).to(INT8), CODES.T.contiguous()),
    "rows of integers with scales": lambda x: torch.ops.aten._weight_int8pack_mm(x, CODES, SCALES),
}


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize("case", CASES)
def test_integers_are_exactly_those_of_eager_mode(case: str) -> None:
    """Scales and what is scaled, too, but for one rounding of a sum."""
    module = Function(CASES[case]).eval()
    model = opweld.compile(module, (X,), target="interpret")
    answers = module(X)
    rights = answers if isinstance(answers, tuple) else (answers,)
    found = model.run({model.inputs[0].name: X.numpy()}).values()
    for own, right in zip(found, rights, strict=True):
        made = torch.from_numpy(own.astype("float64"))
        assert str(right.dtype).removeprefix("torch.") == own.dtype.name
        sums = case == "rows of integers with scales"
        torch.testing.assert_close(made, right.double(), rtol=1e-5 if sums else 0, atol=1e-6 if sums else 0)


class Quantized(torch.nn.Module):
    """Two layers as PT2E writes them: weights of int8 with a scale for each row, activations of uint8 with one."""

    def __init__(self) -> None:
        super().__init__()
        for name, rows, columns in (("first", 256, 128), ("last", 64, 256)):
            self.register_buffer(name, torch.randint(-127, 128, (rows, columns), dtype=INT8))
            self.register_buffer(f"{name}_scale", torch.rand(rows) / 500 + 0.001)
            self.register_buffer(f"{name}_zero", torch.zeros(rows, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        for name, scale, zero in (("first", 0.02, 128), ("last", 0.04, 0)):
            bytes_ = OPS.quantize_per_tensor(x, scale, zero, 0, 255, UINT8)
            x = OPS.dequantize_per_tensor(bytes_, scale, zero, 0, 255, UINT8)
            own = (getattr(self, name), getattr(self, f"{name}_scale"), getattr(self, f"{name}_zero"))
            x = torch.relu(torch.nn.functional.linear(x, OPS.dequantize_per_channel(*own, 0, -128, 127, INT8)))
        return x


def test_products_of_pt2e_are_of_bytes_and_weights_stay_bytes() -> None:
    module = Quantized().eval()
    x = torch.randn(9, 128)
    decisions = opweld.explain(torch.export.export(module, (x,)), target="x86-64-v4").decisions
    assert sum(d.rule == "fuse.integer" and d.taken == "integers" for d in decisions) == 2
    model = opweld.compile(module, (x,))
    weights = sum(file.stat().st_size for file in model.path.glob("weights*"))
    assert weights < 2.5 * (256 * 128 + 64 * 256)  # two bytes each where the processor multiplies these, not four
    run = torch.compile(module, backend="opweld", options={"strict": True})
    torch.testing.assert_close(run(x), module(x), rtol=1e-4, atol=1e-3)  # a step of the second layer's bytes is 0.04


class Wrapped(Tensor):
    """A parameter that wraps integers and a scale, as torchao's do."""

    @staticmethod
    def __new__(cls, codes: Tensor, scale: Tensor) -> Wrapped:
        return Tensor._make_wrapper_subclass(cls, codes.shape, dtype=scale.dtype)  # type: ignore[return-value]

    def __init__(self, codes: Tensor, scale: Tensor) -> None:
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["codes", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Tensor], *_: Any) -> Wrapped:
        return cls(inner["codes"], inner["scale"])

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.detach.default:
            return cls(args[0].codes, args[0].scale)
        plain = [x.codes.to(x.scale.dtype) * x.scale if isinstance(x, Wrapped) else x for x in args]
        return function(*plain, **(kwargs or {}))


def test_parameters_that_wrap_others_are_packed_and_packed_again_when_they_change() -> None:
    layer = torch.nn.Linear(32, 8).eval()
    codes = torch.randint(-127, 128, (8, 32), dtype=INT8)
    layer.weight = torch.nn.Parameter(Wrapped(codes, torch.rand(8, 1)), requires_grad=False)
    x = torch.randn(3, 32)
    run = torch.compile(layer, backend="opweld", options={"strict": True})
    for _ in range(2):
        torch.testing.assert_close(run(x), layer(x), rtol=1e-5, atol=1e-4)
        codes.neg_()


def test_autocast_is_part_of_what_is_compiled() -> None:
    """Sums of products of bfloat16, which has 8 bits, are rounded to it."""
    module = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).eval()
    x = torch.randn(5, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = torch.compile(module, backend="opweld", options={"strict": True})(x)
        right = module(x)
    assert found.dtype is right.dtype is torch.bfloat16
    torch.testing.assert_close(found.float(), right.float(), rtol=2**-6, atol=2**-6 * math.sqrt(64) / 8)


@pytest.mark.usefixtures("interpreter")
def test_a_traced_graph_has_no_mode() -> None:
    module = torch.nn.Linear(4, 2).eval()
    x = torch.randn(3, 4)
    traced = torch.export.export(module, (x,)).module()
    model = opweld.compile(traced, (x,), target="interpret")
    (found,) = model.run({model.inputs[0].name: x.numpy()}).values()
    torch.testing.assert_close(torch.from_numpy(found), module(x))

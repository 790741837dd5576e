"""Clamps that a byte does by itself: moved behind the rounding, where every byte stays what it was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opweld.fuse.narrowing import clamp_last, without_flips
from opweld.fuse.use_def import UseDef
from opweld.ledger import Ledger
from opweld.schedule.expected import expected_sizes
from opweld.target import Target
from opweld.tensor.expr import Binary, walk
from opweld.tensor.interpret import interpret
from opweld.tensor.label import labels
from opweld.tensor.parse import parse_program
from opweld.tensor.program import Tensor, TensorProgram
from opweld.tensor.rounding import saturated
from opweld.tensor.verify import verify


def quantized(
    dtype: str = "u8", low: float = -7.0, high: float = 248.0, zero: int = 7, value: str = "%1", last: str = "%2"
) -> str:
    whole = f"add(i32(round({last})), {zero}:i32)" if zero else f"round({last})"
    return f"""program quantized
input x u8[48, 32]
input z f32[48, 40]
constant w i8[32, 40]
constant scale f32[40]
constant bias f32[40]
tensor y {dtype}[i0: 48, i1: 40] from "Conv"
  over r0: 32
  %0 = f32(sum<r0>(mul(i32(x[i0, r0]), i32(w[r0, i1]))))
  %1 = add(mul(%0, scale[i1]), bias[i1])
  %2 = min(max({value}, {low}:f32), {high}:f32)
  = {dtype}({whole})
output y = y
"""


def moved(text: str, scale: float = 2e-3) -> tuple[TensorProgram, TensorProgram]:
    """A program as it was and as it is made."""
    random = np.random.default_rng(5)
    data = {
        "w": random.integers(-127, 128, (32, 40)).astype(np.int8),
        "scale": random.uniform(scale / 2, scale, 40).astype(np.float32),
        "bias": random.uniform(-300, 300, 40).astype(np.float32),
    }
    program = parse_program(text)
    program = replace(program, constants=tuple(replace(c, read=lambda n=c.name: data[n]) for c in program.constants))
    ledger = Ledger()
    ledger.variant(program.name, labels(program))
    graph = UseDef(program, expected_sizes(program), Target.of("x86-64-v4"), ledger)
    without_flips(graph)
    clamp_last(graph)
    verify(graph.program())
    return program, graph.program()


def clamps(program: TensorProgram) -> list[str]:
    """The clamps of the last tensor, and their types."""
    (tensor,) = (item for item in program.items if isinstance(item, Tensor))
    nodes = (node for node in walk(tensor.body) if isinstance(node, Binary) and node.op in ("min", "max"))
    return sorted(f"{node.op} {node.dtype.short}" for node in nodes)


def saturates(program: TensorProgram) -> bool:
    (tensor,) = (item for item in program.items if isinstance(item, Tensor))
    return saturated(tensor.body) is not None


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (quantized(), []),
        (quantized(zero=0, low=-0.25, high=255.0), []),
        (quantized("i8", -131.0, 124.0, 3), []),
        (quantized(last="mul(%2, 0.5:f32)", low=-14.0, high=496.0), []),
        (quantized(value="min(%1, 9.0:f32)"), ["min f32"]),
        (quantized(high=100.0), ["min f32"]),
        (quantized(low=3.0), ["max f32"]),
    ],
)
def test_every_byte_stays_what_it_was(text: str, left: list[str]) -> None:
    before, after = moved(text)
    assert clamps(after) == sorted([*left, "max i32", "min i32"]) and saturates(after)
    random = np.random.default_rng(6)
    feeds = {"x": random.integers(0, 256, (48, 32)).astype(np.uint8), "z": np.zeros((48, 40), np.float32)}
    (wanted,), (found,) = (interpret(one, feeds).values() for one in (before, after))
    np.testing.assert_array_equal(found, wanted)
    assert len(np.unique(wanted)) > 5


def flipped(low: float, high: float, zero: int) -> str:
    """A signed byte stored with its highest bit flipped."""
    head, _, end = quantized("i8", low, high, zero).replace("tensor y i8", "tensor y u8").partition("  = i8(")
    return f"{head}  = bits_u8(bitxor(i8({end.partition(chr(10))[0]}, -128:i8))\noutput y = y\n"


@pytest.mark.parametrize("zero", [3, 0, -128])
def test_a_flipped_byte_is_an_unsigned_one(zero: int) -> None:
    before, after = moved(flipped(-128.0 - zero, 127.0 - zero, zero))
    assert clamps(after) == ["max i32", "min i32"] and saturates(after)
    feeds = {
        "x": np.random.default_rng(6).integers(0, 256, (48, 32)).astype(np.uint8),
        "z": np.zeros((48, 40), np.float32),
    }
    (wanted,), (found,) = (interpret(one, feeds).values() for one in (before, after))
    np.testing.assert_array_equal(found, wanted)
    assert len(np.unique(wanted)) > 5


def test_what_may_be_no_byte_is_flipped() -> None:
    before, after = moved(flipped(-200.0, 130.0, 0))
    assert after.items == before.items


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        (quantized(value="add(%1, z[i0, i1])"), 2e-3),  # z is any float
        (quantized(), 1e6),  # no int32
        (quantized(low=3.0, high=100.0), 2e-3),  # other ends
        (quantized(last="div(%2, 0.5:f32)", low=-3.5, high=124.0), 2e-3),  # a quotient is bounded for its correction
    ],
)
def test_what_may_be_no_integer_of_32_bits_is_clamped_before(text: str, scale: float) -> None:
    before, after = moved(text, scale)
    assert after.items == before.items

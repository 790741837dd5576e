"""Scales that meet: one factor for a sum and the scale of the byte that it becomes, within what floats round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from opweld.fuse.requantization import RULE, merge_scales
from opweld.fuse.use_def import UseDef
from opweld.ledger import Ledger
from opweld.schedule.expected import expected_sizes
from opweld.target import Target
from opweld.tensor.expr import Binary, Unary, walk
from opweld.tensor.interpret import interpret
from opweld.tensor.label import labels
from opweld.tensor.parse import parse_program
from opweld.tensor.program import Tensor, TensorProgram
from opweld.tensor.text import print_program
from opweld.tensor.verify import verify

Array = NDArray[Any]

STEP, RESIDUAL = 0.0234375, 0.05
"""The scale of what is written, a float32 as it is written here, and of what is added."""


def requantized(zero: int, residual: bool = False, last: str = "div(%3, 0.0234375:f32)") -> str:
    """A product of bytes, scaled and shifted by channel, with another value or none, clamped and a byte again."""
    whole = f"i32(round({last}))"
    value = f"add({whole}, {zero}:i32)" if zero else whole
    other = "add(%1, mul(sub(f32(z[i0, i1]), 7.0:f32), 0.05:f32))" if residual else "%1"
    return f"""program requantized
input x u8[48, 32]
input z u8[48, 40]
constant w i8[32, 40]
constant scale f32[40]
constant bias f32[40]
tensor y u8[i0: 48, i1: 40] from "Conv"
  over r0: 32
  %0 = f32(sum<r0>(mul(i32(x[i0, r0]), i32(w[r0, i1]))))
  %1 = add(mul(%0, scale[i1]), bias[i1])
  %2 = {other}
  %3 = min(max(%2, 0.0:f32), 2.9765625:f32)
  = u8({value})
output y = y
"""


def program_of(text: str, scale: float = 1.0) -> tuple[TensorProgram, dict[str, Array]]:
    random = np.random.default_rng(3)
    data: Mapping[str, Array] = {
        "w": random.integers(-127, 128, (32, 40)).astype(np.int8),
        "scale": (scale * random.uniform(1e-5, 5e-5, 40)).astype(np.float32),
        "bias": (scale * random.uniform(0, 3, 40)).astype(np.float32),
    }
    program = parse_program(text)
    known = tuple(replace(one, read=lambda found=data[one.name]: found) for one in program.constants)
    feeds = {
        name: random.integers(0, 256, shape).astype(np.uint8) for name, shape in (("x", (48, 32)), ("z", (48, 40)))
    }
    return replace(program, constants=known), {**feeds, **data}


def merged(program: TensorProgram, disable: tuple[str, ...] = ()) -> TensorProgram:
    ledger = Ledger(disable)
    ledger.variant(program.name, labels(program))
    graph = UseDef(program, expected_sizes(program), Target.of("x86-64-v4"), ledger)
    merge_scales(graph)
    verify(graph.program())
    return graph.program()


def operators(program: TensorProgram) -> list[str]:
    """Of the last tensor, but for those of the sum."""
    (tensor,) = (item for item in program.items if isinstance(item, Tensor))
    return sorted(node.op for node in walk(tensor.body) if isinstance(node, Binary | Unary))


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("zero", [0, 3, 128])
def test_a_byte_is_what_real_numbers_give(zero: int, residual: bool) -> None:
    program, data = program_of(requantized(zero, residual))
    made = merged(program)
    assert "div" not in operators(made)
    # The product of the operands and that by the factor; sums: the bias, an odd zero point, what else is added.
    assert operators(made).count("mul") == 2 + residual
    assert operators(made).count("add") == 1 + (zero == 3) + residual
    total = data["x"].astype(np.int64) @ data["w"].astype(np.int64)
    exact = total * data["scale"].astype(np.float64) + data["bias"]
    exact += (data["z"].astype(np.float64) - 7) * np.float64(np.float32(RESIDUAL)) if residual else 0
    steps = np.clip(exact, 0, 127 * STEP) / STEP
    (found,) = interpret(made, {name: data[name] for name in ("x", "z")}).values()
    # What lies in the middle between two codes but for the rounding of three float32 numbers up to 256 may be either.
    undecided = np.abs(steps - np.floor(steps) - 0.5) < 3 * 2.0**-16
    assert undecided.mean() < 0.01 and (steps < 127).mean() > 0.2
    np.testing.assert_array_equal(np.where(undecided, 0, found), np.where(undecided, 0, np.rint(steps) + zero))


def test_a_product_by_a_literal_is_a_scale_too() -> None:
    program, data = program_of(requantized(2, last="mul(%3, 42.0:f32)"))
    made = merged(program)
    assert operators(made).count("mul") == 2 and operators(made).count("add") == 1
    feeds = {name: data[name] for name in ("x", "z")}
    before, after = (next(iter(interpret(one, feeds).values())).astype(int) for one in (program, made))
    assert (before != after).mean() < 1e-3 and np.abs(before - after).max() <= 1


def test_it_is_a_decision_that_can_be_undone() -> None:
    program, _ = program_of(requantized(3))
    assert print_program(merged(program, (RULE,))) == print_program(program) != print_program(merged(program))


@pytest.mark.parametrize("why", ["scales that are no ordinary floats by the step", "a factor that is computed"])
def test_what_cannot_be_merged_stays(why: str) -> None:
    text = requantized(3)
    if why == "a factor that is computed":
        text = text.replace("mul(%0, scale[i1])", "mul(%0, f32(z[i0, i1]))")
    program, _ = program_of(text, 1e-33 if "ordinary" in why else 1.0)
    assert print_program(merged(program)) == print_program(program)


CHAIN = """program chain
input z u8[48, 40]
constant w u8[40]
tensor y u8[i0: 48, i1: 40] from "Add"
  %0 = mul(sub(f32(z[i0, i1]), 125.0:f32), 0.46:f32)
  %1 = div(min(max(mul(%0, mul(f32(w[i1]), 0.004:f32)), -58.4:f32), 43.6:f32), 0.4:f32)
  %2 = add(%0, mul(add(round(%1), 0.0:f32), 0.4:f32))
  = u8(add(i32(round(div(min(max(%2, -116.8:f32), 87.2:f32), 0.8:f32))), 146:i32))
output y = y
"""


def test_a_chain_of_sums_and_products_of_bytes_is_divided_nowhere() -> None:
    program, data = program_of(CHAIN)
    random = np.random.default_rng(4)
    weights = random.integers(0, 256, 40).astype(np.uint8)
    program = replace(program, constants=tuple(replace(one, read=lambda: weights) for one in program.constants))
    made = merged(program)
    assert "div" not in operators(made) and operators(made).count("round") == 2
    feeds = {"z": data["z"]}
    before, after = (next(iter(interpret(one, feeds).values())).astype(int) for one in (program, made))
    assert len(np.unique(before)) > 100 and (before != after).mean() < 1e-2 and np.abs(before - after).max() <= 1


@pytest.mark.parametrize("read", ["f32[48, 40]", "i32[48, 40]"])
def test_what_is_made_of_other_values_than_bytes_is_divided(read: str) -> None:
    text = CHAIN.replace("z u8[48, 40]", f"z {read}").replace("constant w", "input w")
    program, _ = program_of(text.replace("f32(z[i0, i1])", "z[i0, i1]") if read[0] == "f" else text)
    assert print_program(merged(program)) == print_program(program)

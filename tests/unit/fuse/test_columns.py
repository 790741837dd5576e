"""Rows whose columns are flat for the sums over them, and several axes for others."""

from __future__ import annotations

import numpy as np
import pytest

from opweld.fuse.partition import partition
from opweld.fuse.region import Kind, Regions
from opweld.ledger import Ledger
from opweld.schedule.expected import expected_sizes
from opweld.target import Target
from opweld.tensor.interpret import interpret
from opweld.tensor.parse import parse_program
from opweld.tensor.program import Tensor
from opweld.tensor.verify import verify

TARGET = Target.of("x86-64-v4")


def normalised(shape: str, flat: str, more: str = "") -> str:
    """x less the sum of its row, times the largest such difference, over flat columns, read in the shape of x."""
    symbols = "".join(f"symbol {s} >= 1 = dim {n} of x\n" for n, s in enumerate(shape.split(", ")) if s.isalpha())
    _, rows, columns = shape.split(", ")
    return (
        f"program p\n{symbols}input x f32[{shape}]\n"
        f'tensor total f32[i0: 3] from "Mean"\n  over r0: {flat}\n'
        f"  = sum<r0>(x[i0, (r0 // {columns}), (r0 % {columns})])\n"
        f'tensor apart f32[i0: 3, i1: {flat}] from "Sub"\n'
        f"  = sub(x[i0, (i1 // {columns}), (i1 % {columns})], total[i0])\n"
        f'tensor largest f32[i0: 3] from "Max"\n  over r0: {flat}\n  = max<r0>(apart[i0, r0])\n'
        f'tensor scaled f32[i0: 3, i1: {flat}] from "Mul"\n  = mul(apart[i0, i1], largest[i0])\n'
        f'tensor y f32[i0: 3, i1: {rows}, i2: {columns}] from "Add"\n'
        f"  = add(exp(scaled[i0, {columns}*i1 + i2]), 1.0)\n"
        f"{more}output y = y\n"
    )


def regions_of(text: str) -> Regions:
    program = parse_program(text)
    found = partition(program, expected_sizes(program), TARGET, Ledger())
    verify(found.program)
    return found


@pytest.mark.parametrize(("shape", "flat"), [("3, 5, 4", "20"), ("3, h, w", "h*w")])
def test_columns_that_are_read_as_two_axes_are_two(shape: str, flat: str) -> None:
    text = normalised(shape, flat)
    found = regions_of(text)
    (region,) = found.regions
    assert [member.kind for member in region.members] == [Kind.ROWWISE]
    x = np.random.default_rng(0).standard_normal((3, 5, 4)).astype(np.float32)
    x[1, 2, 3], x[2, 0, 0] = np.inf, np.nan
    right = interpret(parse_program(text), {"x": x}, float64=True)["y"]
    np.testing.assert_allclose(interpret(found.program, {"x": x}, float64=True)["y"], right, rtol=1e-12)


FLAT = 'tensor z f32[i0: 3, i1: 20] from "Neg"\n  = neg(scaled[i0, i1])\noutput z = z\n'
OTHER = 'tensor z f32[i0: 3, i1: 4, i2: 5] from "Neg"\n  = neg(scaled[i0, 5*i1 + i2])\noutput z = z\n'


@pytest.mark.parametrize("more", [FLAT, OTHER])
def test_columns_that_somebody_reads_otherwise_stay_flat(more: str) -> None:
    found = regions_of(normalised("3, 5, 4", "20", more=more))
    assert [
        len(tensor.axes) for tensor in found.program.items if isinstance(tensor, Tensor) and tensor.name == "apart"
    ] == [2]


def test_what_tells_a_place_along_the_columns_keeps_them() -> None:
    """An index of flat columns is none of two axes."""
    text = normalised("3, 5, 4", "20").replace(
        "output y = y",
        'tensor z i64[i0: 3] from "ArgMax"\n  over r0: 20\n  = argmax<r0>(scaled[i0, r0])\noutput y = y\noutput z = z',
    )
    program = parse_program(text)
    found = regions_of(text)
    x = np.random.default_rng(0).standard_normal((3, 5, 4)).astype(np.float32)
    assert interpret(found.program, {"x": x})["z"].tolist() == interpret(program, {"x": x})["z"].tolist()

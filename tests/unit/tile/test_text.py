from __future__ import annotations

from dataclasses import replace

import pytest

from opweld.errors import OpweldError
from opweld.tensor.dim import Axis, Symbol, Value
from opweld.tensor.dtype import DType
from opweld.tensor.expr import binary, const, load, unary
from opweld.tile.check import check_kernel
from opweld.tile.text import parse_kernel, print_kernel
from opweld.tile.tile import Buffer, Kernel, Let, Loop, Store
from tests.unit.tile.pipeline import TARGET, compile_text
from tests.unit.tile.test_schedules import PROGRAMS, SYMBOLIC

TEXTS = {**PROGRAMS, **{f"symbolic_{name}": text for name, (text, _) in SYMBOLIC.items()}}


@pytest.mark.parametrize("name", TEXTS)
def test_round_trip(name: str) -> None:
    for item in compile_text(TEXTS[name]).kernels:
        text = print_kernel(item.kernel)
        parsed = parse_kernel(text)
        check_kernel(parsed, TARGET.vector_lanes_f32)
        assert print_kernel(parsed) == text
        assert [buffer.role for buffer in parsed.buffers] == [buffer.role for buffer in item.kernel.buffers]


def _twice(buffer: str, axis: str, size: str) -> Kernel:
    n = Symbol(size)
    i = Axis(axis, n.dim)
    value = unary("exp", load(buffer, DType.F32, (i.dim,)))
    named = load("any name", DType.F32, ())
    result = binary("mul", binary("add", named, value), binary("add", named, value))
    return Kernel(
        "any",
        (Buffer(buffer, DType.F32, "update"),),
        (n,),
        (),
        (Loop(i, (Let("any name", const(0.5, DType.F32)), Store(buffer, i.dim, result))),),
    )


def test_names_do_not_matter() -> None:
    first, second = print_kernel(_twice("x", "i", "batch")), print_kernel(_twice("\n", "y", "seq"))
    assert first == second
    assert "batch" not in first


def test_a_shared_expression_has_a_line() -> None:
    text = print_kernel(_twice("x", "i", "n"))
    assert "%0 = add(v0, exp(b0[k0]))" in text
    assert "= mul(%0, %0)" in text


def test_indices_from_memory() -> None:
    i = Axis("i", 4)
    ids = Value(load("ids", DType.I64, (i.dim,)), 9)
    store = Store("y", ids.dim, load("x", DType.F32, (ids.dim,), (ids.dim - 2,), const(1.5, DType.F32)), (i.dim - 1,))
    kernel = Kernel(
        "k",
        (Buffer("ids", DType.I64, "read"), Buffer("x", DType.F32, "read"), Buffer("y", DType.F32, "write")),
        (),
        (i,),
        (store,),
    )
    text = print_kernel(kernel)
    assert "store b2[at(b0[g0], 9) if g0 - 1 >= 0]" in text
    assert print_kernel(parse_kernel(text)) == text


def test_what_is_not_understood_is_named_with_its_line() -> None:
    with pytest.raises(OpweldError, match="tile program, line 3: expected loop, row, lane"):
        parse_kernel("kernel\nwrite b0 f32\nlop k0: 4\n")
    with pytest.raises(OpweldError, match="tile program, line 2: expected an element type"):
        parse_kernel("kernel\nwrite b0 f31\n")
    with pytest.raises(OpweldError, match="tile program, line 3: expected a statement"):
        parse_kernel("kernel\nwrite b0 f32\n  store b0[1] = 1.0\n")
    with pytest.raises(OpweldError, match="tile program, line 4: expected an accumulator in scope"):
        parse_kernel("kernel\nwrite b0 f32\nloop k0: 4\n  sum a0 = 1.0\n")


def test_equal_kernels_of_two_nodes_print_equally() -> None:
    text = """program two
input x f32[5, 8]
constant w f32[8, 8]
constant v f32[8, 8]
tensor a f32[i0: 5, i1: 8] from "first"
  over r0: 8
  = sum<r0>(mul(x[i0, r0], w[r0, i1]))
tensor b f32[i0: 5, i1: 8] from "second"
  over r0: 8
  = sum<r0>(mul(a[i0, r0], v[r0, i1]))
output y = b
"""
    first, second = compile_text(text, disable=("fuse.block",)).kernels
    assert first.kernel.origin != second.kernel.origin
    assert print_kernel(first.kernel) == print_kernel(replace(second.kernel, name="other"))

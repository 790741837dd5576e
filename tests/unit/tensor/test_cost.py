"""Operations and bytes of known computations."""

from __future__ import annotations

import pytest

from opweld.tensor.cost import Count, Signatures, flops, read_bytes, size_in_bytes
from opweld.tensor.dim import ZERO, Axis, Dim, Symbol, Value, as_dim, minimum
from opweld.tensor.dtype import DType
from opweld.tensor.expr import binary, const, load, reduce, unary
from opweld.tensor.operators import WORDS
from opweld.tensor.program import Input, Item, Tensor, TensorProgram, item_inputs, item_outputs
from tests.unit.tensor.programs import F32, I64, axes, embedding, f32, read, recurrence, shape, softmax


def count(flop: int, integer: int = 0, special: int = 0, macs: int = 0, integer_macs: int = 0) -> Count:
    return Count(as_dim(flop), as_dim(integer), as_dim(special), as_dim(macs), as_dim(integer_macs))


def moved(values: Signatures, item: Item) -> Dim:
    """Bytes that an item reads and writes."""
    read = sum((read_bytes(item, name, values) for name in item_inputs(item)), ZERO)
    return read + sum((size_in_bytes(*values[name]) for name in item_outputs(item)), ZERO)


def matmul() -> TensorProgram:
    m, n, k = Symbol("m"), Axis("n", 64), Axis("k", 32)
    row = Axis("row", m.dim)
    product = binary("mul", read("a", row, k), read("b", k, n))
    return TensorProgram(
        "matmul",
        (Input("a", F32, (m.dim, as_dim(32))), Input("b", F32, shape(32, 64))),
        (),
        (Tensor("c", F32, (row, n), reduce("sum", (k,), product)),),
        (("c", "c"),),
    )


def test_matmul_is_two_operations_a_product() -> None:
    m = Symbol("m").dim
    p = matmul()
    assert flops(p) == Count(2 * 32 * 64 * m, ZERO, ZERO, 32 * 64 * m)
    assert moved(p.signatures, p.items[0]) == 4 * (32 * m + 32 * 64 + 64 * m)


@pytest.mark.parametrize("dot", WORDS)
def test_words_count_as_the_products_that_they_hold(dot: str) -> None:
    """16 numbers in words of 32 bits are as many multiply-adds as 16 numbers that lie alone."""
    i, k = axes(i=10, k=16 // WORDS[dot])
    summed = reduce("sum", (k,), binary(dot, read("x", i, k, dtype=DType.I32), read("w", k, dtype=DType.I32)))
    expected = count(320, macs=160) if dot == "dot2" else count(0, 320, integer_macs=160)
    assert flops(summed) == expected
    assert flops(summed).operations == as_dim(320)


def test_products_of_integers_are_operations_of_a_peak_where_they_are_summed() -> None:
    i, k = axes(i=10, k=16)
    product = binary("mul", read("x", i, k, dtype=I64), read("w", k, dtype=I64))
    assert flops(reduce("sum", (k,), product)) == count(0, 320, integer_macs=160)
    assert flops(reduce("sum", (k,), product)).operations == as_dim(320)
    assert flops(reduce("max", (k,), product)).operations is ZERO


def test_a_rows_maximum_is_counted_once_for_the_row() -> None:
    b, n = Symbol("batch").dim, Symbol("p2o.length.1").dim
    counted = flops(softmax().program)
    # max, sub and sum a row element; the same sub and exp again for the quotient, whose axis is another one
    assert counted.flops == 4 * b * n
    assert counted.special == 3 * b * n


def test_shared_expressions_count_once() -> None:
    (i,) = axes(i=10)
    x = read("x", i)
    for _ in range(60):
        x = binary("mul", x, x)
    assert flops(x) == count(600)
    assert flops(unary("exp", x)) == count(600, 0, 10)


def test_a_gather_reads_no_more_than_its_rows() -> None:
    p = embedding().program
    split = p.items[0]
    # 12 of 66 floats twice over: 36 reads of 4 bytes; the ids 48; the result 36 floats
    assert int(moved(p.signatures, split)) == 36 * 4 + 6 * 8 + 36 * 4
    n = Symbol("n")
    i = Axis("i", n.dim)
    row = load("table", F32, (Value(read("ids", i, dtype=I64), 11).dim,))
    gather = Tensor("y", F32, (i,), row)
    signatures = {"table": (F32, shape(11)), "ids": (I64, (n.dim,)), "y": (F32, (n.dim,))}
    assert moved(signatures, gather) == minimum(44, 4 * n.dim) + 12 * n.dim


def test_integers_are_counted_apart() -> None:
    (i,) = axes(i=10)
    body = binary("add", read("n", i, dtype=I64), binary("mul", read("n", i, dtype=I64), read("n", i, dtype=I64)))
    assert flops(body) == count(0, 20)
    assert flops(binary("lt", read("x", i), f32(0))) == count(10)


def test_a_recurrence_counts_every_step() -> None:
    counted = flops(recurrence().program)
    assert counted == count(5 * (2 * 2 * 4 * 4 + 2 * 4), 0, 5 * 2 * 4, 5 * 2 * 4 * 4)


def test_a_division_by_a_constant_is_an_operation_like_any() -> None:
    """It is computed as a product with a correction; another division takes the time of dozens of products."""
    n = Symbol("n")
    i = Axis("i", n.dim)
    x = read("x", i)
    divisions = (binary("div", x, const(6.0, F32)), binary("div", x, unary("neg", x)))
    counts: list[Count] = []
    for body in divisions:
        y = Tensor("y", F32, (i,), body)
        counts.append(flops(TensorProgram("p", (Input("x", F32, (n.dim,)),), (), (y,), (("y", "y"),))))
    assert counts == [Count(n.dim), Count(n.dim, ZERO, n.dim)]

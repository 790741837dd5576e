"""Operations and bytes of known computations."""

from __future__ import annotations

from opweld.tensor.cost import Count, flops, intensity, traffic
from opweld.tensor.dim import ZERO, Axis, Symbol, Value, as_dim, minimum
from opweld.tensor.expr import binary, load, reduce, unary
from opweld.tensor.program import Input, Tensor, TensorProgram
from tests.unit.tensor.programs import F32, I64, axes, embedding, f32, read, recurrence, shape, softmax


def count(flop: int, integer: int = 0, special: int = 0) -> Count:
    return Count(as_dim(flop), as_dim(integer), as_dim(special))


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
    assert flops(p) == Count(2 * 32 * 64 * m, ZERO, ZERO)
    moved = traffic(p, p.signatures)
    assert moved == 4 * (32 * m + 32 * 64 + 64 * m)
    assert intensity(flops(p), moved, {Symbol("m"): 1}) == 4096 / (4 * (32 + 2048 + 64))


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
    assert int(traffic(split, p.signatures)) == 36 * 4 + 6 * 8 + 36 * 4
    n = Symbol("n")
    i = Axis("i", n.dim)
    row = load("table", F32, (Value(read("ids", i, dtype=I64), 11).dim,))
    gather = Tensor("y", F32, (i,), row)
    signatures = {"table": (F32, shape(11)), "ids": (I64, (n.dim,)), "y": (F32, (n.dim,))}
    assert traffic(gather, signatures) == minimum(44, 4 * n.dim) + 12 * n.dim


def test_integers_are_counted_apart() -> None:
    (i,) = axes(i=10)
    body = binary("add", read("n", i, dtype=I64), binary("mul", read("n", i, dtype=I64), read("n", i, dtype=I64)))
    assert flops(body) == count(0, 20)
    assert flops(binary("lt", read("x", i), f32(0))) == count(10)


def test_a_recurrence_counts_every_step() -> None:
    counted = flops(recurrence().program)
    assert counted == count(5 * (2 * 2 * 4 * 4 + 2 * 4), 0, 5 * 2 * 4)
    assert counted.evaluate({}) == (360, 0, 40)

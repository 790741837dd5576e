"""Triangular systems of equations."""

from __future__ import annotations

from opweld.frontend.torch.builder import Builder, Value
from opweld.frontend.torch.rows import aten
from opweld.tensor.dtype import DType


@aten("linalg_solve_triangular.default")
def solve_triangular(
    b: Builder, a: Value, rhs: Value, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    """x [..., n, k] of a x = rhs, or, from the right, x [..., k, n] of x a = rhs. Of a [..., n, n] one triangle is
    read."""
    rank, order = b.rank(a), b.static(b.shape(a)[-1], "the order of a triangular system")
    if not order:
        return b.expanded(b.cast(0, b.dtype), b.sizes(rhs))
    turned = [*range(rank - 2), rank - 1, rank - 2]
    lower = b.op("Transpose", a, perm=turned) if upper else a
    flat = b.reshape(lower, [-1, order, order])  # blocks have axes of their own
    count = b.op("Squeeze", b.op("Shape", flat, dtype=DType.I64, start=0, end=1), b.constant([0], DType.I64))
    inverse = b.reshape(_lower_inverse(b, flat, count, order, unitriangular), b.sizes(a))
    inverse = b.op("Transpose", inverse, perm=turned) if upper else inverse
    return b.op("MatMul", inverse, rhs) if left else b.op("MatMul", rhs, inverse)


def _lower_inverse(b: Builder, a: Value, count: Value, order: int, unitriangular: bool) -> Value:
    """The inverse of lower triangular matrices [count, order, order].

    From inverses of diagonal blocks those of blocks twice as large, so that the products are as many as the order has
    digits (Higham, Accuracy and Stability of Numerical Algorithms, 14.2.2):

        [[p, 0], [r, q]]^-1 = [[p^-1, 0], [-q^-1 r p^-1, q^-1]]
    """
    full = 1 << (order - 1).bit_length()
    if full > order:  # with ones on the diagonal, which change nothing of the rest
        a = b.op(
            "Pad",
            a,
            b.constant([0, 0, 0, 0, full - order, full - order], DType.I64),
            b.cast(0, b.dtype),
            mode="constant",
        )
    flat = b.reshape(a, [count, full * full])
    diagonal = _strided(b, flat, 1, 0, full * full, full + 1)
    if unitriangular:
        inverse = b.expanded(b.cast(1, b.dtype), [count, full])
    else:
        past = b.constant([position >= order for position in range(full)])
        diagonal = b.op("Where", past, b.cast(1, b.dtype), diagonal, dtype=b.dtype) if full > order else diagonal
        inverse = b.op("Div", b.cast(1, b.dtype), diagonal)
    inverse = b.reshape(inverse, [count, full, 1, 1])
    size = 1
    while size < full:
        inverse, size = _merged(b, a, inverse, count, full, size), 2 * size
    inverse = b.reshape(inverse, [count, full, full])
    for axis in (1, 2) if full > order else ():
        inverse = _strided(b, inverse, axis, 0, order, 1)
    return inverse


def _merged(b: Builder, a: Value, inverse: Value, count: Value, full: int, size: int) -> Value:
    """The inverses of diagonal blocks [count, full / (2 size), 2 size, 2 size], of those of half their size."""
    pairs = full // (2 * size)
    first, second = (_strided(b, inverse, 1, start, full // size, 2) for start in (0, 1))
    # Of pairs of blocks the left lower quarters: [count, row of pairs, second, size, column of pairs, first, size].
    blocks = b.reshape(a, [count, pairs, 2, size, pairs, 2, size])
    blocks = _strided(b, _strided(b, blocks, 2, 1, 2, 1), 5, 0, 1, 1)
    blocks = b.reshape(b.op("Transpose", blocks, perm=[0, 1, 4, 2, 5, 3, 6]), [count, pairs * pairs, size, size])
    below = _strided(b, blocks, 1, 0, pairs * pairs, pairs + 1)
    below = b.op("Neg", b.op("MatMul", b.op("MatMul", second, below), first))
    above = b.expanded(b.cast(0, b.dtype), [count, pairs, size, size])
    rows = (b.op("Concat", first, above, axis=3), b.op("Concat", below, second, axis=3))
    return b.op("Concat", *rows, axis=2)


def _strided(b: Builder, x: Value, axis: int, start: int, end: int, step: int) -> Value:
    return b.op("Slice", x, *(b.constant([n], DType.I64) for n in (start, end, axis, step)))

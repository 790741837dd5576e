"""Keys and values in blocks of a pool, and attention over them through block tables; see `tensor/paged.py`.

    AppendKeys(pool [blocks, kv_heads, size, block], keys [tokens, kv_heads * size], places [tokens, 2])       the pool
    AppendValues(pool [blocks, kv_heads, block, padded], values [tokens, kv_heads * size], places [tokens, 2])  the pool
    PagedAttention(queries [tokens, heads * size], keys, values, work [items, WORK], tables [entries], owners [parts],
                   parts [tokens, 2]; window, cap, causal)                              [tokens, heads * size]

A pool of bfloat16 may lie in pairs, [blocks, kv_heads, size / 2, block, 2] and [blocks, kv_heads, block / 2, padded,
2]: queries, and weights of values, are rounded to bfloat16 then. A place is a block, and a position in it. Without
`causal` (1 where it is not given) queries see all keys of a text.
"""

from __future__ import annotations

import numpy as np

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.decoder.domain import DOMAIN
from opweld.ops.emitted import Indices, emit
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, require_rank, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers, required_attribute
from opweld.tensor.dim import ONE, Dim, as_dim, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, index
from opweld.tensor.paged import BLOCKS, PAIRED, POOLS, WORK, padded_size, part_size


@infers("AppendKeys", "AppendValues", domain=DOMAIN)
def infer_append(scope: Inference, node: ir.Node) -> list[Fact]:
    """The pool."""
    pool, rows = scope.fact(required(node, 0)), require_rank(scope.fact(required(node, 1)), 2, node, 2)
    _, kv_heads, size, block = _pool(pool, node)
    scope.same(rows.shape[1], kv_heads * size, node, "heads of keys and values")
    scope.same(scope.fact(required(node, 2)).shape[0], rows.shape[0], node, "a place for each token")
    if pool.dtype not in POOLS:
        raise ModelError(f"{describe(node)}: the pool is {pool.dtype!r}, expected one of {list(POOLS)}")
    if block.constant not in BLOCKS:
        raise ModelError(f"{describe(node)}: blocks have {block} tokens, expected one of {BLOCKS}")
    return [pool]


def _pool(pool: Fact, node: ir.Node) -> tuple[Dim, Dim, Dim, Dim]:
    """(blocks, kv_heads, size, block)."""
    blocks, kv_heads, rows, columns = _whole(pool, node, keys=node.op_type == "AppendKeys")
    if node.op_type == "AppendKeys":
        return blocks, kv_heads, rows, columns
    return blocks, kv_heads, as_dim(int(required_attribute(node, "size"))), rows


def _in_pairs(pool: Fact) -> bool:
    return len(pool.shape) == 5


def _whole(pool: Fact, node: ir.Node, keys: bool) -> tuple[Dim, Dim, Dim, Dim]:
    """The shape of a pool of keys, or of values, were it not in pairs."""
    if not _in_pairs(pool):
        require_rank(pool, 4, node, 4)
        blocks, kv_heads, rows, columns = pool.shape
        return blocks, kv_heads, rows, columns
    blocks, kv_heads, rows, columns, two = pool.shape
    if two.constant != 2 or pool.dtype is not DType.BF16:
        what = "keys" if keys else "values"
        raise ModelError(f"{describe(node)}: {what} are {pool.dtype!r} {list(pool.shape)}, expected pairs of bfloat16")
    return blocks, kv_heads, rows * 2, columns


@lowers("AppendKeys", "AppendValues", domain=DOMAIN)
def lower_append(scope: Lowering, node: ir.Node) -> None:
    """A scattered write. Keys lie with the tokens of a block side by side, values with their features; in pairs both
    are written one by one."""
    pool, rows, places = (required(node, n) for n in range(3))
    shape, tokens = scope.fact(pool).shape, scope.fact(rows).shape[0]
    _, kv_heads, size, block = _pool(scope.fact(pool), node)
    is_keys, paired = node.op_type == "AppendKeys", _in_pairs(scope.fact(pool))
    columns = shape[3]
    width = product(shape[2:])

    def place(at: Indices) -> Expr:
        number, slot = (cast(scope.load(places, (at[0], as_dim(n))), DType.I64) for n in range(2))
        start = binary("mul", binary("add", binary("mul", number, index(kv_heads)), index(at[1])), index(width))
        if paired:
            row, column = (index(at[2]), slot) if is_keys else (slot, index(at[2]))
            pair, half = (binary(function, row, index(2)) for function in ("div", "mod"))
            inside = binary("add", binary("mul", pair, index(columns)), column)
            return binary("add", start, binary("add", binary("mul", inside, index(2)), half))
        if is_keys:
            return binary("add", binary("add", start, index(at[2] * block)), slot)
        return binary("add", start, binary("mul", slot, index(columns)))

    single = is_keys or paired
    updates = (tokens, kv_heads, size) if single else (tokens, kv_heads)
    where = emit(scope, updates, place, "places")
    dtype = scope.fact(pool).dtype
    updated = emit(scope, scope.fact(rows).shape, lambda at: cast(scope.load(rows, at), dtype), "rows")
    numbers = (product(shape), product(updates), ONE if single else size)
    (name,) = scope.extern("scatter", [scope.tensor(pool), where.name, updated.name], [(dtype, shape)], numbers)
    scope.alias(node.outputs[0], name)


@infers("PagedAttention", domain=DOMAIN)
def infer_attention(scope: Inference, node: ir.Node) -> list[Fact]:
    """That of the queries."""
    queries, keys, values, work, tables, owners, parts = (scope.fact(required(node, n)) for n in range(7))
    for fact, rank in ((queries, 2), (work, 2), (tables, 1), (owners, 1), (parts, 2)):
        require_rank(fact, rank, node, rank)
    if int(attribute(node, "window", 0)) and not int(attribute(node, "causal", 1)):
        raise ModelError(f"{describe(node)}: a window is of the last keys, which queries without causal do not have")
    blocks, kv_heads, size, block = _whole(keys, node, keys=True)
    require_rank(values, len(keys.shape), node, len(keys.shape))
    rows = zip(_whole(values, node, keys=False), (blocks, kv_heads, block, as_dim(padded_size(int(size)))), strict=True)
    for found, wanted in rows:
        scope.same(found, wanted, node, "keys and values of one pool")
    width = queries.shape[1]
    if width.constant is None or not width.constant or width.constant % int(kv_heads * size):
        raise ModelError(
            f"{describe(node)}: queries are {width} wide, expected as many heads of {size} for each of {kv_heads} heads"
        )
    if keys.dtype is not values.dtype or keys.dtype not in POOLS:
        raise ModelError(f"{describe(node)}: keys and values are {keys.dtype!r} and {values.dtype!r}")
    scope.same(work.shape[1], as_dim(WORK), node, "numbers of a row of work")
    scope.same(parts.shape[0], queries.shape[0], node, "the parts of each token")
    return [Fact(queries.dtype, queries.shape)]


@lowers("PagedAttention", domain=DOMAIN)
def lower_attention(scope: Lowering, node: ir.Node) -> None:
    """Parts, and what joins them."""
    queries, keys, values, work, tables, owners, parts = (required(node, n) for n in range(7))
    tokens, width = scope.fact(queries).shape
    pool = scope.fact(keys)
    blocks, kv_heads, size, block = _whole(pool, node, keys=True)
    heads, count, entries = width // size, scope.fact(owners).shape[0], scope.fact(tables).shape[0]
    cap = int(np.float32(attribute(node, "cap", 0.0)).view(np.int32))
    window, causal = int(attribute(node, "window", 0)), int(bool(attribute(node, "causal", 1)))
    numbers = (tokens, blocks, entries, count, kv_heads, heads // kv_heads, size, block, window, cap, causal)
    read = [scope.tensor(value) for value in (work, queries, keys, values, tables, owners)]
    shape = (count, heads, as_dim(part_size(int(size))))
    attend = PAIRED if _in_pairs(pool) else POOLS[pool.dtype]
    (made,) = scope.extern(attend, read, [(DType.F32, shape)], numbers, scope.fact(work).shape[0])
    operands = [scope.tensor(parts), made]
    (name,) = scope.extern("join_parts", operands, [(DType.F32, (tokens, width))], (count, heads, size), tokens)
    scope.alias(node.outputs[0], name)

"""TfIdfVectorizer: how often each n-gram of a pool of integers occurs in a row."""

from __future__ import annotations

from functools import reduce as fold
from itertools import pairwise
from typing import Any

import numpy as np

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.ops.arithmetic import mul, smaller
from opweld.ops.emitted import Indices, define
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, require_rank, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers, required_attribute
from opweld.tensor.dim import as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Axis, Expr, at_least_zero, binary, cast, const, load, reduce

MODES = ("TF", "IDF", "TFIDF")


@infers("TfIdfVectorizer")
def infer_ngrams(scope: Inference, node: ir.Node) -> list[Fact]:
    """float32, with an element for each n-gram along the last axis."""
    fact = require_rank(scope.fact(required(node, 0)), 1, node, 2)
    if attribute(node, "pool_strings", None) is not None or fact.dtype not in (DType.I32, DType.I64):
        raise UnsupportedError(f"{describe(node)}: n-grams of int32 and int64 are supported, not of strings")
    if required_attribute(node, "mode") not in MODES:
        raise ModelError(f"{describe(node)}: mode must be one of {', '.join(MODES)}")
    if required_attribute(node, "max_skip_count") < 0:
        raise ModelError(f"{describe(node)}: max_skip_count is negative")
    table, _ = _tables(node)
    weights = attribute(node, "weights", None)
    if weights is not None and len(weights) != len(table):
        raise ModelError(f"{describe(node)}: {len(weights)} weights for {len(table)} n-grams")
    return [Fact(DType.F32, (*fact.shape[:-1], as_dim(len(table))))]


@lowers("TfIdfVectorizer")
def lower_ngrams(scope: Lowering, node: ir.Node) -> None:
    """The number of (position, skip) pairs at which all items of the n-gram occur; 1 at most for IDF; weighted."""
    x, mode, weights = required(node, 0), required_attribute(node, "mode"), attribute(node, "weights", None)
    fact = scope.fact(x)
    table, lengths = _tables(node)
    # Padding after a row is a value that no n-gram contains.
    pool = set(table.flat)
    absent = const(next(n for n in range(len(pool) + 1) if n not in pool), fact.dtype)
    grams, length_of = scope.constant(table.astype(fact.dtype.numpy), "grams"), scope.constant(lengths, "lengths")
    scale = None if weights is None else scope.constant(np.array(weights, np.float32), "weights")
    places, skips = Axis("p", fact.shape[-1]), Axis("s", as_dim(required_attribute(node, "max_skip_count") + 1))
    skip = as_dim(0) if skips.extent.constant == 1 else skips.dim

    def frequency(at: Indices) -> Expr:
        *row, gram = at
        length = load(length_of, DType.I64, (gram,))

        def there(item: int) -> Expr:
            place = places.dim + item * (skip + 1)
            found = scope.load(x, (*row, place), [places.extent - 1 - place], absent)
            same = binary("eq", found, load(grams, fact.dtype, (gram, as_dim(item))))
            return binary("or", same, binary("le", length, const(item, DType.I64)))

        # An n-gram of one item is counted once, and an unused output position never.
        once = binary("or", at_least_zero(-skip), binary("gt", length, const(1, DType.I64)))
        counted = binary("and", once, binary("gt", length, const(0, DType.I64)))
        hit = fold(lambda a, b: binary("and", a, b), map(there, range(table.shape[1])), counted)
        total = reduce("sum", (places, skips), cast(hit, DType.F32))
        if mode == "TF":
            return total
        total = smaller(total, 1.0) if mode == "IDF" else total
        return total if scale is None else mul(total, load(scale, DType.F32, (gram,)))

    define(scope, node.outputs[0], frequency)


def _tables(node: ir.Node) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """For each output position the items of its n-gram, padded by zeros, and how many there are: 0 where there is no
    n-gram, or one that is too short or too long."""
    pool, starts = required_attribute(node, "pool_int64s"), list(required_attribute(node, "ngram_counts"))
    places = list(required_attribute(node, "ngram_indexes"))
    least, most = required_attribute(node, "min_gram_length"), required_attribute(node, "max_gram_length")
    grams: list[list[int]] = []
    for length, (start, end) in enumerate(pairwise([*starts, len(pool)]), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % length:
            raise ModelError(f"{describe(node)}: items {start} to {end} of the pool are no n-grams of {length}")
        grams += [list(pool[at : at + length]) for at in range(start, end, length)]
    if not grams or len(places) != len(grams) or min(places) < 0:
        raise ModelError(f"{describe(node)}: {len(places)} places for {len(grams)} n-grams; each has one from 0 on")
    if len(set(places)) < len(places) or max(places) >= 4 * len(places) + 1024:
        raise UnsupportedError(f"{describe(node)}: n-grams that share an output position, or leave most unused")
    table = np.zeros((max(places) + 1, max(map(len, grams))), np.int64)
    lengths = np.zeros(len(table), np.int64)
    for place, gram in zip(places, grams, strict=True):
        table[place, : len(gram)] = gram
        lengths[place] = len(gram) if least <= len(gram) <= most else 0
    return table, lengths

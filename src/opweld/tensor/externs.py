"""Externs: C functions for what expressions cannot compute: sorting, scattered writes, data-dependent selection.

Each has a C function of the same name, suffixed by the type of its first operand, in `runtime/c/opweld_extern.h` or,
for another package, in its own source. Here are its semantics in NumPy, and the memory and work that it needs. Operands
and results are dense; `numbers` are sizes and flags, integers here, polynomials of sizes at compile time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opweld.errors import OpweldError, UnsupportedError
from opweld.tensor.dim import Atom
from opweld.tensor.dtype import DType
from opweld.tensor.experts import EXPERTS
from opweld.tensor.function import Function, Numbers
from opweld.tensor.paged import PAGED
from opweld.tensor.program import Extern
from opweld.tensor.rounded import ROUNDED
from opweld.tensor.semantics import Array


def symbol(function: str, dtype: DType) -> str:
    """The name of the C function for a type of its first operand. Raises UnsupportedError where there is none."""
    if EXTERNS[function].triton is not None and not EXTERNS[function].source:
        raise UnsupportedError(
            f"the kernel {function!r} is of Triton alone: compile the model for a GPU (target='cuda')"
        )
    return f"{'' if EXTERNS[function].source else 'opw_extern_'}{function}_{dtype.short}"


def call_extern(
    extern: Extern, env: Mapping[str, Array], symbols: Mapping[Atom, int], float64: bool
) -> dict[str, Array]:
    """The results of all rows, in NumPy; float dtypes as float64 if `float64`."""
    function = EXTERNS[extern.function]
    numbers = [dim.evaluate(symbols) for dim in extern.numbers]
    operands = [np.ascontiguousarray(env[name]).reshape(-1) for name in extern.operands]
    results: dict[str, Array] = {}
    for result in extern.results:
        dtype = np.dtype(np.float64) if float64 and result.dtype.is_float else result.dtype.numpy
        results[result.name] = np.zeros([dim.evaluate(symbols) for dim in result.shape], dtype)
    flat = [array.reshape(-1) for array in results.values()]
    sizes, whole = function.parts(numbers), function.whole(len(operands), len(flat))
    for row in range(extern.rows.evaluate(symbols)):
        starts = [0 if position in whole else row * size for position, size in enumerate(sizes)]
        parts = [a[i : i + n] for a, i, n in zip((*operands, *flat), starts, sizes, strict=True)]
        function.compute(parts[: len(operands)], parts[len(operands) :], numbers)
    return results


# -------------------------------------------------------------------------------------------------------------- orders


def _logarithm(k: Any) -> int:
    """Steps through a heap of k elements; a typical number if k is symbolic."""
    known = k if isinstance(k, int) else k.constant
    return 10 if known is None else max(1, int(known).bit_length())


def _order_parts(numbers: Numbers) -> tuple[Any, ...]:
    """n keys; k positions."""
    n, k, _ = numbers
    return n, k


def _order_work(numbers: Numbers) -> Any:
    n, k, _ = numbers
    return n * 4 + k * 8 * _logarithm(k)


def _order(operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
    """The positions of the k extreme keys, in order, stable."""
    (keys,), (order,), (_, k, largest) = operands, results, numbers
    # NaN counts as the largest. A stable descending sort is the reverse of an ascending one of the reversed keys.
    rising = np.argsort(keys[::-1] if largest else keys, kind="stable")
    order[:] = (len(keys) - 1 - rising[::-1] if largest else rising)[:k]


def _unique_parts(numbers: Numbers) -> tuple[Any, ...]:
    """Rows of keys; for each group its first row, for each row its group, for each group its rows; the number of
    groups."""
    rows, width, _ = numbers
    return rows * width, rows, rows, rows, 1


def _unique_work(numbers: Numbers) -> Any:
    return numbers[0] * 16 * _logarithm(numbers[0])


def _unique(operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
    """Groups of equal rows, in the order of their values or of their first appearance."""
    rows, width, by_value = numbers
    table = operands[0].reshape(rows, width)
    ranks = np.asarray(np.lexsort(tuple(table.T[::-1])) if width else np.arange(rows), np.int64)
    same = [_equal_rows(table[a], table[b]) for a, b in itertools.pairwise(ranks)]
    starts = [i for i in range(rows) if i == 0 or not same[i - 1]]
    groups = [np.sort(group) for group in np.split(ranks, starts[1:])] if rows else []
    if not by_value:
        groups.sort(key=lambda group: int(group[0]))
    first, inverse, counts, total = results
    for number, group in enumerate(groups):
        first[number], counts[number] = group[0], len(group)
        inverse[group] = number
    total[0] = len(groups)


def _equal_rows(a: Array, b: Array) -> bool:
    return bool(np.all((a == b) | ((a != a) & (b != b))))


# ---------------------------------------------------------------------------------------------------- scattered writes


def _scatter_parts(numbers: Numbers) -> tuple[Any, ...]:
    """Data; linear indices, and `width` updates for each; the result."""
    size, count, width = numbers
    return size, count, count * width, size


def _scatter_work(numbers: Numbers) -> Any:
    size, count, width = numbers
    return size + count * width


def _scatter(combine: Callable[[Any, Any], Any] | None) -> Callable[..., None]:
    def compute(operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
        (data, places, updates), (out,), (size, count, width) = operands, results, numbers
        out[:] = data
        for i in range(count):
            start = int(places[i])
            if not 0 <= start <= size - width:
                raise OpweldError(f"an index is out of range: element {start} of {size}")
            new = updates[i * width : (i + 1) * width]
            out[start : start + width] = new if combine is None else combine(out[start : start + width], new)

    return compute


# -------------------------------------------------------------------------------------------------- data-dependent


def _nonzero_parts(numbers: Numbers) -> tuple[Any, ...]:
    """The conditions; the positions of true ones, then zeros, and their number."""
    return numbers[0], numbers[0], 1


def _nonzero(operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
    found = np.flatnonzero(operands[0])
    results[0][:] = 0
    results[0][: len(found)] = found
    results[1][0] = len(found)


def _suppress_parts(numbers: Numbers) -> tuple[Any, ...]:
    """Boxes, scores, the overlap threshold, the score threshold; (batch, class, box) of kept ones; their number."""
    batches, boxes, classes, most, _ = numbers
    return batches * boxes * 4, batches * classes * boxes, 1, 1, batches * classes * most * 3, 1


def _suppress_work(numbers: Numbers) -> Any:
    batches, boxes, classes, most, _ = numbers
    return batches * classes * (boxes * 80 + most * most * 10)


def _suppress(operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
    """Greedy non-maximum suppression, see `ops/suppression.py`."""
    batches, boxes, classes, most, centred = numbers
    place, scores, overlap, threshold = operands
    place, scores = place.reshape(batches, boxes, 4), scores.reshape(batches, classes, boxes)
    selected, count = results[0].reshape(-1, 3), 0
    for batch in range(batches):
        corners = _corners(place[batch], bool(centred))
        for kind in range(classes):
            own = scores[batch, kind]
            kept: list[int] = []
            for box in np.argsort(-own, kind="stable"):
                if len(kept) == most or not own[box] > threshold[0]:
                    break
                if all(not _overlaps(corners[box], corners[other], overlap[0]) for other in kept):
                    kept.append(int(box))
            for box in kept:
                selected[count] = batch, kind, box
                count += 1
    results[1][0] = count


def _corners(place: Array, centred: bool) -> Array:
    if centred:
        middle, half = place[:, [1, 0]], place[:, [3, 2]] / 2
        return np.concatenate([middle - half, middle + half], 1)
    low, high = np.minimum(place[:, :2], place[:, 2:]), np.maximum(place[:, :2], place[:, 2:])
    return np.concatenate([low, high], 1)


def _overlaps(a: Array, b: Array, most: Any) -> bool:
    shared = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0).prod()
    union = (a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - shared
    return bool(shared > most * union)


# --------------------------------------------------------------------------------------------------------------- trees

DEPTH = 10
"""An assumed number of nodes from a root to a leaf, for estimates of cost."""


def _trees_parts(numbers: Numbers) -> tuple[Any, ...]:
    """A row; for each node a feature, the outcomes that pass, the next entry if it passes, and if not; its threshold;
    roots; start and end of the pairs of each leaf; their targets and weights; the base value of each target; the
    sums."""
    features, nodes, roots, leaves, pairs, targets, _ = numbers
    return features, nodes * 4, nodes, roots, leaves + 1, pairs, pairs, targets, targets


def _trees_work(numbers: Numbers) -> Any:
    return numbers[2] * DEPTH * 4


def _trees(operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
    """The aggregate of the leaves, one in each tree, that a row reaches; see `ops/ml/forest.py`."""
    row, nodes, thresholds, roots, begins, targets, weights, base = operands
    (out,), combine = results, numbers[6]
    nodes, seen = nodes.reshape(-1, 4), np.zeros(len(out), bool)
    for root in roots:
        at = int(root)
        while at >= 0:
            feature, passing, on_true, on_false = (int(number) for number in nodes[at])
            value, threshold = row[feature], thresholds[at]
            outcome = (value < threshold) | (value == threshold) << 1 | (value > threshold) << 2 | (value != value) << 3
            at = on_true if passing & int(outcome) else on_false
        for pair in range(int(begins[~at]), int(begins[~at + 1])):
            target = int(targets[pair])
            out[target] = _COMBINE[combine](out[target], weights[pair]) if seen[target] else weights[pair]
            seen[target] = True
    if combine == MEAN:
        out /= max(1, len(roots))
    out += base


MEAN = 3
_COMBINE: tuple[Callable[[Any, Any], Any], ...] = (np.add, np.minimum, np.maximum, np.add)


# ------------------------------------------------------------------------------------------------------- probabilities

COUPLING_STEPS = 100
"""The most iterations of coupling probabilities."""


def _couple_parts(numbers: Numbers) -> tuple[Any, ...]:
    """The probability of the first class of each pair, within the pair; the probability of each class."""
    classes, pairs = numbers
    return pairs, classes


def _couple_work(numbers: Numbers) -> Any:
    """About ten iterations converge for a few classes."""
    return numbers[0] * numbers[0] * 40


def _couple(operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
    """The probabilities p of classes that fit those of pairs, r, best: they minimise the sum over all pairs of
    (r[j, i] p[i] - r[i, j] p[j])^2, by the second algorithm of Wu, Lin, Weng: "Probability Estimates for Multi-class
    Classification by Pairwise Coupling" (2004), which stops at 0.005 / classes."""
    (pairs,), (p,), (classes, _) = operands, results, numbers
    r = np.zeros((classes, classes), pairs.dtype)
    upper = np.triu_indices(classes, 1)
    r[upper] = pairs
    r.T[upper] = 1 - pairs
    q = -r.T * r
    np.fill_diagonal(q, (r * r).sum(0))
    p[:] = 1 / classes
    for _ in range(COUPLING_STEPS):
        slope = q @ p
        total = p @ slope
        if np.abs(slope - total).max() < 0.005 / classes:
            break
        for i in range(classes):
            change = (total - slope[i]) / q[i, i]
            p[i] += change
            total = (total + change * (change * q[i, i] + 2 * slope[i])) / (1 + change) ** 2
            slope = (slope + change * q[i]) / (1 + change)
            p /= 1 + change


# ------------------------------------------------------------------------------------------------------------- regions


def _align_parts(numbers: Numbers) -> tuple[Any, ...]:
    """Start and length of a region in rows and columns; its image; all images; the bins."""
    images, channels, height, width, rows, columns, _ = numbers
    return 4, 1, images * channels * height * width, channels * rows * columns


def _align_work(numbers: Numbers) -> Any:
    """About four samples of four pixels in each bin."""
    return numbers[1] * numbers[4] * numbers[5] * 40


def _align(operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
    """The mean, or the maximum, of the samples of each bin of a region: along each axis as many as a bin has pixels,
    rounded up. Each is interpolated from four pixels; samples more than a pixel outside count as zero."""
    (place, image, x), (out,), (images, channels, height, width, rows, columns, largest) = operands, results, numbers
    if not 0 <= image[0] < images:
        raise OpweldError(f"an index is out of range: image {image[0]} of {images}")
    pixels = x.reshape(images, channels, height, width)[image[0]]
    bins = out.reshape(channels, rows, columns)
    along_rows, count_rows = _samples(place[0], place[2], rows, height)
    along_columns, count_columns = _samples(place[1], place[3], columns, width)
    count = max(count_rows * count_columns, 1)
    for row, column in itertools.product(range(rows), range(columns)):
        total = np.zeros(channels, x.dtype)
        taken = 0
        for (y, v), (x_, u) in itertools.product(along_rows[row], along_columns[column]):
            terms = [
                pixels[:, at, to] * (a * b)
                for at, a in ((y, 1 - v), (min(y + 1, height - 1), v))
                for to, b in ((x_, 1 - u), (min(x_ + 1, width - 1), u))
            ]
            if not largest:
                total += sum(terms)
            else:
                most = np.maximum.reduce(terms)
                total = np.maximum(total, most) if taken else most
            taken += 1
        if largest:
            bins[:, row, column] = np.maximum(total, 0) if taken < count_rows * count_columns else total
        else:
            bins[:, row, column] = total / total.dtype.type(count)


def _samples(start: Any, extent: Any, bins: int, size: int) -> tuple[list[list[tuple[int, Any]]], int]:
    """For each bin (pixel before, distance from it) of the samples near the image; the number of all samples."""
    kind = start.dtype.type
    step = extent / kind(bins)
    count = max(int(np.ceil(step)), 0) if np.isfinite(step) else 0
    places: list[list[tuple[int, Any]]] = []
    for at in range(bins):
        found = [start + kind(at) * step + (kind(i) + kind(0.5)) * step / kind(count) for i in range(count)]
        inside = [min(max(place, kind(0)), kind(size - 1)) for place in found if -1 <= place <= size]
        places.append([(int(place), place - kind(int(place))) for place in inside])
    return places, count


# ----------------------------------------------------------------------------------------------------------- assertions


def _asserted_parts(numbers: Numbers) -> tuple[Any, ...]:
    """What is there; the condition; the same."""
    return numbers[0], 1, numbers[0]


def _asserted(operands: Sequence[Array], results: Sequence[Array], numbers: Numbers) -> None:
    """What is there where the condition holds."""
    (data, holds), (out,) = operands, results
    if not holds[0]:
        raise OpweldError("what the model asserts of its data does not hold")
    out[:] = data


EXTERNS: dict[str, Function] = {
    **PAGED,
    **EXPERTS,
    **ROUNDED,
    "order": Function(_order_parts, _order_work, _order),
    "unique": Function(_unique_parts, _unique_work, _unique, lambda numbers: ((DType.I64, numbers[0]),)),
    "scatter": Function(_scatter_parts, _scatter_work, _scatter(None), in_place=True),
    "scatter_add": Function(_scatter_parts, _scatter_work, _scatter(np.add), in_place=True),
    "scatter_mul": Function(_scatter_parts, _scatter_work, _scatter(np.multiply), in_place=True),
    "scatter_min": Function(_scatter_parts, _scatter_work, _scatter(np.minimum), in_place=True),
    "scatter_max": Function(_scatter_parts, _scatter_work, _scatter(np.maximum), in_place=True),
    "trees": Function(_trees_parts, _trees_work, _trees, lambda numbers: ((DType.U8, numbers[5]),), tables=7),
    "couple": Function(
        _couple_parts, _couple_work, _couple, lambda numbers: ((DType.F32, numbers[0] * (numbers[0] + 1)),)
    ),
    "asserted": Function(_asserted_parts, lambda numbers: numbers[0], _asserted, in_place=True),
    "align": Function(_align_parts, _align_work, _align, tables=1),
    "nonzero": Function(_nonzero_parts, lambda numbers: numbers[0] * 2, _nonzero),
    "suppress": Function(_suppress_parts, _suppress_work, _suppress, lambda numbers: ((DType.I64, numbers[1]),)),
}
"""Every function by name; `ops.registry.kernel` adds those of other packages."""

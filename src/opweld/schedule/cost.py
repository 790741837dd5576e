"""What a way of computing something is predicted to take: seconds on one core, by cause.

The figures of a core are few: two vector multiply-adds and two vector loads a cycle, one store; a multiply-add takes
four cycles until its result can be used; each level of memory delivers so many bytes a cycle. They hold within some
tens of percent for the processors that opweld knows; what matters is that alternatives come in the right order, and
`python -m benchmarks.cost` prints where they do not.
"""

from __future__ import annotations

from dataclasses import dataclass

from opweld.target import Target

HERTZ = 3.5e9
"""Of the core that the figures are given for."""
PRODUCTS = 2
"""Vector multiply-adds that start in a cycle."""
LATENCY = 4
"""Cycles until the result of a multiply-add can be added to again."""
LOADS = 2
"""Loads in a cycle."""
LAUNCH = 0.3e-6
"""Seconds that a kernel costs beside its work: a barrier, its call, its first cache misses."""
ITERATION = 12
"""Cycles that a grid iteration costs beside its work."""
DEAR = 10
"""Cycles of a vector function such as exp, or of a vector division."""
L2_BYTES = 40
L3_BYTES = 16
DRAM_BYTES = 8
"""Bytes a cycle and core that each level delivers."""


@dataclass(frozen=True)
class Cost:
    """Predicted seconds on one core.

    Attributes:
        arithmetic: at the rate of the multipliers. dependency: waiting for earlier results.
        traffic: moving bytes. launch: starting and synchronising.
    """

    arithmetic: float = 0.0
    dependency: float = 0.0
    traffic: float = 0.0
    launch: float = 0.0

    @property
    def seconds(self) -> float:
        """Arithmetic and traffic overlap, waiting does not."""
        return max(self.arithmetic, self.traffic) + self.dependency + self.launch


def traffic(moved: float, target: Target) -> float:
    """Seconds to move bytes once that live in the smallest level of memory which holds them all."""
    rate = L2_BYTES if moved <= target.l2_bytes else L3_BYTES if moved <= target.l3_bytes else DRAM_BYTES
    return moved / rate / HERTZ


@dataclass(frozen=True)
class Product:
    """A contraction as the register tile sees it: how many lanes, rows and reduced elements there are, and how many
    times all of that is repeated. `lanes` is the length of a vector."""

    lane: int
    row: int
    reduced: int
    repeats: int
    lanes: int


def tile_cycles(product: Product, vectors: int, height: int) -> tuple[float, float]:
    """(cycles of arithmetic, cycles of waiting) of a contraction by tiles of `height` rows of `vectors` vectors.

    A tile of few accumulators waits for each of them; a tail of rows or lanes costs what its tile would."""
    whole, rest = divmod(max(1, product.row), height)
    columns, tail = divmod(-(-max(1, product.lane) // product.lanes), vectors)
    arithmetic = waiting = 0.0
    for rows, tiles in ((height, whole), (rest, 1 if rest else 0)):
        for wide, count in ((vectors, columns), (tail, 1 if tail else 0)):
            if not tiles or not count:
                continue
            registers = rows * wide
            busy = max(registers / PRODUCTS, (rows + wide) / LOADS)
            step = max(busy, LATENCY)
            amount = tiles * count * product.repeats
            arithmetic += amount * (busy * product.reduced + ITERATION + registers)
            waiting += amount * (step - busy) * product.reduced
    return arithmetic, waiting


def contraction(product: Product, vectors: int, height: int) -> Cost:
    """Seconds of a contraction whose operands are where its lanes want them."""
    arithmetic, waiting = tile_cycles(product, vectors, height)
    return Cost(arithmetic / HERTZ, waiting / HERTZ)


def best_height(product: Product, vectors: int, target: Target) -> int:
    """Rows of the register tile: as many as registers hold beside one row of lanes and one broadcast, or fewer where
    that leaves a better tail."""
    heights = range(most_rows(vectors, target), 0, -1)
    return min(heights, key=lambda height: contraction(product, vectors, height).seconds)


def most_rows(vectors: int, target: Target) -> int:
    """The highest register tile that does not spill."""
    room = max(1, (target.vector_registers - vectors - 1) // vectors)
    return min(room, 14 if vectors == 2 else 16)


def padded(extent: int, lanes: int) -> int:
    """The elements that vectors along an axis compute, whether they exist or not."""
    return -(-extent // lanes) * lanes

"""What a way of computing something is predicted to take: seconds on one core, by cause.

Here are the figures of a core and the closed forms by which schedules are chosen; `tile.predict` holds a finished tile
program against the same figures. They hold within some tens of percent for the processors that opweld knows; what
matters is that alternatives come in the right order, and `python -m benchmarks.cost` prints where they do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from opweld.target import Target
from opweld.tensor.dim import ONE, ZERO, Dim
from opweld.tensor.dtype import DType


@dataclass(frozen=True)
class Core:
    """What a core does in a cycle.

    Attributes:
        hertz: cycles a second.
        products: vector multiply-adds, or other plain operations, that start. loads, stores: of vectors.
        latency: cycles until a sum can be added to again.
        l2_bytes, l3_bytes, dram_bytes: bytes that each level of memory delivers to one core while others are idle.
        spare: registers that a tile leaves free beside accumulators and lanes: what elements of the other operand pass
            through. More than one where none is multiplied as it lies in memory, and many are on their way.
        broadcast: vectors in whose time an element is loaded to all lanes: more than one where a multiply-add cannot
            do it. A tile of 13 rows of one vector takes 1.4 times as long as one of 6 rows of two (measured).
        launch: seconds that a kernel costs beside its work: a barrier, its call, its first cache misses.
        foresees: whether it reads a stream at the speed of memory where code does not fetch ahead, and slower where it
            does.
        halves: whether products of half a vector at most take half the time of those of a whole one.
    """

    hertz: float
    products: float
    loads: float
    stores: float
    latency: float
    l2_bytes: float
    l3_bytes: float
    dram_bytes: float
    spare: int = 1
    broadcast: float = 1.0
    launch: float = 0.3e-6
    foresees: bool = False
    halves: bool = False


CORES = {
    # Measured on Zen 5 (284 GFLOP/s; 2 x 452/2, 190/2 and 38 GB/s).
    "x86-64-v4": Core(3.5e9, 2, 2, 1, 4, 40, 16, 8),
    # Measured on a Granite Rapids (237 GFLOP/s; 196, 30 and 16 GB/s): what is beyond L2 comes over a mesh.
    "x86-64-v4 intel": Core(3.5e9, 2, 2, 1, 4, 40, 10, 4),
    # Measured on Zen 4 (117 GFLOP/s; 113, 94 and 28 GB/s), whose units have half the width of its registers.
    # Of a product of 3 to 5 rows memory delivers 34 GB/s, 21 where weights are fetched ahead.
    "x86-64-v4 zen4": Core(3.6e9, 1, 1, 0.5, 4, 30, 16, 8, foresees=True, halves=True),
    # Haswell and later: two multiply-adds of half the width, the same caches.
    "x86-64-v3": Core(3.5e9, 2, 2, 1, 4, 32, 14, 8, spare=2, broadcast=1.3),
    # Neoverse N1: vectors of 16 bytes, two of everything.
    "aarch64": Core(3.0e9, 2, 2, 1, 4, 24, 12, 8, spare=7),
    # A whole card as one core: 108 and 132 multiprocessors start four warps of 32 lanes a cycle each; 1.5 and 3 TB/s
    # from memory, some three times as much from L2. A kernel of a CUDA graph begins 2 us after the one before it.
    "sm_80": Core(1.4e9, 432, 432, 216, 4, 3400, 3400, 1100, launch=2e-6),
    "sm_90": Core(1.7e9, 528, 528, 264, 4, 4100, 4100, 1750, launch=2e-6),
}

ITERATION = 12
"""Cycles that a grid iteration costs beside its work: its indices are divided out of one number."""
TRIP = 1.5
"""Cycles that a trip of a loop costs beside its body: a counter, pointers, a branch."""
GATHER, SCATTER = 1.0, 1.5
"""Cycles to load, to store one element of a vector on its own."""
NEAR = {-1: 1, 2: 2, 3: 3, 4: 4}
"""The loads of a vector whose elements are so far apart: all from the first to the last, which shuffles select from."""
COPY = 2.0
"""Cycles to copy an element to where lanes want it."""
CONVERT = 0.5
"""Cycles to convert a vector to another type, beside loads and products."""
COLLAPSE = 30
"""Cycles to reduce a vector to one element: four shuffles, each followed by a sum."""
GUARD = 1.0
"""Plain operations that a test whether an element exists costs a vector."""
LINE = 64
"""Bytes of a cache line: what is fetched at least."""
SPAN = 4096
"""Bytes after which addresses map to the same set of the first-level cache: the size of one of its ways."""
STREAMS = 32
"""Walks through memory that a core foresees at the same time."""
MISS = 60
"""Cycles until a line comes from beyond the second-level cache that nothing foresaw."""
REFETCH = 14
"""Cycles until a line comes from the second-level cache that nothing foresaw."""
EXPENSIVE = 10
"""Cycles of a vector function such as exp, or of a vector division."""
FUNCTIONS = {
    "div": 8, "reciprocal": 8, "sqrt": 10, "rsqrt": 16, "exp": 10, "log": 14, "log1p": 16, "sigmoid": 18, "tanh": 18,
    "erf": 18, "softplus": 30, "pow": 40,
}  # fmt: skip
"""Cycles of a vector function of float32, as opweld_math.h computes them; what is not here costs `UNKNOWN`."""
UNKNOWN = 40
POINTS = 16
"""Products that Winograd's algorithm makes for a tile of 2 x 2 results and 3 x 3 taps."""
TRANSFORM = 28
"""Cycles to transform a vector of channels of a tile: 16 loads or stores, some 30 additions."""
DIVISION = 6
"""Cycles to divide one integer: no processor divides vectors of them."""
BESIDE = 0.6
"""A loop body takes at least this share of (cycles of its busiest unit + latency of its sums). Where the two are about
equal, neither hides the other fully: with two multiply-add units, tiles of 8 accumulators take 18% longer than tiles of
12 (measured)."""


def lookup_cycles(target: Target) -> int:
    """Cycles to look up a vector of bytes in a table of 256: a few permutations with AVX512-VBMI, else one by one. A
    GPU computes as fast as it looks up."""
    if target.kind == "gpu":
        return 1 << 30
    return 5 if "avx512vbmi" in target.features else 2 * target.vector_lanes_f32


def load_cycles(stride: Dim | None, lanes: int) -> float:
    """Cycles to load a vector whose elements are so far apart; None: each wherever its own index says."""
    if stride is ZERO or stride is ONE:
        return 0.5
    near = _near(stride)
    return GATHER * lanes if near is None else 0.5 * near + max(1, near - 1)


def square_cycles(lanes: int) -> float:
    """Cycles to load a vector of a square of elements that is transposed: each takes part in as many shuffles as it
    takes to double 1 up to the lanes."""
    return 0.5 + math.log2(lanes)


def copy_cycles(stride: Dim | None, lanes: int) -> float:
    """Cycles to copy an element to where lanes want it, of elements so far apart."""
    loading = load_cycles(stride, lanes)
    return COPY if loading >= GATHER * lanes else (loading + 1 + TRIP) / lanes


def store_cycles(stride: Dim | None, lanes: int, dtype: DType) -> float:
    """Cycles to store a vector whose elements are so far apart. Of elements of 4 bytes that are a few apart, registers
    of 64 bytes are stored under masks."""
    if stride is ONE:
        return 1.0
    near = _near(stride)
    return SCATTER * lanes if near in (None, 1) or lanes < 16 or dtype.bytes != 4 else 2.0 * near


def _near(stride: Dim | None) -> int | None:
    """How many loads hold a vector whose elements are so far apart; None: it has to be gathered."""
    return None if stride is None or stride.constant is None else NEAR.get(stride.constant)


def core_of(target: Target) -> Core:
    """The figures of the target's core: those of its own kind, where they are known."""
    return CORES.get(f"{target.name} {target.core}", CORES[target.name])


@dataclass(frozen=True)
class Cost:
    """Predicted seconds on one core.

    Attributes:
        arithmetic: units of the core are busy. dependency: waiting for earlier results.
        traffic: moving bytes. launch: starting and synchronising.
    """

    arithmetic: float = 0.0
    dependency: float = 0.0
    traffic: float = 0.0
    launch: float = 0.0

    @property
    def seconds(self) -> float:
        """Arithmetic and traffic overlap, waiting does not."""
        return self.running + self.launch

    @property
    def running(self) -> float:
        """The time between its begin and its end."""
        return max(self.arithmetic, self.traffic) + self.dependency


def repetition(busy: float, chain: float) -> float:
    """Cycles of a repetition whose units are busy for some of them, and whose loop-carried sums take `chain`."""
    return max(busy, chain, BESIDE * (busy + chain))


def level_rate(held: float, target: Target) -> float:
    """Bytes a second that the smallest level of memory delivers which holds so many bytes."""
    core = core_of(target)
    if held <= target.l2_bytes:
        return core.l2_bytes * core.hertz
    return (core.l3_bytes if held <= target.l3_bytes else core.dram_bytes) * core.hertz


def places(apart: int) -> int:
    """How many places of a way of the first-level cache rows that are so many bytes apart come to lie in by turns."""
    return SPAN // math.gcd(apart, SPAN)


def traffic(moved: float, target: Target) -> float:
    """Seconds to move bytes once that live in the smallest level of memory which holds them all."""
    return moved / level_rate(moved, target)


def misses(streams: int, held: float, target: Target) -> float:
    """Seconds of waiting for an operand of so many bytes that is read once, in so many streams side by side."""
    if streams <= STREAMS or held <= target.l2_bytes:
        return 0.0
    return MISS * held / LINE / core_of(target).hertz


@dataclass(frozen=True)
class Product:
    """A contraction as the register tile sees it: how many lanes, rows and reduced elements there are, how many times
    all of that is repeated, and the dtype of its sums.

    `pieces`: rows that do not fill a tile are computed 4, 2 and 1 at a time, as those of a symbolic number are.
    `dot`: the operator on words by which products are summed, where one does: the reduced elements are words then."""

    lane: int
    row: int
    reduced: int
    repeats: int
    dtype: DType
    target: Target
    pieces: bool = False
    dot: str = ""


def dot_products(dot: str, target: Target) -> float:
    """Multiply-adds in whose time a vector of dot products of words by this operator is computed and added.

    Of four bytes: one with VNNI; two vectors of 16 bits, two sums and what is left of widening without, of bytes whose
    pairs fit two products and a sum; shifts and products of each byte elsewhere. Of two integers of 16 bits: one with
    VNNI, else a product and a sum, on AVX2 on three units where multiply-adds have two. Of two bfloat16: one with
    AVX512-BF16, of AMD's at least; two, and what is left of widening elsewhere. AVX2 was measured on a Zen 3."""
    if not dot:
        return 1.0
    if target.kind == "gpu":  # tensor cores: 16 times the rate of float32, of bytes 32 times
        return 0.125
    if dot == "dot2":
        if "avx512bf16" in target.features:
            return 4.0 if target.core == "intel" else 1.0
        return 3.0
    if target.architecture != "x86_64":
        return 6.5 if dot == "dot2i" else 12.0
    wide = target.vector_bytes == 64
    if ("avx512vnni" if wide else "avxvnni") in target.features:
        return 1.0
    if dot == "dot2i":
        return 2.0 if wide else 1.2
    if wide:  # three instructions on two units, not measured
        return 1.5 if dot == "dot4s" else 2.0
    return 1.8 if dot == "dot4s" else 2.8


MATRIX_ROWS = 16
"""Rows of a register of a matrix unit (AMX), lanes of an accumulator, and steps of a sum that an instruction takes."""

MATRIX_STEP = 4
"""What rows of a tile are a multiple of: its epilogue takes so many at a time, and shares what it loads along lanes."""

_MATRIX_FEATURES = {"dot4": "amx-int8", "dot2": "amx-bf16"}


def has_matrix_unit(dot: str, target: Target) -> bool:
    """Whether the target's matrix unit computes dot products of words by this operator."""
    return {"amx-tile", _MATRIX_FEATURES.get(dot, "")} <= set(target.features)


def most_matrix_rows(vectors: int) -> int:
    """The rows of the highest tile of so many vectors in the eight registers of a matrix unit: accumulators, a register
    for each 16 rows of the one operand, and one at least for the lanes of the other."""
    return MATRIX_ROWS * {1: 3, 2: 2}.get(vectors, 1)


def steps_at_once(extent: int, height: int, vectors: int, target: Target) -> int:
    """Steps of a sum that an instruction of the matrix unit takes: so many that these, and the steps that are left
    over for the vector unit, take the least time."""
    whole = height * vectors  # cycles of the instructions of a tile: one for each of its rows
    rest = height * vectors / core_of(target).products
    sizes = range(min(extent, MATRIX_ROWS), 0, -1)
    return min(sizes, key=lambda size: extent // size * whole + extent % size * rest)


def _ends_half(lanes: int, target: Target) -> bool:
    """Whether at most half of the last vector's lanes exist."""
    whole = target.vector_lanes_f32
    return 0 < lanes % whole <= whole // 2


def spared_of(lanes: int, target: Target) -> float:
    """The share of a vector's multiply-add that is saved where at most half of the last vector exists: 0.5 or 0."""
    return 0.5 if core_of(target).halves and _ends_half(lanes, target) else 0.0


def tile_cycles(product: Product, vectors: int, height: int) -> tuple[float, float]:
    """(cycles of arithmetic, cycles of waiting) of a contraction by tiles of `height` rows of `vectors` vectors.

    A tile of few accumulators waits for each of them; a tail of rows or lanes costs what its tile or pieces would."""
    core = core_of(product.target)
    each = product.target.registers_each(product.dtype)
    step_units = dot_products(product.dot, product.target)
    whole, rest = divmod(max(1, product.row), height)
    columns, tail = divmod(-(-max(1, product.lane) // product.target.vector_lanes_f32), vectors)
    spared = spared_of(product.lane, product.target)
    widths = [(vectors, columns, 0.0), (tail, 1 if tail else 0, spared)]
    if spared and not tail:
        widths = [(vectors, columns - 1, 0.0), (vectors, 1, spared)]
    tails = ((4, rest // 4), (2, rest // 2 % 2), (1, rest % 2)) if product.pieces else ((rest, 1 if rest else 0),)
    arithmetic = waiting = 0.0
    for rows, tiles in ((height, whole), *tails):
        for wide, count, less in widths:
            if not tiles or not count:
                continue
            registers = rows * wide * each
            multiplied = registers - rows * less * each
            busy = max(multiplied * step_units / core.products, (core.broadcast * rows + wide * each) / core.loads)
            step = repetition(busy, core.latency)
            amount = tiles * count * product.repeats
            arithmetic += amount * (busy * product.reduced + ITERATION + registers)
            waiting += amount * (step - busy) * product.reduced
    return arithmetic, waiting


LEAST_ROWS = 10
"""Cycles that an instruction of the matrix unit takes at least; with more rows, a cycle a row (measured)."""
TILE_CONFIG = 200
"""Cycles to configure the tile registers of a matrix unit for another number of rows, which empties them (measured)."""


def instruction_cycles(rows: int) -> int:
    """Cycles of instructions of the matrix unit that multiply so many rows by 16 lanes."""
    whole, rest = divmod(rows, MATRIX_ROWS)
    return whole * MATRIX_ROWS + (max(LEAST_ROWS, rest) if rest else 0)


def matrix_contraction(product: Product, vectors: int, height: int) -> float:
    """Seconds of a contraction in a matrix unit: of instructions, and of sums that are stored and loaded again."""
    steps = -(-product.reduced // MATRIX_ROWS)
    columns = -(-product.lane // (vectors * MATRIX_ROWS)) * product.repeats
    whole, rest = divmod(product.row, height)
    instructions = (whole * instruction_cycles(height) + instruction_cycles(rest)) * vectors
    stored = product.row * vectors * (1 / core_of(product.target).stores + 1 / core_of(product.target).loads)
    started = (whole + (rest > 0)) * ITERATION + (2 * TILE_CONFIG if rest else 0)
    return columns * (instructions * steps + stored + started) / core_of(product.target).hertz


PRICED = 1 << 14
"""How many prices are remembered: layers are alike, and each asks for dozens."""


@lru_cache(PRICED)
def contraction(product: Product, vectors: int, height: int) -> Cost:
    """Seconds of a contraction whose operands are where its lanes want them."""
    arithmetic, waiting = tile_cycles(product, vectors, height)
    hertz = core_of(product.target).hertz
    return Cost(arithmetic / hertz, waiting / hertz)


@lru_cache(PRICED)
def best_height(product: Product, vectors: int) -> int:
    """Rows of the register tile: as many as registers hold beside one row of lanes and one broadcast, or fewer where
    that leaves a better tail."""
    heights = range(most_rows(vectors, product.dtype, product.target), 0, -1)
    return min(heights, key=lambda height: contraction(product, vectors, height).seconds)


VECTORS = 2
"""Of the register tile that prices are made for before one is chosen."""


def fetched_product(product: Product, weights: int, held: int) -> float:
    """Seconds of a product, or of fetching so many bytes of weights from the memory that holds so many: whichever takes
    longer, as they overlap."""
    arithmetic = contraction(product, VECTORS, best_height(product, VECTORS)).seconds
    if has_matrix_unit(product.dot, product.target):
        arithmetic = min(arithmetic, matrix_contraction(product, VECTORS, most_matrix_rows(VECTORS)))
    return max(arithmetic, weights / level_rate(held, product.target))


def most_rows(vectors: int, dtype: DType, target: Target) -> int:
    """The highest register tile of sums of a dtype that does not spill."""
    room = max(1, (target.registers(dtype) - vectors - core_of(target).spare) // vectors)
    return min(room, 14 if vectors == 2 else 16)


def most_rows_of(lanes: int | None, vectors: int, dtype: DType, target: Target) -> int:
    """The same where so many lanes exist in all, if that is known. Compilers take four registers more where some are
    multiplied in registers of half the length (`Accumulators`), beside others in whole ones."""
    whole = target.vector_lanes_f32
    rest = 0 if lanes is None or target.vector_bytes < 64 else lanes % (vectors * whole)
    mixed = rest > whole and _ends_half(rest, target)
    return max(1, most_rows(vectors, dtype, target) - 2 * mixed)


ROOM = 0.25
"""The part of the second-level cache in which weights stay while all rows pass over them."""
KEPT = 0.6
"""The part of the second-level cache that holds what weights pass over, while these and results pass through."""
FORESEEN = 3
"""How many times faster rows arrive from beyond the second-level cache during computation than by themselves: hardware
prefetches what is read front to back, and part of it is still in the cache."""


def passes(operand: float, panel: float, columns: int, blocks: int, target: Target) -> float:
    """Seconds of waiting for what a contraction reads again: weights pass panel by panel, `columns` in all, over an
    operand of so many bytes, all of it or one of `blocks` parts after the other.

    What the second-level cache does not hold of a part beside two panels comes anew for each but the first. Panels
    come once for all cores that have a part of their own meanwhile."""
    core = core_of(target)
    held = operand / blocks + 2 * panel
    missed = max(0.0, 1 - KEPT * target.l2_bytes / held)
    again = (columns - 1) * operand * missed / level_rate(max(operand, target.l2_bytes + 1), target) / FORESEEN
    return again + max(1.0, blocks / target.cores) * columns * panel / core.dram_bytes / core.hertz


@dataclass(frozen=True)
class Tiled:
    """A convolution of 3 x 3 as Winograd's algorithm sees it.

    Attributes:
        channels: that go in. lane: channels that come out. tiles: of 2 x 2 results in a picture. pictures: how many.
        pieces: whether tiles that do not fill a register tile are computed 4, 2 and 1 at a time, as in `Product`.
        vectors: of a register tile.
        weights: bytes of all weights of the model, which passed through the caches since these were read last.
    """

    channels: int
    lane: int
    tiles: int
    pictures: int
    pieces: bool
    vectors: int
    dtype: DType
    target: Target
    weights: int

    def direct(self, height: int, width: int) -> float:
        """Seconds without transforms, of pictures of so many results."""
        repeats = self.pictures * height
        shape = Product(self.lane, width, 9 * self.channels, repeats, self.dtype, self.target, self.pieces)
        cost = contraction(shape, self.vectors, best_height(shape, self.vectors))
        read = 9 * self.dtype.bytes * self.channels * self.lane / level_rate(self.weights, self.target)
        return max(cost.arithmetic, read) + cost.dependency


def winograd(work: Tiled, count: int, groups: int = 1, height: int | None = None) -> Cost:
    """Seconds of a convolution by Winograd's algorithm, `count` tiles at a time, for each of so many groups of lanes.

    Each iteration transforms what it reads. Weights of a group come from afar once for each core that computes it, and
    then from the smallest cache that holds them. Cores without work count as if they had some."""
    target, core = work.target, core_of(work.target)
    lane, count = -(-work.lane // groups), min(count, work.tiles)
    blocks = -(-work.tiles // count) * work.pictures
    shape = Product(lane, count, work.channels, POINTS, work.dtype, target, work.pieces)
    products = contraction(shape, work.vectors, best_height(shape, work.vectors) if height is None else height)
    vectors = sum(-(-size // target.vector_lanes_f32) for size in (work.channels, lane))
    transforms = count * vectors * TRANSFORM / core.hertz
    each = POINTS * work.dtype.bytes
    held, weights = each * count * (work.channels + lane), each * work.channels * lane
    times = -(-blocks * groups // target.cores) * target.cores
    walks = max(groups, target.cores)
    moved = times * 2 * traffic(held, target)
    moved += walks * weights / level_rate(work.weights, target)
    moved += max(0, times - walks) * traffic(weights, target)
    return Cost(times * (products.arithmetic + transforms), times * products.dependency, moved)


def padded(extent: int, lanes: int) -> int:
    """The elements that vectors along an axis compute, whether they exist or not."""
    return -(-extent // lanes) * lanes

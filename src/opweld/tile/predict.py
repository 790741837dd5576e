"""Predicts the time of a tile program on one core from its statements and the figures of the core.

Statements without a loop between them are straight-line code. It takes as long as its busiest unit (multipliers, loads,
stores) is busy, or as its loop-carried dependencies: accumulators that each iteration adds to. Inside tiles a node is
computed once for every row and vector that it varies with, and a load once for every address. Traffic is in
`tile.traffic`.

    contiguous load or store   one vector, whatever its alignment
    another along the lanes    element by element
    functions                  cycles per vector, see `schedule.cost.FUNCTIONS`
    a tail                     what its rows and vectors cost; of a symbolic extent, smaller tiles one after the other;
                               a partial vector costs a whole one
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from opweld.schedule.cost import (
    COLLAPSE,
    DIVISION,
    FUNCTIONS,
    GUARD,
    ITERATION,
    LINE,
    SPAN,
    TILE_CONFIG,
    TRIP,
    UNKNOWN,
    Cost,
    core_of,
    dot_products,
    instruction_cycles,
    load_cycles,
    lookup_cycles,
    places,
    repetition,
    spared_of,
    square_cycles,
    store_cycles,
)
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.cost import Count
from opweld.tensor.dim import (
    ONE,
    ZERO,
    Atom,
    Axis,
    Dim,
    FloorDiv,
    Mod,
    TooLargeError,
    Value,
    as_dim,
    atoms_of,
    floordiv,
    maximum,
    symbols_of,
)
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Cast, Expr, Index, Load, Lookup, Select, Unary, dims_of, walk
from opweld.tensor.externs import EXTERNS
from opweld.tensor.operators import WORDS, is_expensive
from opweld.tensor.rounding import saturated
from opweld.tile.instances import possible_counts
from opweld.tile.matrix import is_matrix, matrix_tile
from opweld.tile.squares import is_square
from opweld.tile.tile import (
    Accumulate,
    Collapse,
    Declare,
    Invoke,
    Kernel,
    Let,
    Loop,
    Statement,
    Store,
    Tile,
    expressions_of,
)
from opweld.tile.traffic import Access, Traffic, Weights, traffic_of

ROW, LANE = 1, 2
"""What a value varies with, as bits: the rows of a tile, its lanes."""


@dataclass(frozen=True)
class Cycles:
    """Cycles of a part of a kernel: those in which a unit is busy, and those in which all wait for earlier results."""

    busy: float = 0.0
    waiting: float = 0.0

    def __add__(self, other: Cycles) -> Cycles:
        return Cycles(self.busy + other.busy, self.waiting + other.waiting)

    def times(self, count: float) -> Cycles:
        """The cycles of `count` repetitions."""
        return Cycles(self.busy * count, self.waiting * count)


@dataclass(frozen=True)
class Prediction:
    """The predicted time of a launch on one core at the expected sizes: seconds by cause, bytes by level of memory."""

    cost: Cost
    traffic: Traffic = field(default_factory=Traffic)


def predict(kernel: Kernel, target: Target, expected: Expected, weights: Weights | None = None) -> Prediction:
    """The prediction for a launch.

    `weights`: which buffers are constants of the model, and how many bytes all of them take; none where None."""
    core = core_of(target)
    count = expected(kernel.iterations)
    if not count:
        return Prediction(Cost(launch=core.launch))
    dtypes = {item.name: item.dtype for item in (*kernel.buffers, *kernel.scratch)}
    walker = _Walker(target, expected, dtypes)
    grid = tuple((axis, float(expected(axis.extent))) for axis in kernel.grid)
    cycles = walker.block(kernel.body, _Frame(loops=grid)).times(count)
    moved = traffic_of(walker.accesses, dtypes, len(grid), target, expected, weights or Weights())
    busy = cycles.busy + count * ITERATION
    return Prediction(Cost(busy / core.hertz, cycles.waiting / core.hertz, moved.seconds, core.launch), moved)


OPERATION = 0.02
"""Nanoseconds per operation, where there is none at the expected sizes from which a rate would follow."""
BYTE = 0.05
"""Nanoseconds per byte, likewise."""


def nanoseconds_of(cost: Cost, count: Count, moved: Dim, expected: Expected) -> Dim:
    """The prediction in nanoseconds as a polynomial of the sizes: the rates at the expected sizes, times operations and
    bytes (`moved`).

    Waiting grows as operations do. At the expected sizes it is the prediction, within a percent, without the launch:
    the runtime knows what its barriers cost."""
    operations = count.flops + count.integer + FUNCTIONS["exp"] * count.special
    if operations is ZERO:
        operations = moved
    busy = _proportional(operations, cost.arithmetic, expected, OPERATION)
    bytes_ = _proportional(moved, cost.traffic, expected, BYTE)
    waiting = _proportional(operations, cost.dependency, expected, 0.0)
    try:
        return maximum(busy, bytes_) + waiting
    except TooLargeError:
        # Sizes of many symbols, as run-time paddings give, are too long to choose between: at most twice too much.
        return busy + bytes_ + waiting


def _proportional(amount: Dim, seconds: float, expected: Expected, default_rate: float) -> Dim:
    """Nanoseconds in proportion to the amount: `seconds` at the expected sizes, or `default_rate` per unit where the
    amount is zero there."""
    if amount.constant is not None:
        return as_dim(round(seconds * 1e9))
    there = expected(amount)
    rate = seconds * 1e9 / there if there else default_rate
    # An integer quotient of three digits: products of large amounts must not overflow.
    divisor = 1
    while rate * divisor < 256 and divisor < 1 << 20:
        divisor *= 2
    try:
        return floordiv(amount * round(rate * divisor), divisor)
    except TooLargeError:
        # Sizes that a chain of strided layers divided, padded and divided again: what they cost where expected.
        return as_dim(round(seconds * 1e9))


@dataclass(frozen=True)
class _Frame:
    """What is around a statement: loops with their trip counts, outermost first, and tiles: `rows` indices of the axis
    `row`, `vectors` registers along `lane`; `spared` of these take no time where they are multiplied."""

    loops: tuple[tuple[Axis, float], ...] = ()
    row: Axis | None = None
    rows: int = 1
    lane: Axis | None = None
    vectors: int = 1
    spared: float = 0.0

    def multiplied(self, varies: int) -> float:
        """The registers of a product that varies with these, less what they are faster than whole ones."""
        spared = (self.rows if varies & ROW else 1) * self.spared if varies & LANE else 0.0
        return self.registers(varies) - spared

    def registers(self, varies: int) -> int:
        """The registers of a value that varies with these."""
        return (self.rows if varies & ROW else 1) * (self.vectors if varies & LANE else 1)

    def varies(self, dim: Dim) -> int:
        """What a polynomial varies with."""
        atoms = atoms_of(dim)
        return (ROW if self.row in atoms else 0) | (LANE if self.lane in atoms else 0)


class _Walker:
    def __init__(self, target: Target, expected: Expected, dtypes: Mapping[str, DType]) -> None:
        self.accesses: list[Access] = []
        self.dtypes = dtypes
        self.core = core_of(target)
        self.lanes = target.vector_lanes_f32
        self.registers_each = target.registers_each
        self.target = target
        self._expected = expected
        self.names: dict[str, int] = {}

    def block(self, body: Sequence[Statement], frame: _Frame) -> Cycles:
        """The cycles of statements, once."""
        total = Cycles()
        straight: list[Statement] = []
        for statement in body:
            if not isinstance(statement, Loop | Tile):
                straight.append(statement)
                continue
            total += self._straight_line(straight, frame)
            straight = []
            if isinstance(statement, Loop):
                total += self._loop(statement, frame)
            elif is_matrix(statement):
                total += self._matrix(statement, frame)
            else:
                total += self._tile(statement, frame)
        return total + self._straight_line(straight, frame)

    def _loop(self, loop: Loop, frame: _Frame) -> Cycles:
        trips = self._average(loop.end, frame) - self._average(loop.lower, frame)
        if trips <= 0:
            return Cycles()
        inner = self.block(loop.body, replace(frame, loops=(*frame.loops, (loop.axis, trips))))
        # Counting and branching go on beside the work of a body that is long enough.
        return inner.times(trips) + Cycles(TRIP * trips / loop.unroll)

    def _tile(self, tile: Tile, frame: _Frame) -> Cycles:
        """Full and partial tiles, each weighted with its share."""
        total = Cycles()
        for number, (size, share) in enumerate(self._sizes(tile)):
            # Accesses are those of a full tile.
            before = len(self.accesses)
            if tile.role == "row":
                inner = replace(frame, row=tile.axis, rows=size)
            else:
                vectors, spared = -(-size // self.lanes), spared_of(size, self.target)
                inner = replace(frame, lane=tile.axis, vectors=vectors, spared=spared)
            total += self.block(tile.body, inner).times(share)
            if number:
                del self.accesses[before:]
        return total

    def _matrix(self, tile: Tile, frame: _Frame) -> Cycles:
        """A tile whose accumulators are in a matrix unit: accesses as of any other tile, but other instructions."""
        self._tile(tile, frame)
        parts = matrix_tile(tile)
        steps = 1.0
        for loop in parts.loops:
            steps *= self._average(loop.end, frame) - self._average(loop.lower, frame)
        steps /= parts.steps
        across, total = parts.shape.across, Cycles()
        extent = parts.row.width if parts.row.limit is None else max(1, self._expected(parts.row.limit))
        whole, rest = divmod(extent, parts.row.width)
        for rows, count in ((parts.row.width, whole), (rest, 1 if rest else 0)):
            loads = (rows + across * parts.steps) / self.core.loads
            busy = steps * max(instruction_cycles(rows) * across, loads) + rows * across / self.core.stores
            # The tile registers are configured anew before and after a tile of fewer rows.
            total += Cycles(busy + (2 * TILE_CONFIG if rows == rest else 0)).times(count)
        return total.times(1 / (whole + (rest > 0)))

    def _sizes(self, tile: Tile) -> Iterator[tuple[int, float]]:
        """(indices, share) of the tiles along an axis: full ones, and the last one."""
        extent = tile.width if tile.limit is None else max(1, self._expected(tile.limit))
        whole, rest = divmod(extent, tile.width)
        count = whole + (rest > 0)
        if whole:
            yield tile.width, whole / count
        if not rest:
            return
        if tile.limit is None or not symbols_of(tile.limit) or possible_counts(tile.limit - tile.base, tile.width):
            yield rest, 1 / count
            return
        # Code for a symbolic rest has smaller tiles, one after the other.
        sizes = (4, 2, 1) if tile.role == "row" else (self.lanes,)
        for size in sizes:
            tiles, rest = divmod(rest, size)
            if tiles:
                yield size, tiles / count
        if rest:
            yield rest, 1 / count

    def _average(self, dim: Dim, frame: _Frame) -> float:
        """The mean of a size over the iterations of the loops around: its value in the middle of each, for all but the
        last iteration."""
        inside = [(axis, trips) for axis, trips in frame.loops if dim.depends_on(axis)]
        if not inside:
            return self._expected(dim)
        middle: dict[Atom, Dim] = {a: as_dim(max(0, self._expected(a.extent) - 1) // 2) for a, _ in inside}
        last: dict[Atom, Dim] = {axis: axis.extent - 1 for axis, _ in inside}
        count = 1.0
        for _, trips in inside:
            count *= max(1.0, trips)
        return ((count - 1) * self._expected(dim.substitute(middle)) + self._expected(dim.substitute(last))) / count

    # ---- straight-line code ----

    def _straight_line(self, statements: Sequence[Statement], frame: _Frame) -> Cycles:
        if not statements:
            return Cycles()
        usage = _Usage(self, frame)
        for statement in statements:
            usage.statement(statement)
        self.accesses += usage.accesses
        return usage.cycles()

    def combining(self, statement: Accumulate) -> float:
        """Plain operations that combine a register of an accumulator with one of values."""
        value = statement.value
        if isinstance(value, Binary) and value.op in WORDS:
            return dot_products(value.op, self.target)
        return 3 if statement.kind.startswith("arg") else 1

    def size(self, dim: Dim) -> int:
        """The expected value of a size or step."""
        return self._expected(dim)


class _Usage:
    """What straight-line code demands of each unit of the core: operations, loads and stores, in vectors."""

    def __init__(self, walker: _Walker, frame: _Frame) -> None:
        self.accesses: list[Access] = []
        self._walker = walker
        self._frame = frame
        self._varies: dict[Expr, int] = {}
        self._addresses: dict[object, set[int]] = {}
        self._weights: dict[object, float] = {}
        self._accumulations: Counter[str] = Counter()
        self._plain = self._slow = self._loads = self._stores = self._waiting = 0.0

    def cycles(self) -> Cycles:
        """The cycles of one execution."""
        core = self._walker.core
        shared = ((len(found), self._weights[key]) for key, found in self._addresses.items())
        loads = self._loads + sum(count * weight for count, weight in shared)
        busy = max(self._plain / core.products + self._slow, loads / core.loads, self._stores / core.stores)
        carried = max(self._accumulations.values(), default=0) * core.latency
        waiting = repetition(busy, carried) - busy if carried else 0.0
        return Cycles(busy, waiting + self._waiting)

    def statement(self, statement: Statement) -> None:
        """Adds what one statement needs."""
        names, frame = self._walker.names, self._frame
        contracted: Expr | None = None
        if isinstance(statement, Declare):
            self._square(statement)
        elif isinstance(statement, Accumulate):
            value = statement.value
            if statement.kind == "sum" and isinstance(value, Binary) and value.op in ("mul", *WORDS):
                contracted = value  # a multiply-add
        for root in expressions_of(statement):
            nodes = tuple(walk(root))
            clamps = {node.operands[0] for node in nodes if saturated(node) is not None}
            clamps |= {clamp.operands[0] for clamp in clamps}
            for node in nodes:
                if node not in self._varies:
                    self._varies[node] = self._node(node, node is contracted or node in clamps)
        if isinstance(statement, Declare):
            varies = (ROW if frame.row in statement.over else 0) | (LANE if _lane_of(statement.over, frame) else 0)
            names[statement.name] = varies
            self._plain += frame.registers(varies)
        elif isinstance(statement, Accumulate):
            wide = self._walker.registers_each(statement.value.dtype)
            varies = names.get(statement.name, 0) | self._varies[statement.value]
            registers = frame.registers(varies) if contracted is None else frame.multiplied(varies)
            self._plain += registers * wide * self._walker.combining(statement)
            self._accumulations[statement.name] += 1
        elif isinstance(statement, Collapse):
            self._waiting += COLLAPSE
        elif isinstance(statement, Let):
            names[statement.name] = self._varies[statement.value]
        elif isinstance(statement, Store):
            self._store(statement)
        elif isinstance(statement, Invoke):
            self._slow += self._walker.size(as_dim(EXTERNS[statement.function].work(statement.numbers)))

    def _store(self, statement: Store) -> None:
        frame = self._frame
        varies = frame.varies(statement.offset)
        registers = frame.registers(varies) * self._walker.registers_each(statement.value.dtype)
        self.accesses.append(self._access(statement.buffer, statement.offset))
        self._plain += GUARD * registers * len(statement.guards)
        if varies & LANE and frame.lane is not None and statement.offset.coefficient(frame.lane) is not ONE:
            stride = statement.offset.coefficient(frame.lane)
            self._slow += store_cycles(stride, self._walker.lanes, statement.value.dtype) * registers
        else:
            self._stores += registers

    def _access(self, buffer: str, offset: Dim) -> Access:
        frame = self._frame
        loops = frame.loops
        if frame.row is not None:
            loops = (*loops, (frame.row, float(frame.rows)))
        if frame.lane is not None:
            loops = (*loops, (frame.lane, float(frame.vectors * self._walker.lanes)))
        return Access(buffer, offset, loops)

    def _node(self, node: Expr, contracted: bool) -> int:
        """What a node varies with; adds what computing it needs. `contracted`: it is the product of a multiply-add."""
        frame = self._frame
        if isinstance(node, Load) and not node.indices:
            return self._walker.names.get(node.tensor, 0)
        varies = 0
        for operand in node.operands:
            varies |= self._varies.get(operand, 0)
        for dim in dims_of(node):
            varies |= frame.varies(dim)
        registers = frame.registers(varies) * self._walker.registers_each(node.dtype)
        if isinstance(node, Load):
            self._load(node, varies, registers)
        elif isinstance(node, Unary | Binary) and not contracted:
            lanes = self._walker.lanes if varies & LANE else 1
            if not is_expensive(node.op):
                self._plain += registers
            elif node.x.dtype.is_float:
                self._slow += FUNCTIONS.get(node.op, UNKNOWN) * registers
                # Uniform over rows and lanes: what follows waits for it.
                self._waiting += FUNCTIONS.get(node.op, UNKNOWN) if not varies else 0
            else:
                self._slow += DIVISION * lanes * registers
        elif isinstance(node, Lookup):
            self._slow += lookup_cycles(self._walker.target) * registers
        elif isinstance(node, Select | Cast) or (isinstance(node, Index) and varies & LANE):
            self._plain += registers
        return varies

    def _load(self, node: Load, varies: int, registers: int) -> None:
        frame, offset, lanes = self._frame, node.indices[0], self._walker.lanes
        # The offset counts words, each of several elements of the buffer.
        self.accesses.append(self._access(node.tensor, offset * (node.dtype.bytes // self._bytes(node))))
        self._plain += GUARD * registers * len(node.guards)
        if not varies & LANE or frame.lane is None or offset.coefficient(frame.lane) is ONE:
            self._share(node, varies, registers)
            return
        divided = sum(isinstance(a, FloorDiv | Mod) and frame.lane in atoms_of(a.dim) for a in atoms_of(offset))
        checked = any(isinstance(atom, Value) for atom in atoms_of(offset))
        loading = load_cycles(offset.coefficient(frame.lane), lanes)
        self._slow += (loading + (DIVISION * divided + checked) * lanes) * registers

    def _square(self, declared: Declare) -> None:
        """Counts what registers begin with that are loaded as squares, as many rows as a vector has lanes."""
        frame, load, lanes = self._frame, declared.initial, self._walker.lanes
        if frame.row is None or frame.lane is None or set(declared.over) != {frame.row, frame.lane}:
            return
        if frame.rows == lanes and is_square(load, frame.row, frame.lane):
            self.accesses.append(self._access(load.tensor, load.indices[0]))
            self._slow += square_cycles(lanes) * frame.registers(ROW | LANE)
            self._varies[load] = ROW | LANE

    def _evicted(self, node: Load, step: Dim) -> float:
        """Lines that rows, `step` elements apart, evict before the next iteration reads their next elements: of those
        that map to the same sets of the first-level cache beyond its ways, as many as are in the way of each other."""
        frame, each = self._frame, self._bytes(node)
        along = node.indices[0].coefficient(frame.loops[-1][0]) if frame.loops else None
        if along is None or abs(self._walker.size(along)) * each >= LINE:
            return 0.0  # the next element is in another line
        held = places(self._walker.size(step) * each) * (self._walker.target.l1_bytes // SPAN)
        beyond = max(0, frame.rows - held)
        return beyond * beyond / frame.rows  # measured: 13 of 8 ways cost 5 cycles, 12 2.4, 11 1

    def _bytes(self, node: Load) -> int:
        return self._walker.dtypes.get(node.tensor, node.dtype).bytes

    def _share(self, node: Load, varies: int, registers: int) -> None:
        """Counts the addresses: rows that read overlapping windows share their loads."""
        frame, offset = self._frame, node.indices[0]
        weight = 1.0 if varies & LANE or frame.lane is None else self._walker.core.broadcast
        step = None if frame.row is None or not varies & ROW else offset.coefficient(frame.row)
        if step is None or frame.row is None:
            self._loads += registers * weight
            return
        if not varies & LANE:
            self._waiting += self._evicted(node, step) * LINE / self._walker.core.l2_bytes
        start = offset.without(frame.row)
        constant = next((value for monomial, value in start.terms if not monomial), 0)
        stride = self._walker.size(step) or -self._walker.size(-step)
        each = registers // max(1, frame.rows)
        for part in range(each):
            key = (node.tensor, start - constant, node.guards, part)
            found = self._addresses.setdefault(key, set())
            self._weights[key] = weight
            found.update(constant + stride * row for row in range(frame.rows))


def _lane_of(over: Sequence[Axis], frame: _Frame) -> bool:
    return any(axis is not frame.row for axis in over)

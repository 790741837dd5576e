"""What a tile program is predicted to take on one core: its statements held against the figures of the core.

Statements that follow each other without a loop are one piece. A piece takes as long as its busiest unit (multipliers,
loads, stores) is busy, or waits for sums that go on from one repetition to the next. Inside tiles a node is computed
once for every row and vector that it depends on, and a load once for every address. Traffic is in `tile.traffic`.

    contiguous load or store   one vector, whatever its alignment
    another along the lanes    element by element
    functions                  so many cycles a vector, see `schedule.cost.FUNCTIONS`
    a tail                     what its rows and vectors cost, in pieces where there may be any number; a partial vector
                               costs a whole one
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from opweld.schedule.cost import (
    COLLAPSE,
    DIVISION,
    FUNCTIONS,
    GATHER,
    GUARD,
    ITERATION,
    LAUNCH,
    SCATTER,
    SHAPE,
    TRIP,
    UNKNOWN,
    Cost,
    core_of,
    dot_products,
    instruction_cycles,
    lookup_cycles,
    repetition,
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
from opweld.tile.instances import possible_counts
from opweld.tile.matrix import is_matrix, matrix_tile
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
"""What a value depends on, as bits: the rows of a tile, its lanes."""


@dataclass(frozen=True)
class Cycles:
    """Of a piece of a kernel: those in which a unit is busy, and those in which all wait for earlier results."""

    busy: float = 0.0
    waiting: float = 0.0

    def __add__(self, other: Cycles) -> Cycles:
        return Cycles(self.busy + other.busy, self.waiting + other.waiting)

    def times(self, count: float) -> Cycles:
        """Of so many repetitions."""
        return Cycles(self.busy * count, self.waiting * count)


@dataclass(frozen=True)
class Prediction:
    """What a launch takes on one core, for expected sizes: seconds by cause, and where its bytes come from."""

    cost: Cost
    traffic: Traffic = field(default_factory=Traffic)


def predict(kernel: Kernel, target: Target, expected: Expected, weights: Weights | None = None) -> Prediction:
    """The prediction for a launch.

    `weights`: which buffers are constants of the model, and how many bytes all of them take; none where None."""
    core = core_of(target)
    count = expected(kernel.iterations)
    if not count:
        return Prediction(Cost(launch=LAUNCH))
    dtypes = {item.name: item.dtype for item in (*kernel.buffers, *kernel.scratch)}
    walker = _Walker(target, expected, dtypes)
    grid = tuple((axis, float(expected(axis.extent))) for axis in kernel.grid)
    cycles = walker.block(kernel.body, _Frame(chain=grid)).times(count)
    moved = traffic_of(walker.accesses, dtypes, len(grid), target, expected, weights or Weights())
    busy = cycles.busy + count * ITERATION
    return Prediction(Cost(busy / core.hertz, cycles.waiting / core.hertz, moved.seconds, LAUNCH), moved)


OPERATION = 0.02
"""Nanoseconds of an operation where the expected sizes leave nothing to compute, and so say nothing about its rate."""
BYTE = 0.05
"""Nanoseconds of a byte there."""


def work_of(cost: Cost, count: Count, moved: Dim, expected: Expected) -> Dim:
    """The prediction as nanoseconds for any sizes: rates of the expected ones, times operations and bytes.

    What must wait grows as operations do. At the expected sizes it is the prediction, within a percent, but for the
    launch: the runtime knows itself what its barriers cost."""
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


def _proportional(amount: Dim, seconds: float, expected: Expected, usual: float) -> Dim:
    """A polynomial that is as many nanoseconds at the expected sizes, and in proportion to the amount at others; at the
    usual rate where nothing is there at the expected sizes."""
    if amount.constant is not None:
        return as_dim(round(seconds * 1e9))
    there = expected(amount)
    rate = seconds * 1e9 / there if there else usual
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
    """Where a statement stands: the loops around it with their trips, and the tiles."""

    chain: tuple[tuple[Axis, float], ...] = ()
    row: Axis | None = None
    rows: int = 1
    lane: Axis | None = None
    vectors: int = 1

    def copies(self, mask: int) -> int:
        """How many registers a value takes that depends on these."""
        return (self.rows if mask & ROW else 1) * (self.vectors if mask & LANE else 1)

    def mask(self, dim: Dim) -> int:
        """What a polynomial depends on."""
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
        piece: list[Statement] = []
        for statement in body:
            if not isinstance(statement, Loop | Tile):
                piece.append(statement)
                continue
            total += self._piece(piece, frame)
            piece = []
            if isinstance(statement, Loop):
                total += self._loop(statement, frame)
            elif is_matrix(statement):
                total += self._matrix(statement, frame)
            else:
                total += self._tile(statement, frame)
        return total + self._piece(piece, frame)

    def _loop(self, loop: Loop, frame: _Frame) -> Cycles:
        trips = self._average(loop.end, frame) - self._average(loop.lower, frame)
        if trips <= 0:
            return Cycles()
        inner = self.block(loop.body, replace(frame, chain=(*frame.chain, (loop.axis, trips))))
        # Counting and branching go on beside the work of a body that is long enough.
        return inner.times(trips) + Cycles(TRIP * trips / loop.unroll)

    def _tile(self, tile: Tile, frame: _Frame) -> Cycles:
        """All pieces that the tile is at some place, each as often as it occurs."""
        total = Cycles()
        for number, (size, share) in enumerate(self._sizes(tile)):
            # Accesses are those of a full tile.
            known = len(self.accesses)
            if tile.role == "row":
                inner = replace(frame, row=tile.axis, rows=size)
            else:
                inner = replace(frame, lane=tile.axis, vectors=-(-size // self.lanes))
            total += self.block(tile.body, inner).times(share)
            if number:
                del self.accesses[known:]
        return total

    def _matrix(self, tile: Tile, frame: _Frame) -> Cycles:
        """A tile whose sums a matrix unit holds: its accesses are those of any other, its instructions are not."""
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
            # Before and after a tile of fewer rows the registers get another shape.
            total += Cycles(busy + (2 * SHAPE if rows == rest else 0)).times(count)
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
        # Code for any number of them computes what is left in pieces.
        sizes = (4, 2, 1) if tile.role == "row" else (self.lanes,)
        for size in sizes:
            pieces, rest = divmod(rest, size)
            if pieces:
                yield size, pieces / count
        if rest:
            yield rest, 1 / count

    def _average(self, dim: Dim, frame: _Frame) -> float:
        """The mean of a size over the loops around: that of the middle trip in all but the last one."""
        inside = [(axis, trips) for axis, trips in frame.chain if dim.depends_on(axis)]
        if not inside:
            return self._expected(dim)
        middle: dict[Atom, Dim] = {a: as_dim(max(0, self._expected(a.extent) - 1) // 2) for a, _ in inside}
        last: dict[Atom, Dim] = {axis: axis.extent - 1 for axis, _ in inside}
        count = 1.0
        for _, trips in inside:
            count *= max(1.0, trips)
        return ((count - 1) * self._expected(dim.substitute(middle)) + self._expected(dim.substitute(last))) / count

    # ---- statements without a loop between them ----

    def _piece(self, statements: Sequence[Statement], frame: _Frame) -> Cycles:
        if not statements:
            return Cycles()
        use = _Use(self, frame)
        for statement in statements:
            use.statement(statement)
        self.accesses += use.accesses
        return use.cycles()

    def each(self, statement: Accumulate) -> float:
        """Plain operations that combine a register with a value."""
        value = statement.value
        if isinstance(value, Binary) and value.op in WORDS:
            return dot_products(value.op, self.target)
        return 3 if statement.kind.startswith("arg") else 1

    def size(self, dim: Dim) -> int:
        """The expected value of a size or step."""
        return self._expected(dim)


class _Use:
    """How much each unit of the core has to do for a piece."""

    def __init__(self, walker: _Walker, frame: _Frame) -> None:
        self.accesses: list[Access] = []
        self._walker = walker
        self._frame = frame
        self._masks: dict[Expr, int] = {}
        self._addresses: dict[object, set[int]] = {}
        self._weights: dict[object, float] = {}
        self._sums: Counter[str] = Counter()
        self._plain = self._slow = self._loads = self._stores = self._waiting = 0.0

    def cycles(self) -> Cycles:
        """Of the piece, once."""
        core = self._walker.core
        shared = ((len(found), self._weights[key]) for key, found in self._addresses.items())
        loads = self._loads + sum(count * weight for count, weight in shared)
        busy = max(self._plain / core.products + self._slow, loads / core.loads, self._stores / core.stores)
        chain = max(self._sums.values(), default=0) * core.latency
        waiting = repetition(busy, chain) - busy if chain else 0.0
        return Cycles(busy, waiting + self._waiting)

    def statement(self, statement: Statement) -> None:
        """Adds what one statement needs."""
        names, frame = self._walker.names, self._frame
        skip: Expr | None = None
        if isinstance(statement, Accumulate):
            value = statement.value
            if statement.kind == "sum" and isinstance(value, Binary) and value.op in ("mul", *WORDS):
                skip = value  # a multiply-add
        for root in expressions_of(statement):
            for node in walk(root):
                if node not in self._masks:
                    self._masks[node] = self._node(node, node is skip)
        if isinstance(statement, Declare):
            mask = (ROW if frame.row in statement.over else 0) | (LANE if _lane_of(statement.over, frame) else 0)
            names[statement.name] = mask
            self._plain += frame.copies(mask)
        elif isinstance(statement, Accumulate):
            wide = self._walker.registers_each(statement.value.dtype)
            mask = names.get(statement.name, 0) | self._masks[statement.value]
            self._plain += frame.copies(mask) * wide * self._walker.each(statement)
            self._sums[statement.name] += 1
        elif isinstance(statement, Collapse):
            self._waiting += COLLAPSE
        elif isinstance(statement, Let):
            names[statement.name] = self._masks[statement.value]
        elif isinstance(statement, Store):
            self._store(statement)
        elif isinstance(statement, Invoke):
            self._slow += self._walker.size(as_dim(EXTERNS[statement.function].work(statement.numbers)))

    def _store(self, statement: Store) -> None:
        frame = self._frame
        mask = frame.mask(statement.offset)
        copies = frame.copies(mask) * self._walker.registers_each(statement.value.dtype)
        self.accesses.append(self._access(statement.buffer, statement.offset))
        self._plain += GUARD * copies * len(statement.guards)
        if mask & LANE and frame.lane is not None and statement.offset.coefficient(frame.lane) is not ONE:
            self._slow += SCATTER * self._walker.lanes * copies
        else:
            self._stores += copies

    def _access(self, buffer: str, offset: Dim) -> Access:
        frame = self._frame
        chain = frame.chain
        if frame.row is not None:
            chain = (*chain, (frame.row, float(frame.rows)))
        if frame.lane is not None:
            chain = (*chain, (frame.lane, float(frame.vectors * self._walker.lanes)))
        return Access(buffer, offset, chain)

    def _node(self, node: Expr, free: bool) -> int:
        """What a node depends on; adds what computing it needs."""
        frame = self._frame
        if isinstance(node, Load) and not node.indices:
            return self._walker.names.get(node.tensor, 0)
        mask = 0
        for operand in node.operands:
            mask |= self._masks.get(operand, 0)
        for dim in dims_of(node):
            mask |= frame.mask(dim)
        copies = frame.copies(mask) * self._walker.registers_each(node.dtype)
        if isinstance(node, Load):
            self._load(node, mask, copies)
        elif isinstance(node, Unary | Binary) and not free:
            lanes = self._walker.lanes if mask & LANE else 1
            if not is_expensive(node.op):
                self._plain += copies
            elif node.x.dtype.is_float:
                self._slow += FUNCTIONS.get(node.op, UNKNOWN) * copies
                # One for all lanes: what follows waits for it.
                self._waiting += FUNCTIONS.get(node.op, UNKNOWN) if not mask else 0
            else:
                self._slow += DIVISION * lanes * copies
        elif isinstance(node, Lookup):
            self._slow += lookup_cycles(self._walker.target) * copies
        elif isinstance(node, Select | Cast) or (isinstance(node, Index) and mask & LANE):
            self._plain += copies
        return mask

    def _load(self, node: Load, mask: int, copies: int) -> None:
        frame, offset, lanes = self._frame, node.indices[0], self._walker.lanes
        # Words are so many bytes of memory.
        self.accesses.append(self._access(node.tensor, offset * (node.dtype.bytes // self._bytes(node))))
        self._plain += GUARD * copies * len(node.guards)
        if not mask & LANE or frame.lane is None or offset.coefficient(frame.lane) is ONE:
            self._share(node, mask, copies)
            return
        divided = sum(isinstance(a, FloorDiv | Mod) and frame.lane in atoms_of(a.dim) for a in atoms_of(offset))
        checked = any(isinstance(atom, Value) for atom in atoms_of(offset))
        self._slow += (GATHER + DIVISION * divided + checked) * lanes * copies

    def _bytes(self, node: Load) -> int:
        return self._walker.dtypes.get(node.tensor, node.dtype).bytes

    def _share(self, node: Load, mask: int, copies: int) -> None:
        """Counts the addresses: rows that read overlapping windows share their loads."""
        frame, offset = self._frame, node.indices[0]
        weight = 1.0 if mask & LANE or frame.lane is None else self._walker.core.broadcast
        step = None if frame.row is None or not mask & ROW else offset.coefficient(frame.row)
        if step is None or frame.row is None:
            self._loads += copies * weight
            return
        start = offset.without(frame.row)
        constant = next((value for monomial, value in start.terms if not monomial), 0)
        stride = self._walker.size(step) or -self._walker.size(-step)
        each = copies // max(1, frame.rows)
        for part in range(each):
            key = (node.tensor, start - constant, node.guards, part)
            found = self._addresses.setdefault(key, set())
            self._weights[key] = weight
            found.update(constant + stride * row for row in range(frame.rows))


def _lane_of(over: Sequence[Axis], frame: _Frame) -> bool:
    return any(axis is not frame.row for axis in over)

"""Accumulators in the registers of a matrix unit (AMX): what they can hold, and how the loops around them go.

    lane l: 32 at 0
      row r: 32 at 32*g below n
        acc matrix a i32<l, r> = 0
        loop k: 96 unroll 16
          sum a = dot4(x[... + k + stride*r]:i32, y[... + stride*k + l]:i32)
        store t[32*r + l] = a

Such a register holds up to 16 rows of 64 bytes: of one operand 16 rows of words that follow each other along the sum,
of the other 16 steps of the sum in 16 lanes, of the accumulator 16 rows of 16 lanes. The `unroll` steps of the
innermost loop are one instruction for each pair of them. There are eight registers, which the accumulators of a tile,
its rows of words and its lanes of words share. What comes from memory that way is neither changed nor guarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opweld.schedule.cost import MATRIX_ROWS, most_matrix_rows
from opweld.tensor.dim import ONE, Axis, Dim, Value, atoms_of
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Const, Expr, Load
from opweld.tensor.operators import WORDS
from opweld.tile.tile import Accumulate, Declare, Loop, Store, Tile

REGISTERS = 8


@dataclass(frozen=True)
class Shape:
    """The registers of a tile: `down` of 16 rows each, `across` of 16 lanes each."""

    down: int
    across: int

    def accumulator(self, row: int, lane: int) -> int:
        """The number of the register of a part of the accumulator."""
        return row * self.across + lane

    def rows(self, row: int) -> int:
        """The number of the register of the operand that has rows."""
        return self.down * self.across + row

    def lanes(self, lane: int) -> int:
        """The number of the register of the operand that has lanes: one for all where there is no more room."""
        first = self.down * self.across + self.down
        return first + (lane if first + self.across <= REGISTERS else 0)


@dataclass(frozen=True)
class Factors:
    """The operands of a sum of dot products of words in a matrix unit.

    Attributes:
        op: dot4 or dot2. rows: the operand that has rows, words that are neighbours along the sum. lanes: the other.
        stride: words from one row to the next. step: words of `lanes` from one step of the sum to the next.
        swapped: the operand that has lanes is the first one, whose bytes are unsigned.
    """

    op: str
    rows: Load
    lanes: Load
    stride: int
    step: int
    swapped: bool


def factors_of(value: Expr, row: Axis, lane: Axis, along: Axis) -> Factors | str:
    """The operands of a value that is summed over rows, lanes and `along`, the innermost axis of the sum; or why a
    matrix unit does not compute such sums."""
    if not isinstance(value, Binary) or value.op not in WORDS:
        return "it sums no dot products of words"
    x, y = value.x, value.y
    if not isinstance(x, Load) or not isinstance(y, Load):
        return "words are changed between memory and their product"
    swapped = x.indices[0].depends_on(lane)
    rows, lanes = (y, x) if swapped else (x, y)
    if rows.guards or lanes.guards:
        return "some words are outside of memory"
    if any(isinstance(atom, Value) for node in (rows, lanes) for atom in atoms_of(node.indices[0])):
        return "data tells where words are"
    place, other = rows.indices[0], lanes.indices[0]
    if place.depends_on(lane) or other.depends_on(row):
        return "an operand depends on rows and on lanes"
    stride, step = _constant(place, row), _constant(other, along)
    if other.coefficient(lane) is not ONE or not step:
        return f"words of {lanes.tensor} are no neighbours along the lanes"
    if place.coefficient(along) is not ONE or not stride:
        return f"words of {rows.tensor} are no neighbours along the sum, or rows no constant distance apart"
    return Factors(value.op, rows, lanes, stride, step, swapped)


def _constant(address: Dim, axis: Axis) -> int | None:
    """How far a step along the axis goes; None where that is no positive number."""
    step = address.coefficient(axis)
    constant = None if step is None else step.constant
    return constant if constant is not None and constant > 0 else None


@dataclass(frozen=True, eq=False)
class MatrixTile:
    """A tile program's piece whose accumulator is in a matrix unit."""

    lane: Tile
    row: Tile
    loops: tuple[Loop, ...]
    factors: Factors
    store: Store
    pitch: int
    """Elements from one row to the next where sums are stored."""

    @property
    def shape(self) -> Shape:
        """Its registers."""
        return Shape(-(-self.row.width // MATRIX_ROWS), self.lane.width // MATRIX_ROWS)

    @property
    def steps(self) -> int:
        """Steps of the sum that an instruction takes."""
        return self.loops[-1].unroll


def is_matrix(tile: Tile) -> bool:
    """Whether a tile of lanes is around the rows of an accumulator in a matrix unit."""
    inner = (s for row in tile.body if isinstance(row, Tile) for s in row.body)
    return tile.role == "lane" and any(isinstance(s, Declare) and s.unit == "matrix" for s in inner)


def matrix_tile(tile: Tile) -> MatrixTile:
    """The parts of a tile that `is_matrix`. Raises ValueError, which says what a matrix unit cannot do of it."""
    row = tile.body[0] if len(tile.body) == 1 else None
    if tile.role != "lane" or tile.limit is not None or not isinstance(row, Tile) or row.role != "row":
        raise ValueError("is in no tile of rows in a full tile of lanes")
    if len(row.body) != 3:
        raise ValueError("is not one sum that is stored")
    declare, body, store = row.body
    loops: list[Loop] = []
    while isinstance(body, Loop):
        loops.append(body)
        body = body.body[0] if len(body.body) == 1 else None
    if not (isinstance(declare, Declare) and isinstance(body, Accumulate) and isinstance(store, Store) and loops):
        raise ValueError("is not one sum that is stored")
    _check_sum(declare, body, store, loops[-1])
    _check_shape(tile, row, loops)
    factors = factors_of(body.value, row.axis, tile.axis, loops[-1].axis)
    if isinstance(factors, str):
        raise ValueError(factors)
    pitch = _constant(store.offset, row.axis)
    if pitch is None or store.offset.coefficient(tile.axis) is not ONE:
        raise ValueError("is stored in no rows of lanes")
    return MatrixTile(tile, row, tuple(loops), factors, store, pitch)


def _check_sum(declare: Declare, body: Accumulate, store: Store, inner: Loop) -> None:
    zero = isinstance(declare.initial, Const) and declare.initial.value == 0
    stored = isinstance(store.value, Load) and store.value.tensor == declare.name and not store.guards
    if not zero or body.kind != "sum" or body.name != declare.name or not stored:
        raise ValueError("is no sum from zero that is stored as it is")
    if declare.dtype not in (DType.I32, DType.F32) or inner.axis.extent.constant is None:
        raise ValueError("is no sum of 32 bits over a known number of words")


def _check_shape(tile: Tile, row: Tile, loops: Sequence[Loop]) -> None:
    most, inner = most_matrix_rows(tile.width // MATRIX_ROWS), loops[-1]
    if tile.width % MATRIX_ROWS or row.width > most:
        raise ValueError(f"has {row.width} rows of {tile.width} lanes, expected up to {most}")
    down, across = -(-row.width // MATRIX_ROWS), tile.width // MATRIX_ROWS
    if down * across + down + 1 > REGISTERS:
        raise ValueError(f"has {down} x {across} accumulators, for which there are too few registers")
    trips = (inner.end - inner.lower).constant
    if not 1 <= inner.unroll <= MATRIX_ROWS or trips is None or trips % inner.unroll:
        most = f"up to {MATRIX_ROWS} that divide them"
        raise ValueError(f"takes {inner.unroll} steps of {inner.end} at once, expected {most}")

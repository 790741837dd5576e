"""A dataset as parts that are the same rows in every job, whatever blocks Ray cuts it into."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from opweld.ray.columns import Batch
from opweld.ray.packages import BlockAccessor

if TYPE_CHECKING:
    from ray.data import Dataset


@dataclass(frozen=True)
class Piece:
    """Rows `start` to `stop` of a block, which is a reference."""

    block: Any
    start: int
    stop: int


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a dataset, counted from its first."""

    number: int
    pieces: tuple[Piece, ...]

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(piece.stop - piece.start for piece in self.pieces)


@dataclass(frozen=True)
class Sized:
    """A block in the object store: its rows, and the bytes of the block that they are of."""

    piece: Piece
    bytes: int


def blocks_of(dataset: Dataset) -> Generator[Sized]:
    """The blocks of a dataset in its order, as they are made. Nothing is read here but their sizes."""
    ordered = cast(Any, dataset)
    ordered.context.execution_options.preserve_order = True
    for bundle in ordered.iter_internal_ref_bundles():
        for block, metadata, cut in zip(bundle.block_refs, bundle.metadata, bundle.slices, strict=True):
            start, stop = (0, metadata.num_rows or 0) if cut is None else (cut.start_offset, cut.end_offset)
            yield Sized(Piece(block, start, stop), metadata.size_bytes or 0)


def parts_of(blocks: Iterable[Sized], rows: int) -> Iterator[Part]:
    """Parts of `rows` rows each; the last one may have fewer."""
    number, pieces, missing = 0, list[Piece](), rows
    for sized in blocks:
        piece = sized.piece
        while piece.start < piece.stop:
            taken = Piece(piece.block, piece.start, min(piece.stop, piece.start + missing))
            pieces.append(taken)
            missing -= taken.stop - taken.start
            piece = Piece(piece.block, taken.stop, piece.stop)
            if missing == 0:
                yield Part(number, tuple(pieces))
                number, pieces, missing = number + 1, [], rows
    if pieces:
        yield Part(number, tuple(pieces))


def batches_of(blocks: Sequence[Any], cuts: Sequence[tuple[int, int]], rows: int) -> Iterator[Batch]:
    """Batches of `rows` rows of these parts of blocks, which begin where the part begins: how blocks were cut decides
    nothing."""
    waiting, count = list[Batch](), 0
    for block, (start, stop) in zip(blocks, cuts, strict=True):
        while start < stop:
            end = min(stop, start + rows - count)
            cut = BlockAccessor.for_block(block).slice(start, end, copy=False)
            waiting.append(BlockAccessor.for_block(cut).to_batch_format("numpy"))
            count += end - start
            start = end
            if count == rows:
                yield _joined(waiting)
                waiting, count = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: Sequence[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    joined: Batch = {}
    for name in batches[0]:
        arrays = [batch[name] for batch in batches]
        if len({(array.dtype == object, array.shape[1:]) for array in arrays}) == 1:
            joined[name] = np.concatenate(arrays)
            continue
        rows = [row for array in arrays for row in cast("Sequence[Any]", array)]  # of different shapes
        joined[name] = np.empty(len(rows), object)
        joined[name][:] = rows
    return joined

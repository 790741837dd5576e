"""Kernels of attention over keys and values in blocks of a pool: `attend` and `join_parts` of `tensor/paged.py`.

A program computes a row of work. Queries with the heads that share keys are rows of one tile, so that a key is read
once for all of them. A chunk of keys is computed from nothing, some keys at a time, and chunks are joined in order, so
that a result does not depend on how its keys were divided among rows of work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from opweld.codegen.triton.body import INDENT, Body, Operands
from opweld.codegen.triton.elementwise import converted
from opweld.codegen.triton.kernel import Kernel, Launched, kernel_of
from opweld.codegen.triton.operators import HALVES
from opweld.place.storage import Storage
from opweld.tensor.dtype import DType
from opweld.tensor.paged import CHUNK, WORK, padded_size, part_size
from opweld.tensor.program import Extern

TILES = {64: (32, 64, 4), 128: (32, 64, 8), 256: (16, 32, 8)}
"""By the features of a head, at most: queries times the heads that share keys that a tile has; keys that are multiplied
at once, of which a chunk has a whole number; and warps. As many as registers suffice for."""
EXACT_TILES = {64: (16, 16, 8), 128: (16, 16, 8), 256: (16, 16, 8)}
"""The same of float32, which no tensor core multiplies."""
MOST = 4096
"""Elements of a sum that a program joins at once."""
FIELDS = ("token", "queried", "position", "table", "head", "chunk", "end", "first", "stride", "apart", "heads")
"""The numbers of a row of work. A program takes one head."""


def attend(extern: Extern, storages: Mapping[str, Storage], wide: bool) -> Kernel:
    """A kernel of one program for each row of work."""
    return _Attend(extern, storages, wide).kernel()


class _Attend:
    def __init__(self, extern: Extern, storages: Mapping[str, Storage], wide: bool) -> None:
        self._extern, self._storages = extern, storages
        self._operands = Operands(wide)
        self._body = Body(self._operands, {}, "[]")
        self._wide = ".to(tl.int64)" if wide else ""
        kv_heads, group, size, block, window, cap, causal = map(int, extern.numbers[4:])
        self._kv_heads, self._group, self._size, self._block = kv_heads, group, size, block
        self._heads, self._window, self._causal = kv_heads * group, window, bool(causal)
        self._cap = float(np.int32(cap).view(np.float32))
        self._padded, self._part = int(padded_size(size)), int(part_size(size))
        self._deep, self._across = power(size), power(self._padded)
        self._kind = storages[extern.operands[2]].dtype
        tiles = TILES if self._kind in HALVES else EXACT_TILES
        self._rows, self._keys, self._warps = tiles[next((most for most in tiles if most >= self._across), 256)]
        self._dots = "" if self._kind in HALVES else ', input_precision="ieee"'

    def kernel(self) -> Kernel:
        """The kernel."""
        extern = self._extern
        work, q, k, v, tables = (self._pointer(name) for name in extern.operands[:-1])
        parts = self._pointer(extern.results[0].name, "y")
        lines = [*self._row(work), f"for tile in range(0, queried * {self._group}, {self._rows}):"]
        lines += [INDENT + line for line in self._tile(q, k, v, tables, parts)]
        queries = self._storages[extern.operands[1]]
        comment = (
            f"Attention of {self._kv_heads} x {self._group} heads of {self._size} over blocks of {self._block} keys: "
            f"a row of work a program, {self._keys} keys at a time."
        )
        return kernel_of(
            lines,
            self._operands,
            (self._storages[extern.results[0].name].root,),
            (extern.rows,),
            Launched((self._rows, self._keys), self._warps, 3 if self._kind in HALVES else 1),
            "attend",
            extern.origin,
            comment,
            moved=(queries.elements * queries.dtype.bytes, extern.numbers[3] * self._heads * self._part * 4),
        )

    def _row(self, work: str) -> list[str]:
        """Reads a row of work: nothing is queried by one that does not fit."""
        tokens, _, entries, count = (self._body.dim(number) for number in self._extern.numbers[:4])
        bad = self._operands.error("an index is out of range: a row of work")
        last = "position + queried - 1" if self._causal else "position"
        lines = ["row = tl.program_id(0)"]
        lines += [f"{name} = tl.load({work} + row * {WORK} + {n}).to(tl.int32)" for n, name in enumerate(FIELDS)]
        return [
            *lines,
            f"fits = (token >= 0) & (token + queried <= {tokens}) & (head >= 0) & (head < {self._kv_heads})",
            "fits &= heads == 1",
            f"fits &= (table >= 0) & (table + ({last}) // {self._block} + 1 <= {entries}) & (first >= 0)",
            "behind = tl.maximum(queried - 1, 0) * stride + tl.where(apart != 0, end - chunk - 1, 0)",
            f"fits &= first + behind < {count}",
            f"tl.atomic_max(error, {bad}, mask=~fits & (queried > 0))",
            "queried = tl.where(fits, queried, 0)",
            f"d = tl.arange(0, {self._deep})",
            f"e = tl.arange(0, {self._across})",
        ]

    def _tile(self, q: str, k: str, v: str, tables: str, parts: str) -> list[str]:
        """What is done for a tile of queries."""
        last = f"position + tl.minimum((tile + {self._rows - 1}) // {self._group}, queried - 1)"
        lowest = f"position + {f'tile // {self._group}' if self._causal else '0'} - {self._window - 1}"
        inside = f"present[:, None] & (d < {self._size})[None, :]"
        chunk = [
            *self._empty("most", "weight", "part"),
            f"begin = tl.maximum(c * {CHUNK}, start // {self._keys} * {self._keys})",
            f"for n_first in range(begin, tl.minimum((c + 1) * {CHUNK}, stop), {self._keys}):",
            *(INDENT + line for line in self._step(k, v, tables)),
            "if apart != 0:",
            f"{INDENT}part_target = target + (c - chunk) * {self._heads * self._part}",
            *(INDENT + line for line in self._store(parts, "part_target", "most", "weight", "part")),
            "else:",
            *(INDENT + line for line in joined("highest", "total", "sums", "most", "weight", "part")),
        ]
        return [
            f"packed = tile + tl.arange(0, {self._rows})",
            f"query = packed // {self._group}",
            f"own_head = head * {self._group} + packed % {self._group}",
            "present = query < queried",
            f"q_at = ((token + query) * {self._heads} + own_head) * {self._size}",
            f"q = tl.load({q} + q_at[:, None] + d[None, :], mask={inside}, other=0.0).to({operand(self._kind)})",
            f"high = position + {'query' if self._causal else '0 * query'}",
            f"start = {f'tl.maximum({lowest}, 0)' if self._window else '0'}",
            f"stop = {last if self._causal else 'position'} + 1",
            f"target = ((first + query * stride) * {self._heads} + own_head){self._wide} * {self._part}",
            *self._empty("highest", "total", "sums"),
            "for c in range(chunk, end):",
            *(INDENT + line for line in chunk),
            "if apart == 0:",
            *(INDENT + line for line in self._store(parts, "target", "highest", "total", "sums")),
        ]

    def _empty(self, most: str, weight: str, part: str) -> tuple[str, ...]:
        """A part of no keys."""
        return (
            f'{most} = tl.full([{self._rows}], float("-inf"), tl.float32)',
            f"{weight} = tl.zeros([{self._rows}], tl.float32)",
            f"{part} = tl.zeros([{self._rows}, {self._across}], tl.float32)",
        )

    def _step(self, k: str, v: str, tables: str) -> list[str]:
        """Some keys of a chunk, as an online softmax. Keys that no query of the tile sees are not read."""
        size, block, padded = self._size, self._block, self._padded
        blocks = self._body.dim(self._extern.numbers[1])
        missing = self._operands.error("an index is out of range: a block of a table")
        kind = operand(self._kind)
        seen = "(n[None, :] <= high[:, None])"
        if self._window:
            seen += f" & (n[None, :] > high[:, None] - {self._window})"
        capped = [f"scores = tanh(scores / {self._cap!r}) * {self._cap!r}"] if self._cap else []
        return [
            f"n = n_first + tl.arange(0, {self._keys})",
            "there = (n >= start) & (n < stop)",
            f"page = tl.load({tables} + table + n // {block}, mask=there, other=0)",
            f"wrong = (page < 0) | (page >= {blocks})",
            f"tl.atomic_max(error + 0 * n, {missing}, mask=wrong & there)",
            f"own = tl.where(wrong, 0, page){self._wide or '.to(tl.int32)'} * {self._kv_heads} + head",
            f"keys_at = (own * {size * block} + n % {block})[None, :] + d[:, None] * {block}",
            f"keys = tl.load({k} + keys_at, mask=there[None, :] & (d < {size})[:, None], other=0.0)",
            f"scores = tl.dot(q, keys{self._dots})",
            *capped,
            f'scores = tl.where({seen}, scores, float("-inf"))',
            "before = most",
            "most = tl.maximum(before, tl.max(scores, 1))",
            'least = tl.where(most == float("-inf"), 0.0, most)',
            "shares = tl.exp(scores - least[:, None])",
            "scale = tl.exp(before - least)",
            "weight = weight * scale + tl.sum(shares, 1)",
            f"values_at = ((own * {block} + n % {block}) * {padded})[:, None] + e[None, :]",
            f"values = tl.load({v} + values_at, mask=there[:, None] & (e < {padded})[None, :], other=0.0)",
            f"part = tl.dot(shares.to({kind}), values, part * scale[:, None]{self._dots})",
        ]

    def _store(self, parts: str, at: str, most: str, weight: str, part: str) -> list[str]:
        """A part, of zeros where no key is seen."""
        inside = f"present[:, None] & (e < {self._padded})[None, :]"
        to = f"{parts} + {at}[:, None] + {self._part - self._padded} + e[None, :]"
        return [
            f"tl.store({parts} + {at}, tl.where({weight} == 0.0, 0.0, {most}), mask=present)",
            f"tl.store({parts} + {at} + 1, {weight}, mask=present)",
            f"tl.store({to}, tl.where(({weight} == 0.0)[:, None], 0.0, {part}), mask={inside})",
        ]

    def _pointer(self, name: str, letter: str = "x") -> str:
        storage = self._storages[name]
        return self._operands.pointer(storage.root, storage.dtype, letter)


def join_parts(extern: Extern, storages: Mapping[str, Storage], wide: bool, result: str) -> Kernel:
    """A kernel that joins the parts of some heads of a token, and divides by their sums; `result` is what that is
    stored as."""
    operands = Operands(wide)
    body = Body(operands, {}, "[]")
    count, heads, size = extern.numbers[0], int(extern.numbers[1]), int(extern.numbers[2])
    padded, part = int(padded_size(size)), int(part_size(size))
    across = power(padded)
    high = min(power(heads, 1), max(1, MOST // across))
    groups = -(-heads // high)
    own = [storages[name] for name in (*extern.operands, result)]
    spans, parts, out = (operands.pointer(s.root, s.dtype, "xxy"[n]) for n, s in enumerate(own))
    bad = operands.error("an index is out of range: parts")
    step = [
        f"at = ((first + chunk) * {heads} + head){'.to(tl.int64)' if wide else ''} * {part}",
        f"weight = tl.load({parts} + at + 1, mask=head < {heads}, other=0.0)",
        f"most = tl.load({parts} + at, mask=head < {heads}, other=0.0)",
        'most = tl.where(weight == 0.0, float("-inf"), most)',
        f"part = tl.load({parts} + at[:, None] + {part - padded} + e[None, :], mask=inside, other=0.0)",
        *joined("highest", "total", "sums", "most", "weight", "part"),
    ]
    lines = [
        f"token = tl.program_id(0) // {groups}",
        f"head = tl.program_id(0) % {groups} * {high} + tl.arange(0, {high})",
        f"e = tl.arange(0, {across})",
        f"first = tl.load({spans} + token * 2).to(tl.int32)",
        f"chunks = tl.load({spans} + token * 2 + 1).to(tl.int32)",
        f"fits = (first >= 0) & (chunks >= 1) & (first + chunks <= {body.dim(count)})",
        f"tl.atomic_max(error, {bad}, mask=~fits)",
        "chunks = tl.where(fits, chunks, 0)",
        f"inside = (head < {heads})[:, None] & (e < {size})[None, :]",
        f'highest = tl.full([{high}], float("-inf"), tl.float32)',
        f"total = tl.zeros([{high}], tl.float32)",
        f"sums = tl.zeros([{high}, {across}], tl.float32)",
        "for chunk in range(0, chunks):",
        *(INDENT + line for line in step),
        "found = tl.where((total == 0.0)[:, None], 0.0, sums / tl.where(total == 0.0, 1.0, total)[:, None])",
        f"at = (token * {heads} + head) * {size}",
        f"tl.store({out} + at[:, None] + e[None, :], {converted('found', own[-1].dtype)}, mask=inside)",
    ]
    return kernel_of(
        lines,
        operands,
        (own[-1].root,),
        (extern.rows * groups,),
        Launched((high, across), 4, 2),
        "join",
        extern.origin,
        f"Parts of {heads} heads of {size} joined, {high} heads of a token a program.",
        moved=(count * heads * part * 4, extern.rows * heads * size * 4),
    )


def joined(highest: str, total: str, sums: str, most: str, weight: str, part: str) -> Sequence[str]:
    """Statements that add a part to others; one of no keys changes no bit."""
    return (
        f"both = tl.maximum({highest}, {most})",
        'base = tl.where(both == float("-inf"), 0.0, both)',
        f"old = tl.exp({highest} - base)",
        f"new = tl.exp({most} - base)",
        f"{total} = {total} * old + {weight} * new",
        f"{sums} = {sums} * old[:, None] + {part} * new[:, None]",
        f"{highest} = both",
    )


def operand(kind: DType) -> str:
    """What keys and values of a type are multiplied as: as they lie."""
    return {DType.F16: "tl.float16", DType.BF16: "tl.bfloat16"}.get(kind, "tl.float32")


def power(size: int, least: int = 16) -> int:
    """The least power of two that is not less, of those that tensor cores take."""
    return max(least, 1 << max(0, size - 1).bit_length())

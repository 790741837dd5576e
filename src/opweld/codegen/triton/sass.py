"""What the machine code of a kernel says of it: its instructions, counted by kind, and what it spills."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

TENSOR_CORE: Final = ("HMMA", "HGMMA", "IMMA", "IGMMA", "QGMMA", "BMMA", "BGMMA", "DMMA")
"""Matrix products on tensor cores: of a warp (MMA), and of four warps from shared memory (GMMA, sm_90). The first
letter is the type: half (fp16, bf16, tf32), integer, 8-bit floating point (Q), bit, double."""

_MEMORY: Final = ("LDG", "STG", "LDGSTS", "LDS", "STS", "LDL", "STL")
"""Loads and stores of a stated width: of global (G), shared (S) and local (L) memory; LDGSTS copies from global to
shared memory beside the program."""

_WIDTHS: Final = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128}
_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P[T0-9]\s+)?([A-Z][A-Z0-9_]*)([A-Z0-9_.]*)", re.M
)


def count_instructions(text: str) -> dict[str, int]:
    """How often each instruction stands in the text of a disassembler: "FFMA", "HGMMA"; memory accesses by their bits,
    "LDG.128"."""
    counts: Counter[str] = Counter()
    for name, modifiers in _INSTRUCTION.findall(text):
        counts[f"{name}.{_bits(modifiers)}" if name in _MEMORY else name] += 1
    return dict(sorted(counts.items()))


def spilled_bytes(instructions: Mapping[str, int]) -> int:
    """Bytes of a thread's stores to and loads from local memory, each instruction once: what ptxas -v calls spill
    stores and spill loads, for kernels of Triton have no arrays of their own there."""
    return sum(
        count * int(name.partition(".")[2]) // 8
        for name, count in instructions.items()
        if name.startswith(("STL.", "LDL."))
    )


def _bits(modifiers: str) -> int:
    return next((_WIDTHS[part] for part in modifiers.split(".") if part in _WIDTHS), 32)

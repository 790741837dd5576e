"""Which classes of instructions a kernel holds, with the length of their vectors, read from its assembly.

vpdpbusd 512-bit, fma 256-bit, float arithmetic 256-bit
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_CLASSES = (
    (r"(vpdp\w+|vdpbf16ps|vpmadd(?:ubsw|wd)|pmadd(?:ubsw|wd)|tdp\w+)", ""),
    (r"((?:[su]|su|us)dot|[us]mmla|usmmla|bfdot|bfmmla|bfmlal\w)", ""),
    (r"vfn?m(?:add|sub)\w+|f(?:n?m(?:add|sub)|ml[as])", "fma"),
    (r"vp?gather\w+", "gather"),
    (r"vcvtph2ps\w*|vcvtps2ph\w*|vcvtne\w+bf16\w*", "conversion of halves"),
    (
        r"v?(?:add|sub|mul|div|max|min|sqrt)[ps][sd]|f(?:add|sub|mul|div|max(?:nm)?|min(?:nm)?|sqrt)p?",
        "float arithmetic",
    ),
    (r"v?p(?:add|sub|mull|max|min)\w+|[su](?:max|min|ml?al2?|mull2?)|ml[as]", "integer arithmetic"),
)
"""Mnemonics of x86-64 and AArch64, and what they are called; their own name where that is empty."""
_PATTERNS = tuple((re.compile(rf"(?:{mnemonics})\b"), name) for mnemonics, name in _CLASSES)
_LENGTHS = (
    (re.compile(r"%tmm\d"), "by tiles"),
    (re.compile(r"%zmm\d"), "512-bit"),
    (re.compile(r"%ymm\d"), "256-bit"),
)
_SCALAR = re.compile(r"(?:v?(?:add|sub|mul|div|max|min|sqrt)|vfn?m(?:add|sub)\d+)s[sd]\b")
_VECTOR = re.compile(r"%xmm\d|\bv\d+\.|\bq\d+\b")


def instruction_classes(lines: Sequence[str]) -> tuple[str, ...]:
    """The classes of a function's instructions, given without comments: those for products first, long vectors before
    short ones. What only computes addresses, moves or compares is none."""
    found: set[tuple[int, int, str]] = set()
    for line in lines:
        for rank, (pattern, name) in enumerate(_PATTERNS):
            if match := pattern.match(line):
                order, length = _length(line)
                if length:
                    found.add((rank, order, f"{name or match[1]} {length}"))
                break
    return tuple(text for _, _, text in sorted(found))


def _length(line: str) -> tuple[int, str]:
    for order, (register, length) in enumerate(_LENGTHS):
        if register.search(line):
            return order, length
    if _SCALAR.match(line):
        return 4, "scalar"
    if _VECTOR.search(line):
        return 3, "128-bit"
    return (4, "scalar") if re.search(r"\b[sd]\d+\b", line) and line.startswith("f") else (5, "")

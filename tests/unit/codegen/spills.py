"""Reads x86-64 assembly (AT&T syntax, as clang and gcc print it) for what C text does not show: spilled registers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_LABEL = re.compile(r"^(\.L\w+):")
_JUMP = re.compile(r"^\s+j\w+\s+(\.L\w+)\b")
_STACK = re.compile(r"\(%r[sb]p[,)]")
_VECTOR = re.compile(r"%[xyz]mm\d+")


@dataclass(frozen=True)
class Spill:
    """A vector register saved to or loaded from the stack: the label of the innermost loop, and the instruction."""

    loop: str
    instruction: str


def spills(assembly: str) -> list[Spill]:
    """Every move between vector registers and the stack inside the innermost loops of the text."""
    lines = assembly.splitlines()
    found: list[Spill] = []
    for first, last in innermost_loops(lines):
        label = lines[first].split(":", 1)[0]
        for line in lines[first : last + 1]:
            code = line.split("#", 1)[0].strip()
            if _STACK.search(code) and _VECTOR.search(code):
                found.append(Spill(label, code))
    return found


def innermost_loops(lines: Sequence[str]) -> list[tuple[int, int]]:
    """(label, backward jump) line numbers of the loops that contain no other loop."""
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        label = _LABEL.match(line)
        if label:
            labels[label.group(1)] = number
        jump = _JUMP.match(line)
        if jump and jump.group(1) in labels:
            loops.append((labels[jump.group(1)], number))
    return [
        loop
        for loop in loops
        if not any(other != loop and loop[0] <= other[0] and other[1] <= loop[1] for other in loops)
    ]

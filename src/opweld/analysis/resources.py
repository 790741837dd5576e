"""Resources of a kernel: vector registers, spills to the stack, stack size, and the classes of its instructions.

Read from the assembly that the C compiler generates from the sources of an artifact, for x86-64 and AArch64, in the
format of clang and gcc. Only costly spills count: a vector register saved to or loaded from the stack in an innermost
loop.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opweld.analysis.instructions import instruction_classes
from opweld.analysis.sources import kernel_functions
from opweld.build.artifact import read
from opweld.build.toolchain import assembly
from opweld.runtime.library import module_headers
from opweld.target import Target

_LABEL = re.compile(r"^(\.L\w+):")
_JUMP = re.compile(r"^\s+(?:j\w+|b(?:\.\w+)?|cbn?z\s+\w+,|tbn?z\s+\w+,\s*#\d+,)\s+(\.L\w+)\b")
_FUNCTION = re.compile(r"^(\w+):")
_END = re.compile(r"^\.Lfunc_end\d+:|^\s+\.size\s")
_STACK = re.compile(r"\(%rsp[,)]|\[sp[],]")
_FRAMED = re.compile(r"\(%r[sb]p[,)]|\[(?:sp|x29)[],]")
"""The set-up of a frame pointer, which otherwise is a general register."""
_SET_UP = re.compile(r"^\s+movq\s+%rsp, %rbp|^\s+(?:mov|add)\s+x29, sp")
_VECTOR = re.compile(r"%[xyz]mm(\d+)|\b[vq](\d+)\b")
_COMMENT = re.compile(r"//|#(?=\s|@)")
_FRAME = re.compile(r"^\s+(?:subq\s+\$(\d+), %rsp|sub\s+sp, sp, #(\d+))")


@dataclass(frozen=True)
class Spill:
    """A vector register saved to or loaded from the stack: the label of the innermost loop, and the instruction."""

    loop: str
    instruction: str


@dataclass(frozen=True)
class Resources:
    """The resources of a function: the number of vector registers, the spills, and the bytes of its stack frame.

    `instructions`: classes of instructions, see `instruction_classes`."""

    registers: int
    spills: tuple[Spill, ...]
    stack: int
    instructions: tuple[str, ...] = ()


def resources_of(text: str) -> dict[str, Resources]:
    """The resources of each function of an assembly text."""
    found: dict[str, Resources] = {}
    name, body = "", list[str]()
    for line in text.splitlines():
        begin = _FUNCTION.match(line)
        if begin is not None:
            name, body = begin[1], []
        elif name and _END.match(line):
            found[name] = _resources(body)
            name = ""
        else:
            body.append(line)
    return found


def _resources(lines: Sequence[str]) -> Resources:
    numbers = {match[1] or match[2] for line in lines for match in _VECTOR.finditer(_code(line))}
    frames = [match[1] or match[2] for line in lines if (match := _FRAME.match(line))]
    classes = instruction_classes([_code(line) for line in lines])
    return Resources(len(numbers), tuple(spills(lines)), sum(map(int, frames)), classes)


def spills(lines: Sequence[str]) -> list[Spill]:
    """Every move between vector registers and the stack inside the innermost loops."""
    stack = _FRAMED if any(map(_SET_UP.match, lines)) else _STACK
    return [
        Spill(lines[first].split(":", 1)[0], code)
        for first, last in innermost_loops(lines)
        for code in map(_code, lines[first : last + 1])
        if stack.search(code) and _VECTOR.search(code)
    ]


def _code(line: str) -> str:
    """An instruction without its comment; # starts a comment on x86-64 and a number on AArch64."""
    return _COMMENT.split(line, maxsplit=1)[0].strip()


def innermost_loops(lines: Sequence[str]) -> list[tuple[int, int]]:
    """(label, backward jump) line numbers of the loops that contain no other loop."""
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        label = _LABEL.match(line)
        if label:
            labels[label[1]] = number
        jump = _JUMP.match(line)
        if jump and jump[1] in labels:
            loops.append((labels[jump[1]], number))
    return [
        loop
        for loop in loops
        if not any(other != loop and loop[0] <= other[0] and other[1] <= loop[1] for other in loops)
    ]


def kernel_resources(folder: Path) -> dict[str, Resources]:
    """The resources of the kernels of an artifact, by "variant/kernel": its sources are compiled again.

    Raises ArtifactError, and ToolchainError without a compiler."""
    manifest = read(folder)
    target = replace(Target.of(manifest.target), features=tuple(manifest.features.split()))
    functions = kernel_functions(folder)
    files = {path.name: path.read_text(encoding="utf-8") for path in sorted((folder / "source").glob("kernels_*.c"))}
    known: dict[str, Resources] = {}
    for text in assembly(files, target=target, headers=module_headers()).values():
        known |= resources_of(text)
    return {kernel: known[function] for kernel, (function, _) in functions.items() if function in known}


def resource_text(found: Resources) -> str:
    """The resources in words."""
    spilled = f"{len(found.spills)} spilled in its inner loops" if found.spills else "none spilled in its inner loops"
    return f"{instructions_text(found)}; {found.registers} vector registers, {spilled}, {found.stack} bytes of stack"


def kernel_instructions(folder: Path) -> dict[str, str]:
    """The classes of instructions of an artifact's kernels in words, by "variant/kernel"; raises as
    `kernel_resources`."""
    return {kernel: instructions_text(found) for kernel, found in kernel_resources(folder).items()}


def instructions_text(found: Resources) -> str:
    """The classes of its instructions in words."""
    return ", ".join(found.instructions) or "no arithmetic"

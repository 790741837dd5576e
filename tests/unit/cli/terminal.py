"""Commands in a pseudo-terminal of a given width, and the tables that they print there."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE_S

SOURCE = Path(__file__).parents[3] / "src"

MARK = "=====opweld"
"""A line of its own between the answers of two commands."""

_DRIVER = f"""
import json, sys
from opweld.cli.main import application
opweld = application()
for arguments in json.loads(sys.argv[1]):
    try:
        opweld(arguments, prog_name="opweld", standalone_mode=False)
    except SystemExit:
        pass
    print({MARK!r}, flush=True)
"""


def on_terminal(width: int, commands: Sequence[Sequence[object]]) -> list[str]:
    """What commands print on a terminal of `width` characters, one process for all of them; standard error is none."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment = inherited | {"PYTHONPATH": str(SOURCE), "TERM": "xterm", "PYTHONUTF8": "1"}
    texts = json.dumps([[str(argument) for argument in command] for command in commands])
    process = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, texts], env=environment, stdout=slave, stderr=subprocess.PIPE
    )
    os.close(slave)
    printed = bytearray()
    while True:
        try:
            some = os.read(master, 1 << 16)
        except OSError:  # how a pseudo-terminal ends on Linux
            break
        if not some:
            break
        printed += some
    os.close(master)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors.decode()
    answers = printed.decode().replace("\r\n", "\n").split(f"{MARK}\n")
    assert answers.pop() == "" and len(answers) == len(commands), errors.decode()
    return answers


@dataclass(frozen=True)
class Table:
    """A table as it was printed: its titles, the cells of its rows, and where each column lies."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    spans: tuple[tuple[int, int], ...]


def tables_of(text: str) -> list[Table]:
    """The tables in a text: a line of dashes and spaces, the line above it, and the lines below it that fit."""
    lines = text.splitlines()
    found: list[Table] = []
    for number, line in enumerate(lines):
        if not number or set(line) - {"-", " "} or "-" not in line:
            continue
        spans: list[tuple[int, int]] = []
        for dashes in line.split():
            start = line.index(dashes, spans[-1][1] if spans else 0)
            spans.append((start, start + len(dashes)))
        rows: list[tuple[str, ...]] = []
        for row in lines[number + 1 :]:
            if not row or not _fits(row, spans):
                break
            rows.append(tuple(row[a:b].strip() for a, b in spans))
        head = lines[number - 1]
        found.append(Table(tuple(head[a:b].strip() for a, b in spans), tuple(rows), tuple(spans)))
    return found


def _fits(line: str, spans: Sequence[tuple[int, int]]) -> bool:
    """Whether all that a line holds lies in columns."""
    gaps = [line[a:b] for (_, a), (b, _) in itertools.pairwise(spans)]
    return not "".join(gaps).strip() and not line[spans[-1][1] :].strip()

"""Every kind of decision on the test programs: is it in the ledger, does a pin hold, does it come back from a file?

    python -m benchmarks.decisions
    python -m benchmarks.decisions --file table.md

A pin holds when another legal alternative of a decision is taken because it was pinned, and the answer of the program
stays right in the tile interpreter. A kind comes back from a file when every decision of it is, at level `all`, what it
was at another level whose schedules file was given back.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from opweld.ledger import Decision, Ledger
from opweld.rules import RULES
from opweld.schedule.file import parse_schedules, print_schedules
from opweld.schedule.schedule import Schedule
from opweld.schedules_file import SchedulesFile
from opweld.target import Target
from opweld.tensor.parse import parse_program
from opweld.tensor.program import TensorProgram
from opweld.tile.kernels import schedules_of
from tests.unit.tile import programs
from tests.unit.tile.pipeline import Compiled, check_compiled, compile_with, with_data

TARGET = Target.of("x86-64-v3")

PROGRAMS = programs.PROGRAMS | {
    "long": programs.elementwise((3, 1100), "max(x[i0, i1], 0.0)"),
    "deep": programs.dense(12, 2048, 48),
    "wide": programs.separable(4, 32, 5, 7),
    "crowded": programs.layers(12, 8, 1024, 8),
    "counter": programs.COUNTER,
    "scaled": programs.scaled_scores(),
    "rounded between": programs.rounded_between(6, 40),
}

UNMET: dict[str, str] = {
    "simplify.fold": "programs are compiled from after simplification on; see tests/unit/test_folding.py",
    "fuse.precision": "answers are rounded by what it permits; see tests/unit/fuse/test_precision.py",
    "fuse.denormal": "no program has denormal weights; see tests/unit/fuse/test_denormals.py",
    "fuse.requantize": "no program quantises a sum; see tests/unit/fuse/test_requantization.py",
    "schedule.tile": "programs of a GPU have it; see tests/backends/test_cuda.py",
    "schedule.unit": "no generic target has a matrix unit; see tests/unit/tile/test_matrix.py",
    "version.size": "a program is compiled, and no versions of it; see tests/unit/test_versions.py",
    "schedule.scales": "no program has weights in blocks; see tests/unit/fuse/test_codes.py",
}
"""Kinds that no test program meets, and why."""


@cache
def program_of(name: str) -> TensorProgram:
    """A test program with data."""
    return with_data(parse_program(PROGRAMS[name]))


@cache
def compiled(name: str, level: str = "all") -> Compiled:
    """A test program compiled at a level."""
    return compile_as(name, Ledger(level=level))


def compile_as(name: str, ledger: Ledger) -> Compiled:
    """A test program compiled as the ledger decides, up to the phases of its launches."""
    made = compile_with(program_of(name), ledger, TARGET)
    assert made.assembled[0].launches
    return made


def check_answer(name: str, made: Compiled) -> None:
    """Raises AssertionError when the tile interpreter answers something else than the tensor interpreter."""
    check_compiled(program_of(name), made, {})


def schedules(made: Compiled) -> Mapping[tuple[str, str], Schedule]:
    """The schedule of each region."""
    return schedules_of(made.program, made.plans, made.ledger)


def written(made: Compiled) -> str:
    """The schedules file of a compiled program."""
    return print_schedules(schedules(made), made.ledger)


def given_back(name: str, text: str, level: str = "all") -> Compiled:
    """A test program compiled as a schedules file says, which is checked to have been followed."""
    given: SchedulesFile = parse_schedules(text)
    made = compile_as(name, Ledger(level=level, schedules=given))
    made.ledger.check_names()
    given.check_regions({at: dict(schedule.fields()) for at, schedule in schedules(made).items()})
    return made


def others(decision: Decision) -> list[str]:
    """The alternatives that could have been taken instead."""
    if decision.failed and not decision.fired and not set(decision.failed) <= {a.name for a in decision.alternatives}:
        return []
    return [a.name for a in decision.alternatives if a.name != decision.taken and a.name not in decision.failed]


def places(rule: str) -> dict[str, list[Decision]]:
    """The decisions of a kind, by test program."""
    found = {name: [d for d in compiled(name).ledger if d.rule == rule] for name in PROGRAMS}
    return {name: decisions for name, decisions in found.items() if decisions}


def pinned(rule: str) -> str:
    """The program in which a pin of the kind was tried, `` where nothing else is ever legal; fails if it went wrong."""
    for name, decisions in places(rule).items():
        for decision in decisions:
            for other in reversed(others(decision)):
                made = compile_as(name, Ledger(pins={decision.id: other}))
                (again,) = (d for d in made.ledger if d.id == decision.id)
                assert again.pinned and again.taken == other, f"{rule}: {again.taken} was taken, {other} was pinned"
                check_answer(name, made)
                return name
    return ""


def replayed(rule: str, level: str) -> int:
    """How many decisions of the kind came back from the files of a level; fails if one did not."""
    count = 0
    for name in places(rule):
        first = compiled(name, level)
        again = {d.id: d for d in _replayed(name, level).ledger}
        for decision in first.ledger:
            if decision.rule == rule:
                found = again[decision.id]
                assert found.pinned and found.taken == decision.taken, f"{rule} of {name}: {found.taken} came back"
                count += 1
    return count


@cache
def _replayed(name: str, level: str) -> Compiled:
    return given_back(name, written(compiled(name, level)))


def table() -> str:
    """Markdown: one line a kind of decision."""
    lines = ["| decision | in the ledger | pinned | replayed from a file |", "|---|---:|---|---:|"]
    for rule in RULES:
        if rule in UNMET:
            lines.append(f"| `{rule}` | {UNMET[rule]} | | |")
            continue
        count = sum(map(len, places(rule).values()))
        lines.append(f"| `{rule}` | {count} | {pinned(rule) or 'nothing else is legal'} | {replayed(rule, 'all')} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Prints the table, or writes it to a file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decisions", description=__doc__)
    parser.add_argument("--file", type=Path, help="write the table there")
    file = parser.parse_args().file
    text = table()
    if file is None:
        print(text, end="")
    else:
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

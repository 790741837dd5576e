"""Runs programs with onnxruntime and with opweld in its place, and compares what they answer.

    python -m benchmarks.programs                    all of them; the first time installs each, some gigabytes
    python -m benchmarks.programs magika rapidocr    these
    python -m benchmarks.programs --lock magika      resolves its versions anew

`first` is the time until the first answer, which for opweld includes compiling where the cache does not hold the model
yet; `again` the least time of later calls. Exit status 1 when an answer differs.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.programs import environment
from benchmarks.programs.answers import difference
from benchmarks.programs.catalogue import PROGRAMS, Program

LIMIT_S = 1200
"""Of one run; compiling is part of it."""


@dataclass(frozen=True)
class Row:
    """One program: milliseconds of both, how far the answers are apart, and why they are not the same."""

    program: str
    first: tuple[float, float] | None = None
    again: tuple[float, float] | None = None
    apart: float | None = None
    problem: str = ""


def compare(program: Program) -> Row:
    """Runs a program with both."""
    try:
        theirs, ours = (_answers(program, shim) for shim in (False, True))
    except RuntimeError as error:
        return Row(program.name, problem=str(error))
    apart, problem = difference(theirs["answers"], ours["answers"], program.tolerance)
    first, again = ((1e3 * theirs[key], 1e3 * ours[key]) for key in ("first", "again"))
    return Row(program.name, first, again, apart, problem)


def _answers(program: Program, shim: bool) -> dict[str, Any]:
    """What the driver wrote. Raises RuntimeError with its last words."""
    interpreter = environment.python(program)
    repository = environment.REPOSITORY
    path = [str(repository / "src"), str(repository), str(environment.compiler_folder())]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "answers"
        module = ["-m", "benchmarks.programs.drive", program.name, str(environment.work_folder(program)), str(out)]
        command = [str(interpreter), *(["-m", "opweld.shim"] if shim else []), *module]
        try:
            done = subprocess.run(
                command, env=variables, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"{'opweld' if shim else 'onnxruntime'}: no answer after {LIMIT_S} s") from error
        if not out.is_file():
            words = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise RuntimeError(f"{'opweld' if shim else 'onnxruntime'}: {words[-1]}")
        answers = pickle.loads(out.read_bytes())
    if answers["runtime"].startswith("opweld") != shim:
        raise RuntimeError(f"the wrong runtime answered: {answers['runtime']}")
    return answers


def _line(row: Row) -> str:
    cells = [row.program.ljust(21)]
    for pair in (row.first, row.again):
        cells += ["-".rjust(9)] * 2 if pair is None else [f"{value:9.1f}" for value in pair]
    cells.append("-".rjust(8) if row.apart is None else f"{row.apart:8.1e}")
    cells.append("same" if not row.problem else f"NO: {row.problem}")
    return " ".join(cells)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = {program.name: program for program in PROGRAMS}
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(known))
    parser.add_argument("--lock", action="store_true", help="write their lock files")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there too")
    given = parser.parse_args()
    unknown = sorted(set(given.programs) - set(known))
    if unknown:
        parser.error(f"{unknown[0]!r} is none of {', '.join(known)}")
    chosen = [known[name] for name in given.programs or known]
    if given.lock:
        for program in chosen:
            print(environment.lock(program))
        return
    print(" ".join(("program".ljust(21), "first ms:", "   opweld", "again ms:", "   opweld", "   apart", "answers")))
    rows: list[Row] = []
    for program in chosen:
        rows.append(compare(program))
        print(_line(rows[-1]), flush=True)
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    sys.exit(any(row.problem for row in rows))


if __name__ == "__main__":
    main()

"""ONNX's own tests, run through `opweld.backend`: how many pass, and what becomes of the others.

    python -m benchmarks.onnx_suite                      all of them, a table by operator
    python -m benchmarks.onnx_suite --filter 'reduce_'   those whose name matches
    python -m benchmarks.onnx_suite --json               what became of every test, as JSON
    python -m benchmarks.onnx_suite --exclusions         those that do not pass, by reason

Each test is compiled and run in a process that other tests share until one of them kills it.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import re
import select
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.onnx_cases import Case, cases

SECONDS_A_TEST = 60.0
OUTCOMES = ("passed", "refused", "wrong", "failed", "crashed")
"""refused: UnsupportedError. wrong: another answer. failed: any other error. crashed: the process died or hung."""

_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Result:
    """What became of one test: its name, operator, outcome, the error's text if any, and seconds."""

    name: str
    operator: str
    outcome: str
    detail: str
    seconds: float


def names(pattern: str) -> list[str]:
    """The names of all tests that match a regular expression."""
    return sorted(name for name in cases() if re.search(pattern, name))


def run(wanted: list[str]) -> Iterator[Result]:
    """Runs tests one after the other, in a process that is replaced when it dies or hangs."""
    left = list(wanted)
    while left:
        for result in _run_until_death(left):
            left.remove(result.name)
            yield result


def _run_until_death(wanted: list[str]) -> Iterator[Result]:
    environment = os.environ | {"PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT}", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "benchmarks.onnx_suite", "--serve"]
    with subprocess.Popen(
        command, cwd=_ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        try:
            _read_line(process.stdout.fileno(), 10 * SECONDS_A_TEST)  # ready
            for name in wanted:
                start = time.perf_counter()
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(f"{name}\n".encode())
                    process.stdin.flush()
                line = _read_line(process.stdout.fileno(), SECONDS_A_TEST)
                if line:
                    yield Result(**json.loads(line))
                    continue
                hung = process.poll() is None and time.perf_counter() - start > SECONDS_A_TEST
                process.kill()
                trace = process.stderr.read().decode(errors="replace")
                detail = f"no answer within {SECONDS_A_TEST:.0f} s" if hung else f"died: {trace[-2000:]}"
                yield Result(name, "?", "crashed", detail, time.perf_counter() - start)
                return
        finally:
            process.kill()


def _read_line(descriptor: int, seconds: float) -> bytes:
    """A line, or nothing when the other end is gone or silent for so long."""
    line = b""
    deadline = time.monotonic() + seconds
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(descriptor, 1 << 16) if ready else b""
        if not piece:
            return b""
        line += piece
    return line


# ---- the process that runs tests ----


def _serve() -> None:
    """Reads names, writes results, one a line."""
    faulthandler.enable()
    known = cases()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        result = _run_case(known[line.strip()])
        print(json.dumps(asdict(result)), file=answers, flush=True)


def _run_case(case: Case) -> Result:
    from opweld.errors import UnsupportedError

    operators = {node.op_type for node in case.model.graph.node}
    operator = operators.pop() if len(operators) == 1 else "several"
    start = time.perf_counter()
    outcome, detail = "passed", ""
    try:
        check(case)
    except UnsupportedError as error:
        outcome, detail = "refused", str(error)
    except AssertionError as error:
        outcome, detail = "wrong", str(error)
    except Exception as error:  # noqa: BLE001  whatever it is, it is this test's result
        outcome, detail = "failed", f"{type(error).__name__}: {error}"
    return Result(case.name, operator, outcome, detail[:4000], time.perf_counter() - start)


def check(case: Case, **options: Any) -> None:
    """Runs one test of the suite, compiled with these options. Raises AssertionError for a wrong answer, OpweldError
    where there is none."""
    from onnx.backend.test.runner import Runner

    import opweld.backend

    prepared = opweld.backend.prepare(case.model, **options)
    for feeds, expected in case.data_sets():
        with np.errstate(all="ignore"):
            found = list(_tensors(prepared.run(feeds)))
            expected_tensors = list(_tensors(expected))
            assert [place for place, _ in found] == [place for place, _ in expected_tensors]
            wanted, answers = ([array for _, array in tensors] for tensors in (expected_tensors, found))
            Runner.assert_similar_outputs(wanted, answers, *case.tolerances)


def _tensors(values: Sequence[Any], place: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Tensors of nested lists, and where each is; ONNX's own comparison would take rows of them for tensors."""
    for position, value in enumerate(values):
        if isinstance(value, list | tuple):
            yield (*place, position, len(value)), np.empty(0)
            yield from _tensors(value, (*place, position))
        else:
            yield (*place, position), value


# ---- the exclusions ----


REASONS = {
    r"attention_4d_causal_fp16": "half precision: the answer is nearer to float64 than the one expected",
    r"dft_inverse(_opset19)?$": "zeros are expected as single precision rounds them: the answer is nearer to float64",
    r"downsample_scales_(cubic|linear)_align_corners": "corners of the size before it is rounded down are expected",
    r"bernoulli|training_dropout(_default)?(_mask)?$": "the numbers that are drawn come from another generator",
}
"""Reasons that no error tells, by a part of the test's name."""


def reason(result: Result) -> str:
    """Why a test does not pass, in words that do not name its values."""
    known = [why for part, why in REASONS.items() if re.search(part, result.name)]
    if known:
        return known[0]
    if result.outcome == "crashed":
        return "the process dies"
    if result.outcome == "wrong":
        return "another answer than expected"
    text = " ".join(result.detail.removeprefix("ModelError: ").split())
    text = re.sub(r"^node '[^']*'( \([A-Za-z]+\))?: ", "", text)
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "NAME", text)
    return re.split(r"[.;] |: this model|, which|, got", text)[0][:100].strip()


def exclusions(results: list[Result]) -> str:
    """The tests that do not pass: a reason after `#`, then names, one a line."""
    grouped: dict[str, list[str]] = defaultdict(list)
    for result in results:
        if result.outcome != "passed":
            grouped[reason(result)].append(result.name)
    return "\n".join("\n".join((f"# {why}", *sorted(grouped[why]), "")) for why in sorted(grouped))


# ---- the table ----


def show(results: list[Result]) -> None:
    """Prints counts by operator, then every test that is wrong, failed or crashed."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        counts[result.operator][result.outcome] += 1
        counts["all"][result.outcome] += 1
    width = max(map(len, counts))
    print(f"{'operator':{width}}  {'  '.join(f'{outcome:>8}' for outcome in OUTCOMES)}")
    for operator in sorted(counts, key=lambda name: (name == "all", name)):
        cells = (str(counts[operator][outcome] or "") for outcome in OUTCOMES)
        print(f"{operator:{width}}  {'  '.join(f'{cell:>8}' for cell in cells)}")
    for outcome in OUTCOMES[2:]:
        for result in results:
            if result.outcome == outcome:
                print(f"\n{outcome}: {result.name}: {result.detail.strip()[:600]}")


def main() -> int:
    """Runs the suite; 1 when an answer is wrong or a process crashed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx_suite", description="ONNX's own tests on opweld.")
    parser.add_argument("--filter", default="", metavar="RE", help="only tests whose name matches")
    parser.add_argument("--json", action="store_true", help="print what became of every test as JSON")
    parser.add_argument("--exclusions", action="store_true", help="print the tests that do not pass, by reason")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        _serve()
        return 0
    results: list[Result] = []
    wanted = names(arguments.filter)
    for result in run(wanted):
        results.append(result)
        if sys.stderr.isatty():
            print(f"\r{len(results)}/{len(wanted)} {result.name[:60]:60}", end="", file=sys.stderr, flush=True)
    if arguments.exclusions:
        print(exclusions(results))
    elif arguments.json:
        print(json.dumps([asdict(result) for result in results], indent=1))
    else:
        show(results)
    return 1 if any(result.outcome in ("wrong", "crashed") for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())

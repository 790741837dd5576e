"""PyTorch's own tests of its compiler, with opweld in the compiler's place: python -m tests.pytorch.inductor_suite.

CHECKOUT is a tree of PyTorch's sources: `test/inductor/test_torchinductor.py` is read from it, and nothing else. Its
cases for the CPU run as they stand, but what they call `compile_fx` is opweld's backend, gradients are off, and
assertions about the number of Inductor's kernels are left out. What makes sense for Inductor alone is listed with its
reason in `inductor_suite.toml`.

A case passes *inside* where nothing stayed in eager mode, *in part* where some nodes did and were named, and counts
as *uncompiled* where no graph reached the backend. `--backend aot_eager` is the control: a case that fails there
fails for another reason than the backend's operators.
"""

from __future__ import annotations

import argparse
import ast
import collections
import fnmatch
import json
import logging
import os
import pkgutil
import re
import selectors
import subprocess
import sys
import tempfile
import tomllib
import types
import unittest
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import torch

from tests.pytorch.opinfo import left_in_eager

REASONS = Path(__file__).with_suffix(".toml")

COUNTERS = ("assertGeneratedKernelCountEqual", "torch._inductor.metrics")
"""What an assertion about Inductor's kernels names."""

VERDICTS = ("inside", "in part", "uncompiled", "failed")


class _Uncounted(ast.NodeTransformer):
    """Leaves out assertions about the number of kernels."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        text = ast.unparse(node)
        asserts = isinstance(node.value, ast.Call) and "assert" in text.partition("(")[0]
        return ast.copy_location(ast.Pass(), node) if asserts and any(name in text for name in COUNTERS) else node


def cases(checkout: Path, compile_fx: Callable[..., Any]) -> Any:
    """The class of PyTorch's cases for the CPU, with this in the place of Inductor's `compile_fx`."""
    from torch._inductor import compile_fx as inductor

    path = checkout / "test/inductor/test_torchinductor.py"
    tree = _Uncounted().visit(ast.parse(path.read_text(), str(path)))
    inductor.compile_fx = compile_fx
    for owner, name in _missing(tree):
        setattr(owner, name, None)
    module = types.ModuleType("test_torchinductor")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(compile(tree, str(path), "exec"), module.__dict__)
    vars(module)["_run_and_assert_no_indirect_indexing"] = _called
    return vars(module)["CpuTests"]


def _missing(tree: ast.AST) -> Iterator[tuple[types.ModuleType, str]]:
    """(module of Inductor, name) of what the cases import that this version of PyTorch has elsewhere or not at all:
    cases that call it fail, unless they are left out."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("torch._inductor"):
            continue
        for own in node.names:
            try:
                pkgutil.resolve_name(f"{node.module}.{own.name}")
            except (ImportError, AttributeError):
                yield sys.modules[str(node.module)], own.name


def _called(_: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What PyTorch does here as well, without a look into the code."""
    kwargs.pop("has_wrapping", None)
    kwargs.pop("has_assert", None)
    return function(*args, **kwargs)


def reasons() -> dict[str, list[str]]:
    """Patterns of the cases that are left out, by the reason."""
    return tomllib.loads(REASONS.read_text())["left out"]


def reason_of(name: str, left_out: dict[str, list[str]]) -> str | None:
    """Why a case is left out; None where it is not."""
    return next((r for r, patterns in left_out.items() if any(fnmatch.fnmatchcase(name, p) for p in patterns)), None)


# ------------------------------------------------------------------------------------------------------------- worker


def work(checkout: Path, backend: str, options: dict[str, Any], answers: TextIO) -> None:
    """Says the names of all cases, then what becomes of each whose name comes in."""
    from torch._dynamo import lookup_backend

    found: Callable[..., Any] = lookup_backend(backend)
    calls: list[None] = []

    def compile_fx(graph: Any, inputs: Sequence[Any], *_: Any, **__: Any) -> Any:
        calls.append(None)
        return found(graph, inputs, options=options) if options else found(graph, inputs)

    logging.getLogger("torch").setLevel(logging.ERROR)
    own = cases(checkout, compile_fx)
    print(json.dumps(sorted(name for name in dir(own) if name.startswith("test_"))), file=answers, flush=True)
    for line in sys.stdin:
        calls.clear()
        verdict, what = _judged(own(line.strip()), calls)
        print(json.dumps([verdict, what]), file=answers, flush=True)


def _judged(case: unittest.TestCase, calls: Sequence[None]) -> tuple[str, str]:
    result = unittest.TestResult()
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        unittest.TestSuite([case]).run(result)
    if result.skipped:
        return "skipped", result.skipped[0][1]
    bad = result.failures + result.errors
    if bad:
        return "failed", _said(bad[0][1])
    told = left_in_eager(caught)
    told += [str(own.message) for own in caught if str(own.message).startswith("opweld compiles for inference")]
    return ("in part", told[0]) if told else ("inside", "") if calls else ("uncompiled", "")


_ERROR = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Failed|Unsupported)\b", re.MULTILINE)


def _said(trace: str) -> str:
    """What a traceback ends with, in one line."""
    found = [match.start() for match in _ERROR.finditer(trace)]
    text = trace[found[-1] if found else 0 :]
    return " ".join(text.partition("Set TORCHDYNAMO_VERBOSE")[0].partition("To execute this test")[0].split())[:600]


# ------------------------------------------------------------------------------------------------------------- runner


class Worker:
    """A process that runs one case after the other, and that may die of one."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        assert self._process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self.names: list[str] = self._answer(300)

    def run(self, name: str, seconds: float) -> list[str]:
        """What becomes of a case. Raises TimeoutError or EOFError."""
        assert self._process.stdin is not None
        print(name, file=self._process.stdin, flush=True)
        return self._answer(seconds)

    def _answer(self, seconds: float) -> list[str]:
        if not self._selector.select(seconds):
            raise TimeoutError(f"no answer in {seconds:.0f} s")
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EOFError(f"the process ended with {self._process.wait()}")
        return json.loads(line)

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()


def verdicts(
    command: Sequence[str], chosen: Callable[[str], bool], known: dict[str, list[str]], seconds: float
) -> Iterator[tuple[str, list[str]]]:
    """What becomes of the chosen cases; of the known ones, what became of them."""
    worker = Worker(command)
    try:
        for name in filter(chosen, worker.names):
            if name in known:
                yield name, known[name]
                continue
            try:
                yield name, worker.run(name, seconds)
            except (TimeoutError, EOFError) as error:
                worker.end()
                worker = Worker(command)
                yield name, ["failed", str(error)]
    finally:
        worker.end()


def main() -> int:
    """Prints what is not inside as it comes, then counts; the status is 1 below the share that must pass."""
    parser = argparse.ArgumentParser(prog="python -m tests.pytorch.inductor_suite", description=__doc__)
    parser.add_argument("checkout", type=Path, help="a tree of PyTorch's sources")
    parser.add_argument("names", nargs="*", help="patterns of cases; all that are not left out where none is named")
    parser.add_argument("--backend", default="opweld", help="of torch.compile")
    parser.add_argument("--interpret", action="store_true", help="with the interpreter of tensor programs")
    parser.add_argument("--seconds", type=float, default=120, help="for each case")
    parser.add_argument("--results", type=Path, help="a file of lines of JSON: what it holds is not run again")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        return _as_worker(given)
    left_out = reasons()
    known: dict[str, list[str]] = {}
    if given.results is not None and given.results.exists():
        known = {name: found for name, *found in map(json.loads, given.results.read_text().splitlines())}
    excluded: collections.Counter[str] = collections.Counter()

    def chosen(name: str) -> bool:
        if given.names:
            return any(fnmatch.fnmatchcase(name, pattern) for pattern in given.names)
        reason = reason_of(name, left_out)
        excluded.update([reason] if reason else [])
        return reason is None

    counts: collections.Counter[str] = collections.Counter()
    command = [sys.executable, "-W", "ignore", "-m", "tests.pytorch.inductor_suite", *sys.argv[1:], "--worker"]
    for name, (verdict, what) in verdicts(command, chosen, known, given.seconds):
        if given.results is not None and name not in known:
            with given.results.open("a") as file:
                print(json.dumps([name, verdict, what]), file=file)
        if verdict == "skipped":
            excluded[f"PyTorch itself skips it: {what}"] += 1
            continue
        counts[verdict] += 1
        if verdict != "inside":
            print(f"{name:48} {verdict:10} {what[:300]}", flush=True)
    for reason, count in excluded.most_common():
        print(f"{count:4} left out: {reason}")
    passed = counts["inside"] + counts["in part"]
    print(f"PyTorch {torch.__version__}: {passed} of {counts.total()} cases pass with {given.backend}:", dict(counts))
    return 0 if passed >= 0.85 * counts.total() else 1


def _as_worker(given: argparse.Namespace) -> int:
    from tests.backends.interpret import ENTRY_POINTS
    from tests.unit.packages import installed

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what tests print
    with tempfile.TemporaryDirectory() as folder, installed(Path(folder), ENTRY_POINTS):
        os.environ.setdefault("OPWELD_CACHE", f"{folder}/cache")
        work(given.checkout, given.backend, {"target": "interpret"} if given.interpret else {}, answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A model made under other decisions, and how it does: what `opweld bisect` tries."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray

from opweld.backends import target_of
from opweld.build.cache import Cache
from opweld.build.workspace import temporary_folder
from opweld.errors import OptionError
from opweld.experiments.measure import alternate
from opweld.interface import TensorInfo
from opweld.ledger import Ledger
from opweld.options import Options
from opweld.pipeline import build_artifact, ledger_of
from opweld.rewrite.added import added
from opweld.rewrite.optimize import ledger_of as rewriting_ledger
from opweld.rewrite.optimize import optimize_model
from opweld.rewrite.write import save
from opweld.runtime import dtypes
from opweld.runtime.session import Session
from opweld.tensor.intern import compilation
from opweld.verification.apart import Apart
from opweld.verification.bisect import Attempt, Trial
from opweld.verification.check import Check, Reference, reference_of
from opweld.verification.reference import float64_outputs, onnxruntime_outputs

Array = NDArray[Any]

_ROUNDS = 5
_BLOCK_S = 0.1


class Judge(Protocol):
    """Says whether a compiled model is good."""

    def prepare(self, session: Session, feeds: Mapping[str, Array]) -> None:
        """Gets ready to judge, on the first session that there is; what fails here is no fault of a decision."""
        ...

    def __call__(self, session: Session, feeds: Mapping[str, Array]) -> Trial:
        """How a session does."""
        ...


class ByError:
    """Good is what `opweld verify` calls right. What it judges runs in a process of its own."""

    def __init__(self, model: Path, apart: Apart, *, rtol: float | None, atol: float | None) -> None:
        self._model, self._apart, self._rtol, self._atol = model, apart, rtol, atol
        self._reference: Reference | None = None

    def prepare(self, session: Session, feeds: Mapping[str, Array]) -> None:
        """Computes the reference."""
        if self._reference is None:
            names = [info.name for info in session.manifest.outputs]
            self._reference = reference_of(self._model, session.as_declared(feeds), names)

    def __call__(self, session: Session, feeds: Mapping[str, Array]) -> Trial:
        """The error of a session."""
        assert self._reference is not None
        outputs = self._apart.run(session.folder, session.threads, feeds)
        return _checked(self._reference.check(outputs, rtol=self._rtol, atol=self._atol))


class ByTime:
    """Good is what takes at most `ratio` times as long as the first session that it meets."""

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio
        self._first: Session | None = None

    def prepare(self, session: Session, feeds: Mapping[str, Array]) -> None:
        """Keeps the first session."""
        if self._first is None:
            self._first = session

    def __call__(self, session: Session, feeds: Mapping[str, Array]) -> Trial:
        """The time of a session as a multiple of the first one's."""
        first = self._first
        if first is None or first is session:
            return Trial(good=True, figure=1.0)
        times = alternate(
            {"first": lambda: first.run_tensors(feeds), "this": lambda: session.run_tensors(feeds)},
            rounds=_ROUNDS,
            block_s=_BLOCK_S,
        )
        ratio = times["this"].median_s / times["first"].median_s
        return Trial(ratio <= self._ratio, ratio, "" if ratio <= self._ratio else f"takes {ratio:.2f} times as long")


class CompiledAttempts:
    """Compiles a model under other decisions; nothing of it goes into the user's cache but objects of C files."""

    def __init__(
        self, model: Path, options: Options, judge: Judge, feeds: Callable[[Session], Mapping[str, Array]]
    ) -> None:
        """`feeds` makes the inputs, for the first session that there is."""
        self._model, self._options, self._judge = model, options, judge
        self._make_feeds = feeds
        self._feeds: Mapping[str, Array] | None = None

    def __call__(self, granted: Collection[str] | None, without: str) -> Attempt:
        """See `opweld.verification.bisect.Attempting`. Raises what has nothing to do with decisions: a model or option
        that is refused, inputs that do not fit, no reference."""
        ledger = ledger_of(_without(self._options, without), granted)
        with temporary_folder() as workspace, compilation():
            try:
                session = self._session(ledger, workspace)
            except Exception as error:  # Whatever a wrong decision leads to.
                if not len(ledger) or (granted is None and not without and isinstance(error, OptionError)):
                    raise
                return Attempt(ledger, _failed(error))
            if self._feeds is None:
                self._feeds = self._make_feeds(session)
            self._judge.prepare(session, self._feeds)
            try:
                return Attempt(ledger, self._judge(session, self._feeds))
            except Exception as error:  # noqa: BLE001 - a kernel at fault may lead to any
                return Attempt(ledger, _failed(error))

    def _session(self, ledger: Ledger, workspace: Path) -> Session:
        target = target_of(self._options.target)
        built = build_artifact(self._model, self._options, target, workspace, Cache.open(), ledger=ledger)
        return Session(built.folder, threads=self._options.threads or None)


class OptimizedAttempts:
    """Rewrites a model under other decisions, and compares what the rewritten one answers with what the model does."""

    def __init__(
        self,
        model: Path,
        options: Options,
        feeds: Mapping[str, Array],
        *,
        contributed: bool,
        rtol: float | None,
        atol: float | None,
    ) -> None:
        """`contributed`: operators of com.microsoft may be written too."""
        self._model, self._options, self._feeds = model, options, feeds
        self._contributed, self._rtol, self._atol = contributed, rtol, atol
        self._users = added()
        names = [value.name for value in onnx.load(model, load_external_data=False).graph.output]
        self._reference = reference_of(model, feeds, names)
        runs = self._reference.peer is not None or self._reference.optimised is not None
        self._run: Callable[[Path, Mapping[str, Any]], list[Array]] = onnxruntime_outputs if runs else float64_outputs

    def __call__(self, granted: Collection[str] | None, without: str) -> Attempt:
        """See `opweld.verification.bisect.Attempting`."""
        options = _without(self._options, without)
        opened: list[Ledger] = []

        def open_ledger() -> Ledger:
            opened.append(rewriting_ledger(options, self._users, granted))
            return opened[-1]

        try:
            with temporary_folder() as folder:
                file = folder / "rewritten.onnx"
                save(optimize_model(self._model, open_ledger, self._contributed, self._users), file)
                outputs = [_narrow(array) for array in self._run(file, self._feeds)]
                trial = _checked(self._reference.check(outputs, rtol=self._rtol, atol=self._atol))
        except Exception as error:  # Whatever a wrong decision leads to.
            first = granted is None and not without
            if not opened or not len(opened[-1]) or (first and isinstance(error, OptionError)):
                raise
            trial = _failed(error)
        return Attempt(opened[-1], trial)


def declared_inputs(model: Path) -> list[TensorInfo]:
    """The inputs of an ONNX file, stored tensors aside. Raises OptionError where one is no tensor."""
    graph = onnx.load(model, load_external_data=False).graph
    stored = {tensor.name for tensor in graph.initializer}
    found: list[TensorInfo] = []
    for value in graph.input:
        if value.name in stored:
            continue
        kind = value.type.tensor_type
        if not value.type.HasField("tensor_type") or kind.elem_type not in dtypes.NAMES:
            raise OptionError(f"input {value.name!r} is no tensor of numbers: --optimized cannot make one up")
        shape = None
        if kind.HasField("shape"):
            shape = tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in kind.shape.dim)
        found.append(TensorInfo(value.name, dtypes.NAMES[kind.elem_type], shape))
    return found


def _narrow(array: Array) -> Array:
    """Weights were combined and rounded to float32: an evaluation in float64 is held to that."""
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _without(options: Options, identity: str) -> Options:
    return replace(options, disable=(*options.disable, identity)) if identity else options


def _checked(check: Check) -> Trial:
    wrong = [f"{c.name} {c.problem.partition(': error ')[0]}" for c in check.comparisons if not c.passed]
    return Trial(check.passed, check.error, wrong[0] if wrong else "")


def _failed(error: Exception) -> Trial:
    return Trial(good=False, figure=math.inf, problem=f"{type(error).__name__}: {error}")

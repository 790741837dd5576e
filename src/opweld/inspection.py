"""Explain, analyze and profile models: files, artifacts, and open models and sessions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, cast

from opweld.build.artifact import MANIFEST
from opweld.errors import OptionError
from opweld.option import documented
from opweld.options import CompileOptions, Options
from opweld.runtime.session import Session

if TYPE_CHECKING:
    from opweld.account.explained import Explanation
    from opweld.analysis.analysis import Analysis
    from opweld.analysis.profile import ModelProfile
    from opweld.compile import Model, ModelSource
    from opweld.onnxruntime import InferenceSession

Inspected: TypeAlias = "ModelSource | Model | InferenceSession | Session"
"""A model as `compile` takes it, the path of an artifact, or what is open: a Model or a session."""


@dataclass(frozen=True)
class _Open:
    """An artifact: its folder, and the session where it is open."""

    folder: Path
    session: Session | None = None


@documented(Options)
def explain(model: Inspected, **options: Unpack[CompileOptions]) -> Explanation:
    """What was decided of a model, what was not, and why: printed, it is what `opweld explain` prints.

    `node(name)` of the answer follows a node of the graph to its kernel, `rule(name)` lists decisions of one kind,
    `all()` every decision and kernel; `decisions` are data, `to_json()` is what docs/explain.schema.json describes.

    Args:
        model: as for `compile`; the folder of an artifact; a Model, or a session.
        options: see docs/options.md.

    Where it is to be compiled, no C compiler is needed. Raises what `compile` raises; OptionError for options of what
    is compiled already.
    """
    from opweld.account.explained import Explanation
    from opweld.accounts import account_of, left_without_compiler
    from opweld.analysis.resources import kernel_instructions

    found = _open(model, options)
    if found is not None:
        return Explanation(account_of(found.folder), _name(model, found), found.folder, kernel_instructions)
    account, folder = left_without_compiler(model, Options.of(**options))
    return Explanation(account, _name(model, None), folder, kernel_instructions)


@documented(Options)
def analyze(model: Inspected, *, sizes: Mapping[str, int] | None = None, **options: Unpack[CompileOptions]) -> Analysis:
    """What a model costs, node by node and kernel by kernel, before and after it is compiled: parameters, operations,
    bytes, memory, as numbers and as formulas of the symbolic sizes.

    `frame()` of the answer makes a pandas.DataFrame. What kernels are bound by is said where `opweld machine` measured
    this machine.

    Args:
        model: as for `explain`.
        sizes: of symbolic dims; the others are as expected.
        options: see docs/options.md.

    Where it is to be compiled, no C compiler is needed: all is told but the memory that a run takes, and sizes are
    those that the model is expected to have. Raises what `compile` raises; OptionError for sizes that are none, and for
    options of what is compiled already.
    """
    from opweld.accounts import account_of, left_without_compiler
    from opweld.analysis.analysis import analysis_of
    from opweld.analysis.machine import Machine
    from opweld.analysis.usual_run import most_threads, planned

    for name, size in (sizes or {}).items():
        if not isinstance(cast(object, size), int) or size < 1:
            raise OptionError(f"sizes: {name!r} is {size!r}, expected a positive whole number")
    found, chosen = _open(model, options), Options.of(**options)
    if found is None:
        account, folder = left_without_compiler(model, chosen)
        found = None if folder is None else _Open(folder)
    else:
        account = account_of(found.folder)
    fed, plan = planned(found and (found.session or found.folder), account, sizes or {}, chosen.threads)
    return analysis_of(account, fed, Machine.remembered(), plan, threads=most_threads(chosen))


def profile(session: Session, feeds: Mapping[str, Any] | None = None, *, runs: int | None = None) -> ModelProfile:
    """Where the time of a run goes, kernel by kernel; see `Model.profile`."""
    from opweld.accounts import account_of
    from opweld.analysis.machine import Machine
    from opweld.analysis.profiled import profiled
    from opweld.verification.inputs import fitting_inputs

    if runs is not None and (not isinstance(cast(object, runs), int) or runs < 1):
        raise OptionError(f"runs is {runs!r}, expected a positive whole number")
    if feeds is None:
        feeds, _ = fitting_inputs(session.manifest.inputs, session.check, given={}, dims={})
    return profiled(session, feeds, account_of(session.folder), Machine.remembered(), runs)


def _open(model: object, options: Mapping[str, Any]) -> _Open | None:
    """The artifact that a model is, or None for one that is to be compiled."""
    found = _artifact(model)
    if found is not None and options:
        names = ", ".join(options)
        raise OptionError(f"{names}: the model is compiled already; options are for what is to be compiled")
    return found


def _artifact(model: object) -> _Open | None:
    session = model if isinstance(model, Session) else getattr(model, "session", None)  # of a Model, InferenceSession
    if isinstance(session, Session):
        return _Open(session.folder, session)
    if isinstance(model, str | os.PathLike):
        path = Path(cast("str | os.PathLike[str]", model))
        return _Open(path) if (path / MANIFEST).is_file() else None
    return None


def _name(model: object, found: _Open | None) -> str:
    if isinstance(model, str | os.PathLike):
        return os.fspath(cast("str | os.PathLike[str]", model))
    return "the model" if found is None else str(found.folder)

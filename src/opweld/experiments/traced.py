"""The values that a compiled model keeps in memory, compared: where an error begins, and where a NaN."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import onnx

from opweld.backends import target_of
from opweld.build.cache import Cache
from opweld.build.workspace import temporary_folder
from opweld.errors import UnsupportedError
from opweld.experiments.opened import Opened
from opweld.option import documented
from opweld.options import CompileOptions, Options
from opweld.pipeline import build_artifact
from opweld.runtime.fitted import FittedSessions
from opweld.runtime.session import Session
from opweld.tensor.intern import compilation
from opweld.verification.asked import check_asked
from opweld.verification.check import check_tolerances
from opweld.verification.inputs import Given
from opweld.verification.intermediates import (
    Intermediate,
    Kept,
    Tracing,
    compare_values,
    first_undefined,
    read_values,
)
from opweld.verification.reference import float64_values, onnxruntime_values, own_values

if TYPE_CHECKING:
    from opweld.compile import Progress


@dataclass(frozen=True)
class Trace:
    """What a model keeps in memory, compared.

    Attributes:
        values: in the order of the graph.
        undefined: the first value that has NaNs in float64 too: its name, its node, and how many; None where none has.
        notes: what could not be had, in sentences.
    """

    values: tuple[Intermediate, ...]
    undefined: tuple[str, str, int] | None
    notes: tuple[str, ...]


@documented(Options)
def trace(
    model: str | os.PathLike[str],
    feeds: Mapping[str, Given] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
    progress: Progress | None = None,
    **options: Unpack[CompileOptions],
) -> Trace:
    """Compiles and runs a model, and compares the values of the graph that it keeps in memory with those of the model
    itself, in float64: what `opweld verify --intermediates` prints.

    Args:
        model: the path of an ONNX file.
        feeds: by input, an array, or a text as `opweld run --input` takes it; what is not given is made up.
        sizes: of symbolic dims of inputs that are made up.
        seed: of inputs that are made up.
        rtol: tolerance as a part of each value's scale; by dtype and by ONNX Runtime's own error where None.
        atol: tolerance of the difference itself.
        progress: called with (what is being done, steps done, steps in all).
        options: see docs/options.md.

    Raises what `compile` raises; RunError naming the node when a kernel meets a bad index, UnsupportedError for a model
    without a reference in float64."""
    check_tolerances(rtol=rtol, atol=atol)
    path, given, dims, chosen = Path(model), feeds or {}, sizes or {}, Options.of(**options)
    check_asked(path, given, dims, seed)
    tracing = Tracing()
    with temporary_folder() as workspace, compilation():
        target = target_of(chosen.target)
        built = build_artifact(path, chosen, target, workspace, Cache.open(), progress, stage=tracing)
        session = Session(built.folder, threads=chosen.threads or None)
        fed = Opened(session, FittedSessions(session, None)).feeds(given, dims, seed)
        read = read_values(session, tracing.traced, fed)
        declared = session.as_declared(fed)
    if progress is not None:
        progress("computing in float64", 0, 0)
    return compared(path, read, declared, float64_values(path, declared), rtol=rtol, atol=atol)


def compared(
    model: Path,
    read: Sequence[tuple[Kept, Any]],
    fed: Mapping[str, Any],
    right: Mapping[str, Any],
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> Trace:
    """What a compiled model kept of `fed`, beside the values of the graph in float64 and ONNX Runtime's."""
    notes: list[str] = []
    peer: Mapping[str, Any] = {}
    try:
        peer = onnxruntime_values(model, fed, [kept.name for kept, _ in read if kept.name in right])
    except UnsupportedError as error:
        notes.append(str(error))
    graph = onnx.load(model, load_external_data=False).graph

    def own() -> Mapping[str, Any]:
        try:
            return own_values(model, fed)
        except UnsupportedError as error:
            notes.append(str(error))
            return {}

    values = compare_values(graph, read, right, peer, own, rtol=rtol, atol=atol)
    return Trace(tuple(values), first_undefined(graph, right), tuple(notes))

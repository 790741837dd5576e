"""The artifact of a model of which something was measured while it was compiled."""

from __future__ import annotations

import itertools
import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opweld.backends import backend_of
from opweld.build import artifact
from opweld.errors import OptionError, OpweldError
from opweld.frontend.program import Program
from opweld.ledger import Decision, Measured
from opweld.options import Environment, Options
from opweld.pipeline import Built, build_artifact, ledger_of, read
from opweld.rewrite.hoist import candidates_of
from opweld.runtime.cuda.device import capability, is_interpreted
from opweld.stages import Reported, Watched
from opweld.target import Gpu, Target, TargetMachine
from opweld.tensor.intern import compilation
from opweld.tune.candidates import prove
from opweld.tune.effort import EFFORTS
from opweld.tune.trial import Trial
from opweld.tune.tune import feeds_of, tune

if TYPE_CHECKING:
    from opweld.build.cache import Cache
    from opweld.compile import Progress

_log = logging.getLogger("opweld")


class UntunableError(OpweldError):
    """Nothing could be measured of a model; `untuned` is what it is without."""

    def __init__(self, message: str, untuned: Built) -> None:
        super().__init__(message)
        self.untuned = untuned


def build_measured(
    model: object, options: Options, target: TargetMachine, workspace: Path, cache: Cache, progress: Progress | None
) -> Built:
    """The artifact of a model: what other packages want measured was tried on this machine (`prove`), and with
    `options.tune` other schedules were (`tune`). What cannot be tried of the former is left out, with a warning.

    Raises OptionError where tuning is asked for and this machine cannot run what is compiled for the target,
    UntunableError where it is for a model that cannot be run with inputs that are made up."""
    runs_here = _runs_here(target)
    if options.tune != "off" and isinstance(target, Gpu):
        raise OptionError(f"tune={options.tune}: schedules are those of processors, and {target.name} is a GPU")
    if options.tune != "off" and not runs_here:
        raise OptionError(
            f"tune={options.tune}: this machine cannot run code for {target.name}, so nothing can be measured; "
            "tune on one that can, and give the artifact's schedules.txt back with --schedules"
        )
    with compilation():
        trials = _Trials(model, options, target, workspace, cache, progress)
        base = trials.of(trials.read({}))
        candidates = candidates_of(trials.built[base.folder].ledger, options.rules) if runs_here else []
        if not candidates:
            trials.check(base)
        base = _proved(trials, base, candidates)
        if options.tune != "off":
            base = _tuned(trials, base, options)
        trials.check(base)
        return trials.built[base.folder]


def _runs_here(target: TargetMachine) -> bool:
    """Whether this machine runs what is compiled for the target, and tells how long each kernel takes; or Triton's
    interpreter runs it, which tells only what is right."""
    if isinstance(target, Gpu):
        found = None if is_interpreted() else capability()
        return is_interpreted() or (found is not None and found[0] == target.architecture_number // 10)
    if not isinstance(target, Target):
        return False
    here = Target.native()
    return target.architecture == here.architecture and set(target.features) <= set(here.features)


def _proved(trials: _Trials, base: Trial, candidates: Sequence[Decision]) -> Trial:
    """The model with those candidates that are right and faster."""
    if not candidates:
        return base
    try:
        feeds = feeds_of(base, trials.options.dim_hints)
        base.entry(feeds)
    except OpweldError as error:
        names = ", ".join(dict.fromkeys(candidate.rule for candidate in candidates))
        _log.warning("%s is left out, for it cannot be measured: %s", names, error)
        return base

    def build(measured: Mapping[str, Measured]) -> Trial:
        return trials.of(trials.read(measured))

    begun = time.monotonic()
    timed = not (isinstance(trials.target, Gpu) and is_interpreted())
    kept, found = prove(base, build, candidates, feeds, EFFORTS["quick"], timed=timed)
    trials.begun += time.monotonic() - begun
    if kept is not base:
        base.discard()
    return trials.annotated(kept, found)


def _tuned(trials: _Trials, base: Trial, options: Options) -> Trial:
    source = trials.sources[base.folder]

    def build(measured: Mapping[str, Measured]) -> Trial:
        return trials.of(replace(source, ledger=source.ledger.with_measured(measured)))

    try:
        best, measured = tune(base, build, EFFORTS[options.tune], options.dim_hints, trials.begun, trials.progress)
    except OpweldError as error:
        raise UntunableError(str(error), trials.built[base.folder]) from error
    return trials.annotated(best, measured)


class _Trials:
    """Artifacts of one model in folders of a workspace.

    Attributes:
        target: what for. built, sources: what was compiled, and what from, by folder.
        begun: when, by the monotonic clock."""

    def __init__(
        self,
        model: object,
        options: Options,
        target: TargetMachine,
        workspace: Path,
        cache: Cache,
        progress: Progress | None,
    ) -> None:
        self.options = options
        self.progress = progress
        self.begun = time.monotonic()
        self.built: dict[Path, Built] = {}
        self.sources: dict[Path, Program] = {}
        self._model, self.target, self._workspace, self._cache = model, target, workspace, cache
        environment, stages = Environment.read(), backend_of(target).stages()
        watched = Watched(environment.dump, environment.debug)
        self._seen = Reported(watched, progress, stages.beginnings, stages.building)
        self._numbers = itertools.count(1)

    def read(self, measured: Mapping[str, Measured]) -> Program:
        """The model, rewritten as was measured."""
        return read(self._model, self.options, ledger_of(self.options, measured=measured), self._seen)

    def of(self, source: Program) -> Trial:
        """What is read of the model, compiled. It is shown only the first time."""
        folder = self._workspace / f"trial-{next(self._numbers)}"
        folder.mkdir()
        shown: Callable[..., Any] | None = None if self.built else self.progress
        start = time.monotonic()
        begun = replace(source, ledger=source.ledger.with_measured())
        try:
            made = build_artifact(
                self._model, self.options, self.target, folder, self._cache, shown, source=begun, check=False
            )
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # weights of many trials would fill a disk
            raise
        self.built[made.folder], self.sources[made.folder] = made, source
        return Trial(made.folder, made.account, self.options.threads, time.monotonic() - start)

    def check(self, trial: Trial) -> None:
        """Raises OptionError where something that the user named was never decided."""
        self.built[trial.folder].check()

    def annotated(self, trial: Trial, measured: Mapping[str, Measured]) -> Trial:
        """A trial whose ledger is annotated with what was measured."""
        made, source = self.built[trial.folder], self.sources[trial.folder]
        ledger = made.ledger.annotated(measured)
        artifact.relate(made.folder, ledger.dumps())
        self.built[trial.folder] = replace(made, ledger=ledger)
        self.sources[trial.folder] = replace(source, ledger=source.ledger.annotated(measured))
        return replace(trial, account=self.built[trial.folder].account)

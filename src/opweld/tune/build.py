"""The artifact of a tuned model."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opweld.errors import OptionError, OpweldError
from opweld.ledger import Measured
from opweld.options import Environment, Options
from opweld.pipeline import Built, build_artifact, ledger_of, read
from opweld.runtime.session import Session
from opweld.stages import Reported, Watched
from opweld.target import Target
from opweld.tensor.intern import compilation
from opweld.tune.effort import EFFORTS
from opweld.tune.trial import Trial
from opweld.tune.tune import tune

if TYPE_CHECKING:
    from opweld.build.cache import Cache
    from opweld.compile import Progress


class UntunableError(OpweldError):
    """Nothing could be measured of a model, which can be compiled as ever."""


def build_tuned(
    model: Any, options: Options, target: Target, workspace: Path, cache: Cache, progress: Progress | None
) -> Built:
    """The artifact of a model whose schedules were tried on this machine. See `tune`.

    Raises OptionError where this machine cannot run what is compiled for the target, UntunableError for a model that
    cannot be run with inputs that are made up."""
    here = Target.native()
    if target.architecture != here.architecture or not set(target.features) <= set(here.features):
        raise OptionError(
            f"tune={options.tune}: this machine cannot run code for {target.name}, so nothing can be measured; "
            "tune on one that can, and give the artifact's schedules.txt back with --schedules"
        )
    with compilation():
        environment = Environment.read()
        seen = Reported(Watched(environment.dump, environment.debug), progress)
        source = read(model, options, ledger_of(options), seen)
        numbers, built = itertools.count(1), dict[Path, Built]()

        def build(measured: Mapping[str, Measured]) -> Trial:
            folder = workspace / f"trial-{next(numbers)}"
            folder.mkdir()
            again = replace(source, ledger=source.ledger.with_measured(measured))
            shown = None if built else progress
            made = build_artifact(model, options, target, folder, cache, shown, source=again)
            built[made.folder] = made
            session = Session(made.folder, threads=options.threads or None)
            return Trial(made.folder, made.account, session, dict(measured))

        base = build({})
        try:
            best = tune(base, build, EFFORTS[options.tune], options.dim_hints, progress)
        except OpweldError as error:
            raise UntunableError(str(error)) from error
        return built[best.folder]

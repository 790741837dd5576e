"""Accounts of compilations without a C compiler: read from an artifact or the cache, or computed now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from opweld.account.account import Account
from opweld.backends import target_of
from opweld.build import artifact
from opweld.build.cache import Cache
from opweld.cached import compile_model, external_digests, find_model, key_without_compiler, measures
from opweld.errors import ArtifactError, OptionError
from opweld.frontends import source_of
from opweld.frontends.source import Source
from opweld.ledger import Ledger
from opweld.naming import check_names
from opweld.options import Environment, Options
from opweld.record import Record
from opweld.schedule.file import parse_schedules
from opweld.shortage import shortages
from opweld.typed import decoded

if TYPE_CHECKING:
    from opweld.compile import Progress

KIND = "accounts"
"""The kind of these entries in the cache."""

_EXTERNAL = "external.json"


def account_of(folder: Path) -> Account:
    """The account in an artifact. Raises ArtifactError where it cannot be read."""
    names = (artifact.LEDGER, artifact.SCHEDULES, artifact.GRAPH)
    try:
        ledger, schedules, graph = ((folder / name).read_text(encoding="utf-8") for name in names)
        given = parse_schedules(schedules, str(folder / artifact.SCHEDULES))
        return Account(Ledger.loads(ledger), given, Record.loads(graph))
    except (OSError, UnicodeDecodeError, OptionError) as error:
        raise ArtifactError(f"cannot read the decisions of {folder} ({error}); compile the model again") from error


@shortages()
def left_without_compiler(
    model: object, options: Options, progress: Progress | None = None
) -> tuple[Account, Path | None]:
    """The account of compiling a model, and its artifact where the cache has one.

    A C compiler is started only for choices that are measured. Raises what the stages before building raise."""
    source = source_of(model)
    if options.disable or options.pins:
        from opweld.pipeline import decision_rules

        check_names(options.disable, options.pins, decision_rules(options))
    if measures(options) or Environment.read().watches:
        compiled = compile_model(source, options, progress)
    else:
        compiled = find_model(source, options)
    if compiled is not None:
        return account_of(compiled), compiled
    cache = Cache.open()
    key = key_without_compiler(source, options)
    return _kept(cache, key, source) or _found(cache, key, source, options, progress), None


def _kept(cache: Cache, key: str, source: Source) -> Account | None:
    """The account under a key, if it can be read and the model's external data has not changed."""
    folder = cache.find_folder(KIND, key)
    if folder is None:
        return None
    try:
        external = decoded(dict[str, str], (folder / _EXTERNAL).read_text(encoding="utf-8"), _EXTERNAL)
        if external == external_digests(cache, source, external):
            return account_of(folder)
    except (ArtifactError, OSError, ValueError, TypeError):
        pass
    cache.discard(KIND, key)
    return None


def _found(cache: Cache, key: str, source: Source, options: Options, progress: Progress | None) -> Account:
    from opweld.pipeline import dry_run_texts
    from opweld.tensor.intern import compilation

    with compilation():
        texts, named = dry_run_texts(source, options, target_of(options.target), progress)
    external = external_digests(cache, source, named)

    def fill(folder: Path) -> None:
        for name, text in {**texts, _EXTERNAL: json.dumps(external)}.items():
            (folder / name).write_text(text, encoding="utf-8")

    made = account_of(cache.publish_folder(KIND, key, fill))
    cache.prune_at_times(Environment.read().cache_limit)
    return made

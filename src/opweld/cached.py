"""The artifact of a model in the user's cache: found there, or compiled now."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache as remember
from pathlib import Path
from typing import TYPE_CHECKING

from opweld import extensions
from opweld.backends import backend_of, target_of
from opweld.build import artifact
from opweld.build.cache import Cache
from opweld.build.stored import NAME, stored
from opweld.build.workspace import temporary_folder
from opweld.errors import ArtifactError
from opweld.frontends import source_of
from opweld.frontends.source import Source
from opweld.naming import check_names
from opweld.options import Environment, Options
from opweld.shortage import shortages
from opweld.target import TargetMachine, processor_name
from opweld.typed import decoded

if TYPE_CHECKING:
    from opweld.build.turns import Holder
    from opweld.compile import Progress
    from opweld.pipeline import Built
    from opweld.stages import Stage

_log = logging.getLogger("opweld")

NEWEST = "newest"
"""The kind of the cache's entries that name the newest artifact of a model."""

_ANY_TOOLCHAIN = "any toolchain"
_IS_KEY = re.compile("[0-9a-f]{64}")

LIBRARIES = ("onnx", "onnx-ir", "numpy", "ml-dtypes")
"""Libraries whose versions are part of a key: onnx converts opsets and infers shapes, numpy and ml_dtypes fold
constants."""


@shortages()
def compile_model(
    model: object, options: Options, progress: Progress | None = None, watched: Stage | None = None
) -> Path:
    """The artifact folder of a model in the user's cache, compiled now if it is not there yet.

    Where another process compiles the same, this one waits for it and says so to `progress`; nothing is printed.

    With OPWELD_DUMP or OPWELD_DEBUG the stages always run, to be dumped or verified. A sound entry of the cache is
    kept, because other processes may be opening it and equal keys give equal artifacts; of a tuned one, the dumped
    texts are those of tuning again. The stages run through `watched` too, unless something is measured: then they run
    several times."""
    source = source_of(model)
    if options.rules:
        from opweld.rewrite.hoist import added

        added(options.rules)  # what is none is said before anything is compiled
    if options.disable or options.pins:
        from opweld.pipeline import decision_rules

        check_names(options.disable, options.pins, decision_rules(options))
    cache = Cache.open()
    target = target_of(options.target)
    key = _key(source, options, target, cache)
    runs_anyhow = Environment.read().watches or not (watched is None or measures(options))
    if not runs_anyhow and (found := _cached(cache, key, source)) is not None:
        return found

    def wait(holder: Holder | None) -> None:
        text = f"waiting for {holder or 'another process'}, which compiles the same model"
        _log.info("%s: %s", text, source.title)
        if progress is not None:
            progress(text, 0, 0)

    with cache.turn(key, wait):
        if not runs_anyhow and (found := _cached(cache, key, source)) is not None:
            return found  # another process has made it meanwhile
        return _compiled(source, options, target, cache, key, progress, watched)


def _compiled(
    source: Source,
    options: Options,
    target: TargetMachine,
    cache: Cache,
    key: str,
    progress: Progress | None,
    watched: Stage | None,
) -> Path:
    title = source.title
    untuned = key if options.tune == "off" else _key(source, replace(options, tune="off"), target, cache)
    _log.info("compiling %s", title)
    start = time.perf_counter()
    with temporary_folder() as workspace:
        made, tuned = _built(source, options, target, workspace, cache, progress, watched)
        _log.info("compiled %s in %.1f s", title, time.perf_counter() - start)

        def fill(folder: Path) -> None:
            shutil.copytree(made.folder, folder / NAME, copy_function=_linked)
            (folder / "external.json").write_text(json.dumps(made.external), encoding="utf-8")

        names = dict.fromkeys((key, key if tuned else untuned))
        folders = [cache.publish_folder("models", name, fill) for name in names]
    if not measures(options):
        cache.publish_text(NEWEST, _key(source, options, target, cache, _ANY_TOOLCHAIN), key)
    for folder in folders:  # when the workspace is gone: a file that loses a link is another one to the cache
        artifact.remember(folder / NAME, cache)
    cache.prune_at_times(Environment.read().cache_limit)
    return folders[0] / NAME


def kept(folder: Path) -> tuple[str, dict[str, bytes]]:
    """The key of an artifact of the cache, and the content of its files by name. Raises ArtifactError where it is
    damaged."""
    names = (artifact.MANIFEST, *artifact.read(folder).files)
    return folder.parent.name, {name: (folder / name).read_bytes() for name in names}


def restored(key: str, files: Mapping[str, bytes]) -> Path:
    """The artifact that the cache has under a key; these files become it where there is none."""

    def fill(folder: Path) -> None:
        for name, content in files.items():
            path = folder / NAME / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        (folder / "external.json").write_text("{}", encoding="utf-8")

    return stored(Cache.open(), "models", key, fill)


def _linked(source: str, target: str) -> None:
    """Hard-links a file that will be removed, or copies it where the file systems differ."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _built(
    source: Source,
    options: Options,
    target: TargetMachine,
    workspace: Path,
    cache: Cache,
    progress: Progress | None,
    watched: Stage | None,
) -> tuple[Built, bool]:
    """Builds the artifact; returns it, and whether requested tuning took place (else a warning says why not)."""
    if measures(options):
        from opweld.tune.build import UntunableError, build_measured

        try:
            return build_measured(source, options, target, workspace, cache, progress), True
        except UntunableError as error:
            _log.warning("not tuned: %s", error)
            return error.untuned, False
    from opweld.pipeline import build_artifact
    from opweld.stages import plain
    from opweld.tensor.intern import compilation

    with compilation():
        return build_artifact(source, options, target, workspace, cache, progress, stage=watched or plain), True


def measures(options: Options) -> bool:
    """Whether the compilation may time kernels: for tuning, or for rules of other packages that require it."""
    return options.tune != "off" or bool(options.rules) or extensions.count(extensions.RULES) > 0


def find_model(source: Source, options: Options) -> Path | None:
    """The newest artifact of a model in the user's cache, whichever C compiler made it; None where there is none.

    No C compiler is started to look."""
    cache = Cache.open()
    key = cache.find_text(NEWEST, key_without_compiler(source, options))
    return None if key is None or not _IS_KEY.fullmatch(key) else _cached(cache, key, source)


def key_without_compiler(source: Source, options: Options) -> str:
    """The cache key of a model without the C compiler's part: equal keys mean equal decisions."""
    return _key(source, options, target_of(options.target), Cache.open(), _ANY_TOOLCHAIN)


def external_digests(cache: Cache, source: Source, names: Iterable[str]) -> dict[str, str]:
    """The digests of files beside a model. Raises OSError."""
    return {name: cache.file_digest(source.folder / name) for name in names}


def _key(source: Source, options: Options, target: TargetMachine, cache: Cache, toolchain: str = "") -> str:
    from opweld import __version__

    toolchain = toolchain or backend_of(target).toolchain()
    sources = sources_digest(), library_versions(), extensions.digest(options.rules)
    machine = f"{processor_name()}, {options.threads} threads" if measures(options) else ""
    parts = (source.digest(cache), options.digest(), target.digest(), machine, __version__, toolchain, *sources)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@remember
def library_versions() -> str:
    """The installed versions of `LIBRARIES`, found without importing them."""
    from importlib import metadata

    def version(name: str) -> str:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:  # what is in the cache opens without it
            return "absent"

    return ", ".join(f"{name} {version(name)}" for name in LIBRARIES)


@remember
def sources_digest() -> str:
    """A digest of the compiler's own source, so that a changed compiler never finds an old artifact."""
    digest = hashlib.sha256()
    folders = os.walk(Path(__file__).parent)  # texts, not paths: a thousand files, and every process asks once
    names = (f"{folder}/{name}" for folder, _, names in folders for name in names)
    for name in sorted(name for name in names if name.endswith((".py", ".c", ".h"))):
        with open(name, "rb", buffering=0) as file:
            digest.update(file.read())
    return digest.hexdigest()


def _cached(cache: Cache, key: str, source: Source) -> Path | None:
    """The artifact under a key, if it is whole and the model's external data has not changed."""
    folder = cache.find_folder("models", key)
    if folder is None:
        return None
    try:
        artifact.read(folder / NAME, verify=True)
        external = decoded(dict[str, str], (folder / "external.json").read_text(encoding="utf-8"), "external.json")
        current = external_digests(cache, source, external)
    except (ArtifactError, OSError, ValueError, TypeError):
        cache.discard("models", key)
        return None
    if current != external:
        cache.discard("models", key)
        return None
    return folder / NAME

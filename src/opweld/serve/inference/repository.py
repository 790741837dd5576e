"""Models by name and version: found in files and folders, loaded, replaced and unloaded while calls run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from opweld.collector import pass_over_what_there_is
from opweld.errors import ModelError, OptionError, OpweldError
from opweld.runtime.session import Session
from opweld.serve.inference.compiling import Compiler
from opweld.serve.inference.dispatcher import Dispatcher
from opweld.serve.inference.examined import examined
from opweld.serve.inference.layout import Place, by_name, is_artifact, is_model, is_program, place_of, places_of
from opweld.serve.inference.loaded import LoadedModel
from opweld.serve.inference.model import Entry, Statistics, TensorModel
from opweld.serve.inference.program import check_no_circle
from opweld.serve.inference.program_model import ProgramModel
from opweld.serve.inference.settings import Settings, chosen, read_settings
from opweld.serve.inference.settled import settled
from opweld.serve.inference.tensors import Tensors
from opweld.serve.inference.workers import Workers, apart
from opweld.serve.processes.part import Part
from opweld.serve.refusal import Refusal

Tell: TypeAlias = Callable[[str], None]
"""Called with a line about what is being done."""

Opened: TypeAlias = LoadedModel | ProgramModel
"""A version that answers calls, until it is closed."""

_END: Final = 5.0
"""Seconds that runs have to end when a repository is closed: who wanted their answers is gone."""

_FRESH: Final = 1.0
"""Seconds for which it is remembered what is on disk: clients may ask for any name as often as they like."""

_UNUSED = "its version is not served; opweld.toml chooses with `versions`"
_UNLOADED = "unloaded"
_WHOLE: Final = Part()


class ModelRepository:
    """See `Repository`. Its methods are called on one event loop, except for those that say otherwise.

    Clients of Triton know what fails by its words: what there is not is told as Triton's server does."""

    def __init__(
        self,
        paths: Iterable[tuple[str | None, Path]],
        usual: Settings | None = None,
        tell: Tell | None = None,
        part: Part = _WHOLE,
    ) -> None:
        """
        Args:
            paths: names and paths: of a model, or without a name of a folder of models.
            usual: settings of models whose file says nothing.
            tell: is told what is loaded; from any thread.
            part: of the machine, and of what settings allow, that this process has.

        Raises OptionError where two models that are given have the same name, MissingModelError where there is no such
        path, ModelError where it cannot be read.
        """
        self._paths, self._usual, self._tell = list(paths), usual or Settings(), tell or _silent
        self._part = part
        self._loaded: dict[str, dict[str, Opened]] = {}
        self._faults: dict[tuple[str, str], str] = {}
        self._busy: dict[str, str] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._workers = Workers(part.processors)
        self._dispatcher = Dispatcher(self._workers)
        self._compiler = Compiler()
        self._known, self._walked = self._found(), time.monotonic()

    # ---- what there is ----

    def __iter__(self) -> Iterator[Opened]:
        """All versions that are loaded."""
        return iter([model for versions in self._loaded.values() for model in versions.values()])

    def get(self, name: str, version: str = "") -> Opened:
        """See `Repository`."""
        versions = self._of(name)
        if not version:
            return versions[next(reversed(versions))]
        if version not in versions:
            failed = f"failed to get model version from specified version string {version!r}"
            raise Refusal(404, f"{failed}: of {name!r} these are loaded: {', '.join(versions)}")
        return versions[version]

    def versions(self, name: str) -> Sequence[str]:
        """See `Repository`."""
        return list(self._of(name))

    def index(self) -> Sequence[Entry]:
        """See `Repository`."""
        found: list[Entry] = []
        places = self._places()
        for name in sorted({*places, *self._loaded}):
            loaded = self._loaded.get(name, {})
            place = places.get(name)
            on_disk = {*place.versions, *place.faults} if place else set[str]()
            for version in sorted({*loaded, *on_disk}, key=int):
                found.append(self._entry(name, version, version in loaded, place))
        return found

    def _entry(self, name: str, version: str, loaded: bool, place: Place | None) -> Entry:
        if loaded:  # and answers, while it is loaded anew too
            return Entry(name, version, "READY")
        if name in self._busy:
            return Entry(name, version, self._busy[name])
        reason = self._faults.get((name, version)) or (place.faults.get(version) if place else None)
        return Entry(name, version, "UNAVAILABLE", reason or (_UNUSED if name in self._loaded else _UNLOADED))

    def _of(self, name: str) -> dict[str, Opened]:
        if (versions := self._loaded.get(name)) is not None:
            return versions
        if name in self._places():
            raise Refusal(400, f"the model {name!r} is not loaded")
        known = ", ".join(map(repr, sorted(self._loaded))) or "none"
        raise Refusal(404, f"Request for unknown model: there is no model {name!r}; there are {known}")

    def _places(self) -> Mapping[str, Place]:
        """What files and folders held within the last second."""
        now = time.monotonic()
        if now - self._walked > _FRESH:
            self._known, self._walked = self._walk(), now
        return self._known

    def _walk(self) -> Mapping[str, Place]:
        """What files and folders hold now, as far as they can be read. In any thread."""
        places: list[Place] = []
        for name, path in self._paths:
            with suppress(ModelError, OSError):
                places += _places_at(name, path)
        return by_name(places)

    def _found(self) -> Mapping[str, Place]:
        """The same. Raises as the constructor."""
        given: set[str] = set()
        places: list[Place] = []
        for name, path in self._paths:
            here = _places_at(name, path)
            if name or is_model(path):
                if here[0].name in given:
                    raise OptionError(f"two models are named {here[0].name!r}; name one of them with NAME=MODEL")
                given.add(here[0].name)
            places += here
        return by_name(places)

    async def _place(self, name: str) -> Place:
        """What is to be loaded as a model. Raises Refusal of status 404 where there is nothing."""
        self._known, self._walked = await apart(self._walk, "opweld-walk"), time.monotonic()
        if (place := self._known.get(name)) is None:
            raise Refusal(404, f"failed to load {name!r}: there is no such model")
        return place

    # ---- loading ----

    def load_all(self) -> None:
        """Loads all models, before there is a loop. Those that cannot be are told of, and stay unavailable.

        Raises ModelError where none can be."""
        for place in self._places().values():
            try:
                opened = self._open(place)
                self._check_no_circle(place.name, opened)
                self._loaded[place.name] = opened
            except OpweldError as error:
                self._tell(f"{place.name}: {error}")
        if not self._loaded:
            raise ModelError("no model could be loaded")

    async def load(self, name: str) -> None:
        """See `Repository`."""
        await self._place(name)  # no lock is kept for a name that there is not
        async with self._locks.setdefault(name, asyncio.Lock()):
            place = await self._place(name)
            self._busy[name] = "LOADING"
            try:
                opened = await apart(partial(self._open, place), "opweld-load")
            finally:
                del self._busy[name]
            self._check_no_circle(name, opened)
            before = self._loaded.get(name, {})
            self._loaded[name] = opened
            for model in before.values():
                model.close()
            pass_over_what_there_is()

    async def unload(self, name: str) -> None:
        """See `Repository`."""
        self._of(name)
        async with self._locks.setdefault(name, asyncio.Lock()):
            for model in self._of(name).values():
                model.close()
            del self._loaded[name]
            pass_over_what_there_is()

    async def statistics(self, models: Sequence[TensorModel]) -> Sequence[Statistics]:
        """See `Repository`."""
        return [model.statistics for model in models]

    @property
    def failed(self) -> Sequence[str]:
        """See `Repository`."""
        return ()

    async def close(self) -> None:
        """See `Repository`."""
        for versions in self._loaded.values():
            for model in versions.values():
                model.close()
        self._compiler.close()
        until = time.monotonic() + _END
        try:
            async with asyncio.timeout(_END):
                await self._dispatcher.drain()
        except TimeoutError:
            self._tell("runs that have not ended are cut short")
        await asyncio.to_thread(self._workers.close, max(0.0, until - time.monotonic()))

    def _check_no_circle(self, name: str, opened: Mapping[str, Opened]) -> None:
        """Raises ModelError where these versions of a model would call themselves by way of others."""
        uses = {
            known: [used for model in versions.values() if isinstance(model, ProgramModel) for used in model.uses]
            for known, versions in {**self._loaded, name: opened}.items()
        }
        try:
            check_no_circle(name, uses)
        except ModelError as error:
            self._faults.update({(name, version): str(error) for version in opened})
            _close(opened)
            raise

    def _open(self, place: Place) -> dict[str, Opened]:
        """The versions of a model that are served, the oldest first: all of them, or an error. In any thread."""
        try:
            return self._open_versions(place)
        except OSError as error:
            raise ModelError(f"cannot read the model: {error}") from error

    def _open_versions(self, place: Place) -> dict[str, Opened]:
        settings = read_settings(place.settings, self._usual) if place.settings.exists() else self._usual
        every = {*place.versions, *place.faults}
        settings = self._part.settings(settings)
        versions = chosen(sorted(every), settings.versions)
        if not versions:
            raise ModelError(f"{place.settings} serves none of the versions {', '.join(sorted(every, key=int))}")
        opened: dict[str, Opened] = {}
        for version in versions:
            try:
                if version in place.faults:
                    raise ModelError(place.faults[version])
                opened[version] = self._open_version(place, version, settings)
            except (OpweldError, OSError) as error:
                self._faults[place.name, version] = str(error)
                _close(opened)
                raise
            self._faults.pop((place.name, version), None)
        return opened

    def _open_version(self, place: Place, version: str, settings: Settings) -> Opened:
        path = place.versions[version]
        if is_program(path):
            model = ProgramModel(place.name, version, path, settings, self._workers, self.get)
            self._tell(f"{place.name}: version {version} loaded, a program of {', '.join(model.uses) or 'no models'}")
            return model
        if is_artifact(path):
            session = Session(settled(path), threads=settings.threads)
        else:
            self._tell(f"{place.name}: compiling {path}")
            session = Session(self._compiler.compiled(path), threads=settings.threads)
        tensors = Tensors(session)
        try:
            found = examined(session, tensors, settings)
        except OptionError as error:
            raise OptionError(f"{place.settings}: {error}") from error
        batches = f"batches of up to {found.rows.most} rows" if found.rows else f"no batches, as {found.reason}"
        self._tell(f"{place.name}: version {version} loaded; {batches}")
        return LoadedModel(place.name, version, tensors, settings, found, self._dispatcher)


def _close(opened: Mapping[str, Opened]) -> None:
    for model in opened.values():
        model.close()


def _places_at(name: str | None, path: Path) -> Sequence[Place]:
    """The models of a path that was given."""
    return [place_of(path, name or "")] if name or is_model(path) else places_of(path)


def _silent(_: str) -> None:
    pass

"""Wrappers around the calls of stages: plain, with progress, or with the text written and the result verified.

The pipeline calls every stage as `stage(name, function, *arguments)`. OPWELD_DUMP, OPWELD_DEBUG and clocks pass another
`Stage`. The pipeline has the list of stages; after simplification, the backend has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeAlias, TypeVar

from opweld.shortage import unwritable
from opweld.tensor.flow import Flow
from opweld.tensor.program import TensorProgram
from opweld.tensor.text import print_program
from opweld.tensor.verify import verify
from opweld.whole import write_text

if TYPE_CHECKING:
    from opweld.compile import Progress

P = ParamSpec("P")
T = TypeVar("T")

Texts: TypeAlias = Iterable[tuple[str, str]]
"""(file name, content)."""


class Stage(Protocol):
    """Runs a stage."""

    def __call__(self, name: str, run: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What `run` makes of the arguments; `name` is how the stage is called."""
        ...


def plain(name: str, run: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a stage and nothing else."""
    return run(*args, **kwargs)


class Reported:
    """Reports progress as stages begin and while a backend builds."""

    def __init__(self, stage: Stage, progress: Progress | None, beginnings: Mapping[str, str], building: str) -> None:
        """`beginnings`: the backend's progress text at the start of a stage, by its name; `building`: that of the
        build."""
        self._stage = stage
        self._progress = progress
        self._beginnings = {**BEGINNINGS, **beginnings}
        self._building = building
        self._left = list(self._beginnings)

    def __call__(self, name: str, run: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a stage; the first of its name is reported."""
        if name in self._left and self._progress is not None:
            self._left.remove(name)
            steps = list(self._beginnings)
            self._progress(self._beginnings[name], steps.index(name), len(steps) + 1)
        return self._stage(name, run, *args, **kwargs)

    def built(self, done: int, total: int) -> None:
        """Reports that `done` of `total` files are built."""
        before = len(self._beginnings)
        if self._progress is not None:
            self._progress(self._building, before + done, before + total)


class Watched:
    """Writes the result of each stage as text to a numbered file of a folder, verifies it, or both."""

    def __init__(
        self, dump: Path | None, debug: bool, stage: Stage = plain, forms: Mapping[str, Form] | None = None
    ) -> None:
        """`forms`: texts and verifiers of a backend's stages, by name."""
        self._dump = dump
        self._debug = debug
        self._stage = stage
        self._forms = {**FORMS, **(forms or {})}
        self._number = 0

    def __call__(self, name: str, run: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a stage. Its text is written before it is verified, so that a bad result can be read."""
        value = self._stage(name, run, *args, **kwargs)
        form = self._forms.get(name)
        if form is not None and self._dump is not None:
            for file, text in form.texts(value, *args):
                self._write(self._dump, file, text)
        if form is not None and self._debug:
            form.verify(value, *args)
        return value

    def _write(self, folder: Path, name: str, text: str) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(error, folder, "OPWELD_DUMP") from error
        self._number += 1
        write_text(text, folder / f"{self._number:03}-{name}", "OPWELD_DUMP")


@dataclass(frozen=True)
class Form:
    """The printer and the verifier of a stage's result; both take the result and then the stage's arguments."""

    texts: Callable[..., Texts]
    verify: Callable[..., None]


def _program(suffix: str) -> Form:
    def texts(program: TensorProgram, *_: object) -> Texts:
        return [(f"{program.name}.{suffix}", print_program(program))]

    def checked(program: TensorProgram, *_: object) -> None:
        verify(program)

    return Form(texts, checked)


def _flow(suffix: str) -> Form:
    def texts(flow: Flow, *_: object) -> Texts:
        return [(f"{p.name}.{suffix}", print_program(p)) for segment in flow.segments for p in segment.programs]

    return Form(texts, _verify_flow)


def _verify_flow(flow: Flow, *_: object) -> None:
    for segment in flow.segments:
        for program in segment.programs:
            verify(program)


BEGINNINGS: Mapping[str, str] = {"load": "reading the model"}
"""Progress texts at the start of the stages before the backend's, by name."""

FORMS: Mapping[str, Form] = {"lower": _flow("lowered"), "simplify": _flow("tensors"), "version": _program("tensors")}
"""The forms of the stages before the backend's, by name; a backend brings its own, see `codegen.backend`."""

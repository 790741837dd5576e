"""How a stage is run: just so, or with its text written and its result verified.

The pipeline calls every stage as `stage(name, function, *arguments)`. Who wants to see the stages (the files of
OPWELD_DUMP, the checks of OPWELD_DEBUG, a clock) passes another `Stage`; the list of them is the pipeline's alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, ParamSpec, Protocol, TypeAlias, TypeVar

from opweld.fuse.region import Regions
from opweld.fuse.text import print_regions
from opweld.fuse.verify import verify_regions
from opweld.ledger import Ledger
from opweld.place.placed import Placed
from opweld.place.text import print_placed
from opweld.place.verify import verify_placed
from opweld.schedule.expected import Expected
from opweld.schedule.file import print_schedules
from opweld.shortage import unwritable
from opweld.target import Target
from opweld.tensor.flow import Flow
from opweld.tensor.program import TensorProgram
from opweld.tensor.text import print_program
from opweld.tensor.verify import verify
from opweld.tile.check import check_kernel
from opweld.tile.kernels import Plan, Scheduled, schedules_of
from opweld.tile.launches import print_launches, verify_launches
from opweld.tile.module import Variant
from opweld.tile.text import print_kernel
from opweld.whole import write_text

if TYPE_CHECKING:
    from opweld.compile import Progress

P = ParamSpec("P")
T = TypeVar("T")

Texts: TypeAlias = Iterable[tuple[str, str]]
"""(file name, content)."""

Realised: TypeAlias = tuple[list[Plan], list[Scheduled]]


class Stage(Protocol):
    """Runs a stage."""

    def __call__(self, name: str, run: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What `run` makes of the arguments; `name` is how the stage is called."""
        ...


def plain(name: str, run: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a stage and nothing else."""
    return run(*args, **kwargs)


class Reported:
    """Tells `progress` how far a compilation is, as its stages begin and as the C compiler goes on."""

    BEGINNINGS: ClassVar[dict[str, str]] = {"load": "reading the model", "fuse": "fusing", "render": "generating C"}

    def __init__(self, stage: Stage, progress: Progress | None) -> None:
        self._stage = stage
        self._progress = progress
        self._left = list(self.BEGINNINGS)

    def __call__(self, name: str, run: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a stage, the first of its name with a word before."""
        if name in self._left and self._progress is not None:
            self._left.remove(name)
            steps = list(self.BEGINNINGS)
            self._progress(self.BEGINNINGS[name], steps.index(name), len(steps) + 1)
        return self._stage(name, run, *args, **kwargs)

    def compiled(self, done: int, total: int) -> None:
        """So many files are compiled."""
        before = len(self.BEGINNINGS)
        if self._progress is not None:
            self._progress("compiling C", before + done, before + total)


class Watched:
    """Writes the text of what each stage makes to a numbered file of a folder, and verifies it, as is asked for."""

    def __init__(self, dump: Path | None, debug: bool, stage: Stage = plain) -> None:
        self._dump = dump
        self._debug = debug
        self._stage = stage
        self._number = 0

    def __call__(self, name: str, run: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a stage. What is wrong with its result is found when its text is there."""
        value = self._stage(name, run, *args, **kwargs)
        form = FORMS.get(name)
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
    """The text and the verifier of what a stage makes; both take it and then the arguments of the stage."""

    texts: Callable[..., Texts]
    verify: Callable[..., None]


def _programs(suffix: str) -> Form:
    def texts(flow: Flow, *_: object) -> Texts:
        return [(f"{p.name}.{suffix}", print_program(p)) for segment in flow.segments for p in segment.programs]

    return Form(texts, _verify_flow)


def _verify_flow(flow: Flow, *_: object) -> None:
    for segment in flow.segments:
        for program in segment.programs:
            verify(program)


def _verify_program(program: TensorProgram, *_: object) -> None:
    verify(program)


def _regions(regions: Regions, *_: object) -> Texts:
    return [(f"{regions.program.name}.fused", print_regions(regions))]


def _verify_regions(regions: Regions, *_: object) -> None:
    verify_regions(regions)


def _placed(suffix: str) -> Form:
    def texts(placed: Placed, *_: object) -> Texts:
        return [(f"{placed.program.name}.{suffix}", print_placed(placed))]

    return Form(texts, _verify_placed)


def _verify_placed(placed: Placed, *_: object) -> None:
    verify_placed(placed)


def _kernels(
    made: Realised, placed: Placed, plans: Sequence[Plan], expected: Expected, target: Target, ledger: Ledger
) -> Texts:
    complete, kernels = made
    program = placed.program
    yield f"{program.name}.schedules", print_schedules(schedules_of(program, complete, ledger), ())
    yield f"{program.name}.tiles", "\n".join(print_kernel(item.kernel) for item in kernels)


def _check_kernels(
    made: Realised, placed: Placed, plans: Sequence[Plan], expected: Expected, target: Target, ledger: Ledger
) -> None:
    for item in made[1]:
        check_kernel(item.kernel, target.vector_lanes_f32)


def _launches(variant: Variant, *_: object) -> Texts:
    return [(f"{variant.name}.launches", print_launches(variant))]


def _verify_launches(
    variant: Variant, name: str, program: TensorProgram, placed: Placed, scheduled: Sequence[Scheduled], *_: object
) -> None:
    verify_launches(variant, scheduled)


def _sources(made: Mapping[str, str], *_: object) -> Texts:
    return [(f"c-{name}", text) for name, text in made.items()]


def _no_texts(*_: object) -> Texts:
    return ()


def _no_check(*_: object) -> None:
    """The C compiler checks C."""


FORMS = {
    "lower": _programs("lowered"),
    "simplify": _programs("tensors"),
    "outputs": Form(_no_texts, _verify_program),
    "fuse": Form(_regions, _verify_regions),
    "place": _placed("placed"),
    "pack": _placed("packed"),
    "sums": _placed("summed"),
    "reuse": _placed("reused"),
    "realise": Form(_kernels, _check_kernels),
    "assemble": Form(_launches, _verify_launches),
    "render": Form(_sources, _no_check),
}
"""By name of the stage."""

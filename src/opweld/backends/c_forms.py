"""The texts and verifiers of what the C backend's stages make, for OPWELD_DUMP and OPWELD_DEBUG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from opweld.fuse.region import Regions
from opweld.fuse.text import print_regions
from opweld.fuse.verify import verify_regions
from opweld.ledger import Ledger
from opweld.place.placed import Placed
from opweld.place.text import print_placed
from opweld.place.verify import verify_placed
from opweld.schedule.expected import Expected
from opweld.schedule.file import print_schedules
from opweld.stages import Form, Texts
from opweld.target import Target
from opweld.tensor.program import TensorProgram
from opweld.tensor.verify import verify
from opweld.tile.check import check_kernel
from opweld.tile.kernels import Plan, ScheduledKernel, schedules_of
from opweld.tile.launches import print_launches, verify_launches
from opweld.tile.module import ModuleVariant
from opweld.tile.text import print_kernel

Realised: TypeAlias = tuple[list[Plan], list[ScheduledKernel]]


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


def _launches(variant: ModuleVariant, *_: object) -> Texts:
    return [(f"{variant.name}.launches", print_launches(variant))]


def _verify_launches(
    variant: ModuleVariant,
    name: str,
    program: TensorProgram,
    placed: Placed,
    scheduled: Sequence[ScheduledKernel],
    *_: object,
) -> None:
    verify_launches(variant, scheduled)


def _sources(made: Mapping[str, str], *_: object) -> Texts:
    return [(f"c-{name}", text) for name, text in made.items()]


def _no_texts(*_: object) -> Texts:
    return ()


def _no_check(*_: object) -> None:
    """The C compiler checks C."""


FORMS: dict[str, Form] = {
    "outputs": Form(_no_texts, _verify_program),
    "fuse": Form(_regions, _verify_regions),
    "place": _placed("placed"),
    "pack": _placed("packed"),
    "split_k": _placed("summed"),
    "reuse": _placed("reused"),
    "realise": Form(_kernels, _check_kernels),
    "assemble": Form(_launches, _verify_launches),
    "render": Form(_sources, _no_check),
}
"""By name of the stage."""

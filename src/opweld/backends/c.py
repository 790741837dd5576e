"""The C backend: every stage from a tensor program to a shared object, for the vector units of processors."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from opweld.backends.c_forms import FORMS
from opweld.build.artifact import HEADERS, MODULE, RUNTIME, SOURCES, WEIGHTS
from opweld.build.toolchain import Objects
from opweld.build.workspace import temporary_folder
from opweld.codegen.backend import BuildProgress, Compiled, CompiledModel, Stages
from opweld.codegen.c.module import KernelFiles, common_text, render_module
from opweld.fuse.blocks import join_blocks
from opweld.fuse.outputs import own_outputs
from opweld.fuse.pairs import join_pairs
from opweld.fuse.partition import partition
from opweld.fuse.region import Regions
from opweld.ledger import Ledger
from opweld.place.layout import place
from opweld.place.pack import pack
from opweld.place.placed import Placed
from opweld.place.reuse import reuse
from opweld.place.split_k import split_k
from opweld.runtime.build import build_runtime
from opweld.runtime.library import c_headers, module_headers, public_headers
from opweld.schedule.expected import Expected
from opweld.stages import Stage
from opweld.target import Target
from opweld.tensor.program import PutWeights, TensorProgram
from opweld.tile.assemble import assemble
from opweld.tile.kernels import Plan, ScheduledKernel, realise, schedule, schedules_of
from opweld.tile.module import Module, ModuleVariant, Segment
from opweld.tile.recorded import recorded
from opweld.tile.sizes import given_sizes


@dataclass(frozen=True, eq=False)
class Realised:
    """A tensor program and what every stage up to its kernels made of it."""

    program: TensorProgram
    regions: Regions
    placed: Placed
    plans: Sequence[Plan]
    kernels: Sequence[ScheduledKernel]


def realise_program(
    program: TensorProgram, target: Target, expected: Expected, ledger: Ledger, stage: Stage
) -> Realised:
    """The stages between a tensor program and tile programs: what is computed together, where it lives, and how.

    Schedules are complete when kernels are there: what their loops do is asked last."""
    program = stage("outputs", own_outputs, program)
    regions = stage("fuse", fuse, program, expected, target, ledger)
    placed = stage("place", place, regions, expected, target, ledger)
    placed = stage("pack", pack, placed, expected, target, ledger)
    placed = stage("split_k", split_k, placed, expected, target, ledger)
    placed = stage("reuse", reuse, placed, expected, target, ledger)
    plans = stage("schedule", schedule, placed, expected, target, ledger)
    plans, kernels = stage("realise", realise, placed, plans, expected, target, ledger)
    return Realised(program, regions, placed, plans, kernels)


def fuse(program: TensorProgram, expected: Expected, target: Target, ledger: Ledger) -> Regions:
    """Which tensors are computed together: regions, blocks of them, and pairs of products."""
    regions = join_blocks(partition(program, expected, target, ledger), expected, target, ledger)
    return join_pairs(regions, expected, target, ledger)


BEGINNINGS: Mapping[str, str] = {"fuse": "fusing", "render": "generating C"}
"""What is told when a stage begins."""


class CStages(Stages[ModuleVariant]):
    """To C, and by `zig cc` or what OPWELD_CC names to a shared object; its code is the launches of a variant."""

    forms = FORMS
    beginnings = BEGINNINGS
    building = "compiling C"

    def __init__(self) -> None:
        self._runtime: Future[Path] | None = None
        """The runtime, on its way."""
        self._begun: tuple[Objects, KernelFiles] | None = None
        """What is built of kernels while programs are still compiled."""

    @contextlib.contextmanager
    def preparing(self, target: Target) -> Generator[None]:
        """Compiles the runtime, of which the first model on a machine would have to wait a second, and the headers of
        kernels; then each file of kernels as soon as it is complete."""
        with temporary_folder() as folder, ThreadPoolExecutor(1) as pool, self._objects(target) as objects:
            objects.prepare()
            self._runtime = pool.submit(build_runtime, folder / RUNTIME, target)
            self._begun = objects, KernelFiles(target, objects.add)
            try:
                yield
            finally:
                self._begun = None

    def _objects(self, target: Target) -> Objects:
        return Objects(target=target, headers=c_headers(), common=common_text(target))

    def compile(
        self,
        program: TensorProgram,
        inputs: Sequence[str],
        target: Target,
        expected: Expected,
        ledger: Ledger,
        weights: PutWeights,
        stage: Stage,
    ) -> Compiled[ModuleVariant]:
        """See `Stages`."""
        made = realise_program(program, target, expected, ledger, stage)
        name, placed, kernels = program.name, made.placed, made.kernels
        sized = [given_sizes(item.kernel) for item in kernels]
        if self._begun is not None:
            # The C compiler begins with them while weights are packed and the next variant is compiled.
            stage("kernels", self._begun[1].add_all, [kernel for kernel, _ in sized])
        variant = stage(
            "assemble", assemble, name, made.program, placed, kernels, sized, weights, expected, ledger, inputs
        )
        entries, buffers = recorded(variant, kernels, placed.storages, expected, ledger)
        schedules = schedules_of(made.program, made.plans, ledger)
        return Compiled(name, program.guards, variant, entries, buffers, schedules)

    def write(
        self, model: CompiledModel[ModuleVariant], target: Target, folder: Path, stage: Stage, progress: BuildProgress
    ) -> tuple[str, ...]:
        """The C text, what the C compiler makes of it, and the runtime that opens that."""
        module = module_of(model, target)
        with contextlib.ExitStack() as stack:
            if self._begun is None:
                objects = stack.enter_context(self._objects(target))
                kernels = KernelFiles(target, objects.add)
            else:
                objects, kernels = self._begun
            sources = stage("render", render_module, module, target, kernels)
            # Text first: debuggers warn of code that is older than it.
            _write_texts(folder / SOURCES, {**module_headers(), **sources})
            _write_texts(folder / HEADERS, public_headers())
            objects.link(sources, folder / MODULE, progress)
        if self._runtime is None:
            build_runtime(folder / RUNTIME, target)
        else:
            shutil.copyfile(self._runtime.result(), folder / RUNTIME)
        return MODULE, RUNTIME, WEIGHTS


def module_of(model: CompiledModel[ModuleVariant], target: Target) -> Module:
    """The variants of a model as the tables of one C module describe them."""
    segments = tuple(
        Segment(own.inputs, tuple(variant.code for variant in own.variants), own.endings, own.dead)
        for own in model.segments
    )
    return Module(
        model.inputs,
        model.outputs,
        model.results,
        segments,
        model.weights_bytes,
        target.features,
        model.zero_denormals,
        model.states,
    )


def _write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")

"""The stages of compilation, one after the other; each has one input type and one output type.

A stage is called through `stage`, by which it can be seen: its text, its checks, its time (`stages.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opweld import __version__
from opweld.backends import backend_of
from opweld.build import artifact
from opweld.build.cache import Cache
from opweld.build.weights import WeightsFile
from opweld.frontend import explore, onnx
from opweld.frontend.description import Description, describe, external_files
from opweld.fuse.outputs import own_outputs
from opweld.fuse.region import Regions
from opweld.ledger import Ledger
from opweld.lower import to_flow
from opweld.options import Environment, Options
from opweld.place.layout import place
from opweld.place.pack import pack
from opweld.place.placed import Placed
from opweld.place.reuse import reuse
from opweld.runtime.build import build_runtime
from opweld.runtime.library import public_headers
from opweld.schedule.expected import Expected, check_hints, expected_sizes
from opweld.schedule.file import parse_schedules, print_schedules
from opweld.schedule.schedule import Schedule
from opweld.stages import Reported, Stage, Watched, plain
from opweld.target import Target
from opweld.tensor.flow import Flow, dead_after
from opweld.tensor.label import labels
from opweld.tensor.program import TensorProgram
from opweld.tensor.simplify import simplify_flow
from opweld.tile.assemble import assemble
from opweld.tile.kernels import Plan, Scheduled, schedules_of
from opweld.tile.module import Module, Segment, Variant

if TYPE_CHECKING:
    from opweld.compile import Progress


def generate(
    model: Any, options: Options, target: Target, ledger: Ledger, weights: WeightsFile, stage: Stage = plain
) -> Generated:
    """The stages between a model and the sources of its module; constants go into the weights file on the way."""
    graph = stage("load", onnx.load, model, options.specialisation)
    found = stage("explore", explore.segments, graph, options.dims)
    flow = stage("lower", to_flow, found)
    flow = stage("simplify", simplify_flow, flow)
    check_hints([program for segment in flow.segments for program in segment.programs], options.dim_hints)
    schedules: dict[tuple[str, str], Schedule] = {}

    def compiled_variant(program: TensorProgram, inputs: Sequence[str]) -> Variant:
        expected = stage("expect", expected_sizes, program, options.dim_hints)
        made = compile_program(program, target, ledger, expected, stage)
        schedules.update(schedules_of(made.program, made.plans, ledger))
        return stage(
            "assemble",
            assemble,
            program.name,
            made.program,
            made.placed,
            made.kernels,
            weights.put,
            expected,
            ledger,
            inputs,
        )

    segments = _segments(flow, compiled_variant)
    description = describe(graph, found, options.dims)
    module = _module(description, flow, segments, weights.size, target)
    sources = stage("render", backend_of(target).render, module, target)
    return Generated(description, module, sources, schedules)


def compile_program(
    program: TensorProgram, target: Target, ledger: Ledger, expected: Expected | None = None, stage: Stage = plain
) -> Compiled:
    """The stages between a tensor program and tile programs: what is computed together, where it lives, and how.

    Schedules are complete when kernels are there: what their loops do is asked last."""
    backend = backend_of(target)
    ledger.variant(program.name, stage("label", labels, program))
    expected = expected or expected_sizes(program)
    program = stage("outputs", own_outputs, program)
    regions = stage("fuse", backend.fuse, program, expected, target, ledger)
    placed = stage("place", place, regions, expected, target, ledger)
    placed = stage("pack", pack, placed, target, ledger)
    placed = stage("reuse", reuse, placed, ledger)
    plans = stage("schedule", backend.schedule, placed, expected, target, ledger)
    plans, kernels = stage("realise", backend.realise, placed, plans, expected, target, ledger)
    return Compiled(program, regions, placed, plans, kernels)


def build_artifact(
    model: Any, options: Options, target: Target, workspace: Path, cache: Cache, progress: Progress | None = None
) -> Built:
    """Runs every stage, compiles the sources, and writes the artifact into the workspace."""
    environment = Environment.read()
    stage = Reported(Watched(environment.dump, environment.debug), progress)
    given = None if options.schedules is None else parse_schedules(options.schedules_text, str(options.schedules))
    ledger = Ledger(options.disable, level=options.level, pins=options.pins, given=given)
    images, shared, runtime = workspace / "weights.bin", workspace / "module.so", workspace / "runtime.so"
    with WeightsFile(images) as weights:
        made = generate(model, options, target, ledger, weights, stage)
    ledger.check_names()
    if given is not None:
        given.check_regions({at: dict(schedule.fields()) for at, schedule in made.schedules.items()})
    backend_of(target).build(made.sources, shared, target, stage.compiled)
    build_runtime(runtime, target)
    folder = workspace / "model.opweld"
    artifact.write(
        folder,
        manifest=_manifest(made, options, target),
        module_so=shared,
        runtime_so=runtime,
        weights=images,
        ledger_json=ledger.dumps(),
        schedules=print_schedules(made.schedules, ledger),
        sources=made.sources,
        headers=public_headers(),
    )
    return Built(folder, {name: cache.file_digest(Path(model).parent / name) for name in external_files(model)})


@dataclass(frozen=True, eq=False)
class Compiled:
    """A tensor program and what every stage made of it."""

    program: TensorProgram
    regions: Regions
    placed: Placed
    plans: Sequence[Plan]
    kernels: Sequence[Scheduled]


@dataclass(frozen=True, eq=False)
class Generated:
    """What is known of a model before a C compiler sees it; `schedules` as schedules files hold them."""

    description: Description
    module: Module
    sources: Mapping[str, str]
    schedules: Mapping[tuple[str, str], Schedule]


@dataclass(frozen=True)
class Built:
    """An artifact folder, and the SHA-256 of each file beside the model that it was made from."""

    folder: Path
    external: Mapping[str, str]


def _segments(flow: Flow, compiled: Callable[[TensorProgram, Sequence[str]], Variant]) -> tuple[Segment, ...]:
    """The segments of a module. Each has as inputs what its variants read; the first has those of the model."""
    dead = dead_after(flow)
    made: list[Segment] = []
    for number, segment in enumerate(flow.segments):
        read = dict.fromkeys(value.name for program in segment.programs for value in program.inputs)
        inputs = flow.inputs if number == 0 else tuple(read)
        variants = tuple(compiled(program, inputs) for program in segment.programs)
        own = tuple(dead[number, position] for position in range(len(variants)))
        made.append(Segment(inputs, variants, segment.endings, own))
    return tuple(made)


def _module(
    description: Description, flow: Flow, segments: tuple[Segment, ...], weights: int, target: Target
) -> Module:
    return Module(
        tuple(value.name for value in description.inputs),
        tuple(value.name for value in description.outputs),
        tuple(name for _, name in flow.outputs),
        segments,
        weights,
        target.features,
    )


def _manifest(made: Generated, options: Options, target: Target) -> artifact.Manifest:
    description, module = made.description, made.module
    return artifact.Manifest(
        opweld=__version__,
        target=target.name,
        level=options.level,
        threads=0,
        inputs=description.inputs,
        outputs=description.outputs,
        metadata=description.metadata,
        structure=description.structure,
        variants=tuple(
            artifact.VariantInfo(v.name, tuple(g.reason for g in v.guards), len(v.launches)) for v in module.variants
        ),
        nodes=description.nodes,
        kernels=sum(len(segment.variants[0].launches) for segment in module.segments),
        features=" ".join(target.features),
    )

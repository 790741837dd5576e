"""The stages of compilation, one after the other; each has one input type and one output type.

A stage is called through `stage`, by which it can be seen: its text, its checks, its time (`stages.py`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from opweld import __version__
from opweld.account.account import Account
from opweld.backends import backend_of
from opweld.build import artifact
from opweld.build.cache import Cache
from opweld.build.weights import NoWeights, Weights, WeightsFile
from opweld.codegen.backend import Finished, unheeded
from opweld.frontend.program import Description, Program
from opweld.frontend.states import keep_states
from opweld.frontends import source_of
from opweld.fuse.outputs import own_outputs
from opweld.fuse.region import Regions
from opweld.ledger import Ledger, Measured
from opweld.naming import check_names
from opweld.options import Environment, Options
from opweld.place.layout import place
from opweld.place.pack import pack
from opweld.place.placed import Placed
from opweld.place.reuse import reuse
from opweld.place.sums import part_sums
from opweld.record import Record, SymbolEntry, VariantEntry
from opweld.rewrite.added import added, kinds
from opweld.rules import COMPILED, Rule
from opweld.runtime.build import build_runtime
from opweld.runtime.library import module_headers, public_headers
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
from opweld.tile.recorded import recorded_variant

if TYPE_CHECKING:
    from opweld.compile import Progress


def read(model: object, options: Options, ledger: Ledger, stage: Stage = plain) -> Program:
    """The stages between a model, as `source_of` takes it, and its programs."""
    program = source_of(model).read(options, ledger, stage)
    program = stage("states", keep_states, program, options.states)
    flow = stage("simplify", simplify_flow, program.flow, ledger)
    check_hints([variant for segment in flow.segments for variant in segment.programs], options.dim_hints)
    return replace(program, flow=flow)


def generate(
    source: Program,
    options: Options,
    target: Target,
    weights: Weights,
    stage: Stage = plain,
    finished: Finished = unheeded,
) -> Generated:
    """The stages between programs and the sources of their module; constants go into the weights file on the way.
    `finished` takes each source as soon as it is complete."""
    flow, description, ledger = source.flow, source.description, source.ledger
    schedules: dict[tuple[str, str], Schedule] = {}
    entries: dict[str, VariantEntry] = {}

    def compiled_variant(program: TensorProgram, inputs: Sequence[str]) -> Variant:
        expected = stage("expect", expected_sizes, program, options.dim_hints)
        made = compile_program(program, target, ledger, expected, stage)
        schedules.update(schedules_of(made.program, made.plans, ledger))
        variant = stage(
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
        own = source.costs[program.name]
        storages = made.placed.storages
        entries[program.name] = recorded_variant(own, program, variant, made.kernels, storages, expected, ledger)
        return variant

    segments = _segments(flow, compiled_variant)
    module = _module(description, flow, segments, weights.size, target, options)
    sources = stage("render", backend_of(target).render, module, target, finished)
    outputs = description.outputs if description.structure is None else description.structure.outputs
    record = Record(
        source.nodes,
        tuple(value.name for value in outputs),
        _recorded(segments, entries, description),
        source.parameters,
    )
    return Generated(description, module, sources, schedules, record)


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
    placed = stage("pack", pack, placed, expected, target, ledger)
    placed = stage("sums", part_sums, placed, expected, target, ledger)
    placed = stage("reuse", reuse, placed, expected, target, ledger)
    plans = stage("schedule", backend.schedule, placed, expected, target, ledger)
    plans, kernels = stage("realise", backend.realise, placed, plans, expected, target, ledger)
    return Compiled(program, regions, placed, plans, kernels)


def ledger_of(
    options: Options, granted: Collection[str] | None = None, measured: Mapping[str, Measured] | None = None
) -> Ledger:
    """An empty ledger that decides as the options say; `granted` and `measured` as for `Ledger`."""
    given = None if options.schedules is None else parse_schedules(options.schedules_text, str(options.schedules))
    table = decided(options)
    if granted is None:
        check_names(options.disable, options.pins, table)
    return Ledger(
        options.disable,
        level=options.level,
        pins=options.pins,
        given=given,
        granted=granted,
        lenient=options.lenient,
        rules=table,
        measured=measured,
    )


def decided(options: Options) -> Mapping[str, Rule]:
    """The kinds of decisions that there can be in a compilation, by name."""
    return {**COMPILED, **kinds(added(options.rules))}


def build_artifact(
    model: object,
    options: Options,
    target: Target,
    workspace: Path,
    cache: Cache,
    progress: Progress | None = None,
    *,
    ledger: Ledger | None = None,
    source: Program | None = None,
    stage: Stage = plain,
    check: bool = True,
) -> Built:
    """Runs every stage, compiles the sources, and writes the artifact into the workspace.

    `ledger`: an empty one, which decides; that of the options where None. `source`: the model, read before in the same
    compilation, with the ledger that decides. `stage` runs the stages, watched. `check`: see `Built.check`."""
    environment = Environment.read()
    reported = Reported(Watched(environment.dump, environment.debug, stage), progress)
    source = source or read(model, options, ledger_of(options) if ledger is None else ledger, reported)
    ledger = source.ledger
    images, shared, runtime = workspace / "weights.bin", workspace / "module.so", workspace / "runtime.so"
    folder = workspace / "model.opweld"
    folder_of_model = source_of(model).folder
    external = {name: cache.file_digest(folder_of_model / name) for name in source.external}
    # The C compiler begins with what is written while the rest still is.
    with backend_of(target).build(target) as build:
        with WeightsFile(images) as weights:
            made = generate(source, options, target, weights, reported, build.add)
        built = Built(folder, external, made, ledger)
        if check:
            built.check()
        build.finish(made.sources, shared, reported.compiled)
    build_runtime(runtime, target)
    artifact.write(
        folder,
        manifest=_manifest(made, options, target),
        module_so=shared,
        runtime_so=runtime,
        weights=images,
        ledger_json=ledger.dumps(),
        schedules=print_schedules(made.schedules, ledger),
        graph_json=made.record.dumps(),
        sources={**module_headers(), **made.sources},
        headers=public_headers(),
    )
    return built


def foresee(model: object, options: Options, target: Target, progress: Progress | None = None) -> Account:
    """What compiling would leave, found without a C compiler and without packing weights."""
    ledger = ledger_of(options)
    made, _ = _foreseen(model, options, target, ledger, progress)
    return _account(made, ledger)


def foresee_texts(
    model: object, options: Options, target: Target, progress: Progress | None = None
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """The same as the files that an artifact has of it, by name; and the files beside the model that it refers to."""
    ledger = ledger_of(options)
    made, external = _foreseen(model, options, target, ledger, progress)
    schedules = print_schedules(made.schedules, ledger)
    texts = {artifact.LEDGER: ledger.dumps(), artifact.SCHEDULES: schedules, artifact.GRAPH: made.record.dumps()}
    return texts, external


def _foreseen(
    model: object, options: Options, target: Target, ledger: Ledger, progress: Progress | None
) -> tuple[Generated, tuple[str, ...]]:
    stage = Reported(plain, progress)
    source = read(model, options, ledger, stage)
    made = generate(source, options, target, NoWeights(), stage)
    ledger.check_names()
    return made, source.external


def _account(made: Generated, ledger: Ledger) -> Account:
    return Account(ledger, parse_schedules(print_schedules(made.schedules, ledger)), made.record)


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
    record: Record


@dataclass(frozen=True)
class Built:
    """An artifact folder, and the SHA-256 of each file beside the model that it was made from; what was generated, and
    the decisions that led there."""

    folder: Path
    external: Mapping[str, str]
    made: Generated
    ledger: Ledger

    @property
    def account(self) -> Account:
        """What compiling left, as it is in the folder."""
        return _account(self.made, self.ledger)

    def check(self) -> None:
        """Raises OptionError where something that the user named was never decided."""
        self.ledger.check_names()
        if self.ledger.given is not None and not self.ledger.lenient:
            fields = {at: dict(schedule.fields()) for at, schedule in self.made.schedules.items()}
            self.ledger.given.check_regions(fields)


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


def _recorded(
    segments: Sequence[Segment], entries: Mapping[str, VariantEntry], description: Description
) -> tuple[VariantEntry, ...]:
    """The variants of all segments, each with the number of its own, and the dims by the names that the model has: none
    where it has one for several dims, as `?`."""
    shapes = {info.name: info.shape or () for info in description.inputs}

    def named(symbol: SymbolEntry) -> SymbolEntry:
        shape = shapes.get(symbol.input, ())
        known = not symbol.by_value and symbol.position < len(shape)
        dim = shape[symbol.position] if known else ""
        return replace(symbol, dim=dim if isinstance(dim, str) else "")

    made: list[VariantEntry] = []
    for number, own in enumerate(segments):
        for variant, ending in zip(own.variants, own.endings, strict=True):
            entry = entries[variant.name]
            symbols = {name: named(symbol) for name, symbol in entry.symbols.items()}
            places: dict[str, set[tuple[str, int]]] = {}
            for symbol in symbols.values():
                places.setdefault(symbol.dim, set()).add((symbol.input, symbol.position))
            symbols = {n: s if len(places[s.dim]) == 1 else replace(s, dim="") for n, s in symbols.items()}
            made.append(replace(entry, segment=number, next=ending.next, symbols=symbols))
    return tuple(made)


def _module(
    description: Description,
    flow: Flow,
    segments: tuple[Segment, ...],
    weights: int,
    target: Target,
    options: Options,
) -> Module:
    return Module(
        flow.inputs if flow.states else tuple(value.name for value in description.inputs),
        tuple(value.name for value in description.outputs),
        tuple(name for _, name in flow.outputs),
        segments,
        weights,
        target.features,
        options.denormals == "zero",
        flow.states,
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
        told=description.told,
        states=description.states,
        variants=tuple(
            artifact.VariantInfo(v.name, tuple(g.reason for g in v.guards), len(v.launches)) for v in module.variants
        ),
        nodes=description.nodes,
        kernels=sum(len(segment.variants[0].launches) for segment in module.segments),
        features=" ".join(target.features),
    )

"""The stages of compilation, one after the other; each has one input type and one output type.

Every stage is called through a `stages.Stage`, which can print, verify and time its result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opweld import __version__, extensions
from opweld.account.account import Account
from opweld.backends import backend_of
from opweld.build import artifact
from opweld.build.cache import Cache
from opweld.build.weights import NoWeights, Weights, WeightsFile
from opweld.codegen.backend import Compiled, CompiledModel, CompiledSegment, Stages
from opweld.frontend.program import Description, Program
from opweld.frontend.states import keep_states
from opweld.frontends import source_of
from opweld.ledger import Ledger, Measured
from opweld.naming import check_names
from opweld.options import Environment, Options
from opweld.record import NodeEntry, Record, SymbolEntry, VariantEntry
from opweld.rules import COMPILED, DecisionRule
from opweld.schedule.expected import Expected, check_hints, expected_sizes
from opweld.schedule.file import parse_schedules, print_schedules
from opweld.schedule.schedule import Schedule
from opweld.stages import Reported, Stage, Watched, plain
from opweld.target import TargetMachine
from opweld.tensor.dim import Dim, Symbol, atoms_of
from opweld.tensor.flow import Flow, dead_after
from opweld.tensor.indexed import indexed_by_inputs
from opweld.tensor.label import labels
from opweld.tensor.program import TensorProgram
from opweld.tensor.simplify import simplify_flow, simplify_variant
from opweld.versions import versions

if TYPE_CHECKING:
    from opweld.compile import Progress


def read(model: object, options: Options, ledger: Ledger, stage: Stage = plain) -> Program:
    """Runs the stages from a model (anything that `source_of` accepts) to simplified tensor programs."""
    program = source_of(model).read(options, ledger, stage)
    program = stage("states", keep_states, program, options.states)
    flow = stage("simplify", simplify_flow, program.flow, ledger)
    flow = flow.with_precision(options.precision)
    check_hints([variant for segment in flow.segments for variant in segment.programs], options.dim_hints)
    return replace(program, flow=flow)


def generate(
    source: Program,
    options: Options,
    target: TargetMachine,
    weights: Weights,
    stage: Stage = plain,
    stages: Stages[Any] | None = None,
) -> Generated:
    """Compiles the programs with the target's backend, which writes their constants into `weights`. `stages`: those
    of the backend; None makes new ones."""
    flow, description, ledger = source.flow, source.description, source.ledger
    stages = stages or backend_of(target).stages()
    entries: dict[str, VariantEntry] = {}

    def compile_variant(
        program: TensorProgram, inputs: Sequence[str], costs: Sequence[NodeEntry], follows: str = ""
    ) -> Compiled[Any]:
        expected = stage("expect", expected_sizes, program, options.dim_hints)
        ledger.variant(program.name, stage("label", labels, program), follows)
        made = stages.compile(program, inputs, target, expected, ledger, weights.put, stage)
        entries[program.name] = _entry(costs, program, expected, made)
        return made

    def variants_of(program: TensorProgram, inputs: Sequence[str]) -> Sequence[Compiled[Any]]:
        costs = source.costs[program.name]
        general = compile_variant(program, inputs, costs)
        specialised = [stage("version", simplify_variant, one, ledger) for one in versions(program, ledger)]
        return [*(compile_variant(one, inputs, costs, program.name) for one in specialised), general]

    segments = _segments(flow, variants_of)
    model = CompiledModel(
        flow.inputs if flow.states else tuple(value.name for value in description.inputs),
        tuple(value.name for value in description.outputs),
        tuple(name for _, name in flow.outputs),
        segments,
        weights.size,
        options.denormals == "zero",
        flow.states,
    )
    outputs = description.outputs if description.structure is None else description.structure.outputs
    record = Record(
        source.nodes,
        tuple(value.name for value in outputs),
        _variant_entries(segments, entries, description),
        source.parameters,
    )
    schedules = {at: schedule for variant in model.variants for at, schedule in variant.schedules.items()}
    return Generated(description, model, schedules, record)


def _entry(nodes: Sequence[NodeEntry], program: TensorProgram, expected: Expected, made: Compiled[Any]) -> VariantEntry:
    """The entry of a compiled variant in graph.json, without its segment. `nodes`: its nodes with costs before
    fusion."""
    return VariantEntry(
        program.name,
        0,
        nodes=tuple(nodes),
        sizes={source.symbol.name: expected(source.symbol.dim) for source in program.symbols},
        symbols={s.symbol.name: SymbolEntry(s.input, s.position, s.by_value, s.divisor) for s in program.symbols},
        kernels=made.kernels,
        buffers=made.buffers,
        indexed={
            name: tuple(dict.fromkeys(_one_size(extent) for extent in extents if _one_size(extent)))
            for name, extents in indexed_by_inputs(program).items()
        },
    )


def _one_size(dim: Dim) -> int | str:
    """The size as an integer, or the symbol's name where it is a single symbol; "" for any other polynomial."""
    if dim.constant is not None:
        return dim.constant
    return next((atom.name for atom in atoms_of(dim) if isinstance(atom, Symbol) and dim is atom.dim), "")


def ledger_of(
    options: Options, granted: Collection[str] | None = None, measured: Mapping[str, Measured] | None = None
) -> Ledger:
    """An empty ledger with the options' level, pins and schedules; `granted` and `measured` as for `Ledger`."""
    schedules = None if options.schedules is None else parse_schedules(options.schedules_text, str(options.schedules))
    table = decision_rules(options)
    if granted is None:
        check_names(options.disable, options.pins, table)
    return Ledger(
        options.disable,
        level=options.level,
        pins=options.pins,
        schedules=schedules,
        granted=granted,
        lenient=options.lenient,
        rules=table,
        measured=measured,
    )


def decision_rules(options: Options) -> Mapping[str, DecisionRule]:
    """The kinds of decisions of a compilation by name, including those of installed packages and of `options.rules`."""
    if not options.rules and not extensions.count(extensions.RULES):
        return COMPILED
    from opweld.rewrite.hoist import added, kinds  # imported late: tensor programs do without graph rewriting

    return {**COMPILED, **kinds(added(options.rules))}


def build_artifact(
    model: object,
    options: Options,
    target: TargetMachine,
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

    `ledger`: an empty one; None makes it from the options. `source`: the model if it was already read in this
    compilation, with its ledger. `stage` wraps the call of every stage. `check`: whether to call `Built.check`."""
    environment, backend, origin = Environment.read(), backend_of(target), source_of(model)
    stages = backend.stages()
    watched = Watched(environment.dump, environment.debug, stage, stages.forms)
    reported = Reported(watched, progress, stages.beginnings, stages.building)
    weights_bin, files, folder = workspace / "weights.bin", workspace / "files", workspace / "model.opweld"
    with stages.preparing(target):
        source = source or read(origin, options, ledger_of(options) if ledger is None else ledger, reported)
        ledger = source.ledger
        external = {name: cache.file_digest(origin.folder / name) for name in source.external}
        with WeightsFile(weights_bin) as weights:
            made = generate(source, options, target, weights, reported, stages)
            digest = weights.finish()
        built = Built(folder, external, made, ledger)
        if check:
            built.check()
        files.mkdir()
        needed = stages.write(made.model, target, files, reported, reported.built)
    artifact.write(
        folder,
        manifest=_manifest(made, options, target, backend.name, needed),
        files=files,
        weights=weights_bin,
        digests={artifact.WEIGHTS: digest},
        ledger_json=ledger.dumps(),
        schedules=print_schedules(made.schedules, ledger),
        graph_json=made.record.dumps(),
    )
    return built


def dry_run(model: object, options: Options, target: TargetMachine, progress: Progress | None = None) -> Account:
    """The decisions, schedules and kernels of a compilation, without calling a C compiler or packing weights."""
    ledger = ledger_of(options)
    made, _ = _dry_run(model, options, target, ledger, progress)
    return _account(made, ledger)


def dry_run_texts(
    model: object, options: Options, target: TargetMachine, progress: Progress | None = None
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """The text files of the artifact of a dry run, by name; and the names of the model's external data files."""
    ledger = ledger_of(options)
    made, external = _dry_run(model, options, target, ledger, progress)
    schedules = print_schedules(made.schedules, ledger)
    texts = {artifact.LEDGER: ledger.dumps(), artifact.SCHEDULES: schedules, artifact.GRAPH: made.record.dumps()}
    return texts, external


def _dry_run(
    model: object, options: Options, target: TargetMachine, ledger: Ledger, progress: Progress | None
) -> tuple[Generated, tuple[str, ...]]:
    stages = backend_of(target).stages()
    stage = Reported(plain, progress, stages.beginnings, stages.building)
    source = read(model, options, ledger, stage)
    made = generate(source, options, target, NoWeights(), stage)
    ledger.check_names()
    return made, source.external


def _account(made: Generated, ledger: Ledger) -> Account:
    return Account(ledger, parse_schedules(print_schedules(made.schedules, ledger)), made.record)


@dataclass(frozen=True, eq=False)
class Generated:
    """A compiled model before its sources are built; `schedules` by (variant, region), as in schedules files."""

    description: Description
    model: CompiledModel[Any]
    schedules: Mapping[tuple[str, str], Schedule]
    record: Record


@dataclass(frozen=True)
class Built:
    """An artifact folder, the SHA-256 of each external data file of its model, the compiled model, and the
    decisions."""

    folder: Path
    external: Mapping[str, str]
    made: Generated
    ledger: Ledger

    @property
    def account(self) -> Account:
        """Decisions, schedules and kernels, equal to those read from the folder."""
        return _account(self.made, self.ledger)

    def check(self) -> None:
        """Raises OptionError where an option names a decision or region that the compilation does not have."""
        self.ledger.check_names()
        if self.ledger.schedules is not None and not self.ledger.lenient:
            fields = {at: dict(schedule.fields()) for at, schedule in self.made.schedules.items()}
            self.ledger.schedules.check_regions(fields)


def _segments(
    flow: Flow, variants_of: Callable[[TensorProgram, Sequence[str]], Sequence[Compiled[Any]]]
) -> tuple[CompiledSegment[Any], ...]:
    """Compiles the segments of a model. A segment's inputs are those of its variants, the first one's the model's.

    `variants_of`: compiles a program to its variants, specialised ones first, which share the ending."""
    dead = dead_after(flow)
    made: list[CompiledSegment[Any]] = []
    for number, segment in enumerate(flow.segments):
        loaded = dict.fromkeys(value.name for program in segment.programs for value in program.inputs)
        inputs = flow.inputs if number == 0 else tuple(loaded)
        variants = [
            (variant, segment.endings[position], dead[number, position])
            for position, program in enumerate(segment.programs)
            for variant in variants_of(program, inputs)
        ]
        made.append(CompiledSegment(inputs, *map(tuple, zip(*variants, strict=True))))
    return tuple(made)


def _variant_entries(
    segments: Sequence[CompiledSegment[Any]], entries: Mapping[str, VariantEntry], description: Description
) -> tuple[VariantEntry, ...]:
    """The variants of all segments, each with its segment's number and the model's names of its dims. A name that the
    model gives to several different dims, such as `?`, is dropped."""
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
            positions: dict[str, set[tuple[str, int]]] = {}
            for symbol in symbols.values():
                positions.setdefault(symbol.dim, set()).add((symbol.input, symbol.position))
            symbols = {n: s if len(positions[s.dim]) == 1 else replace(s, dim="") for n, s in symbols.items()}
            made.append(replace(entry, segment=number, next=ending.next, symbols=symbols))
    return tuple(made)


def _manifest(
    made: Generated, options: Options, target: TargetMachine, backend: str, needed: tuple[str, ...]
) -> artifact.Manifest:
    description, model = made.description, made.model
    return artifact.Manifest(
        opweld=__version__,
        target=target.name,
        level=options.level,
        precision=options.precision,
        threads=0,
        inputs=description.inputs,
        outputs=description.outputs,
        metadata=description.metadata,
        structure=description.structure,
        declared_shapes=description.declared_shapes,
        states=description.states,
        variants=tuple(
            artifact.VariantInfo(v.name, tuple(g.reason for g in v.guards), len(v.kernels)) for v in model.variants
        ),
        nodes=description.nodes,
        kernels=sum(len(segment.variants[0].kernels) for segment in model.segments),
        features=" ".join(target.capabilities),
        backend=backend,
        needed=needed,
    )

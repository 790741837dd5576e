"""The stages of compilation, one after the other; each has one input type and one output type."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opweld import __version__
from opweld.backends import backend_of
from opweld.build import artifact
from opweld.build.cache import Cache
from opweld.frontend import explore, onnx
from opweld.frontend.description import describe, external_files
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
from opweld.target import Target
from opweld.tensor.flow import Flow, dead_after
from opweld.tensor.label import labels
from opweld.tensor.program import TensorProgram
from opweld.tensor.simplify import simplify_flow
from opweld.tensor.text import print_program
from opweld.tensor.verify import verify
from opweld.tile.assemble import assemble
from opweld.tile.check import check_kernel
from opweld.tile.kernels import Plan, Scheduled
from opweld.tile.module import Module, Segment, Variant
from opweld.tile.text import print_kernel

if TYPE_CHECKING:
    from opweld.compile import Progress

ALIGNMENT = 64
"""Bytes; a packed operand that straddles cache lines costs a tenth of the speed."""

STAGES = 4


@dataclass(frozen=True)
class Made:
    """An artifact folder, and the SHA-256 of each file beside the model that it was made from."""

    folder: Path
    external: Mapping[str, str]


def build_artifact(
    model: Any, options: Options, target: Target, workspace: Path, cache: Cache, progress: Progress | None = None
) -> Made:
    """Runs every stage and writes the artifact into the workspace."""
    report: Progress = progress or (lambda text, done, total: None)
    dump = _Dump(Environment.read().dump)
    given = None if options.schedules is None else parse_schedules(options.schedules_text, str(options.schedules))
    backend = backend_of(target)
    ledger = Ledger(options.disable, level=options.level, pins=options.pins, given=given)

    report("reading the model", 0, STAGES)
    graph = onnx.load(model, options.specialisation)
    found = explore.segments(graph, options.dims)
    flow = simplify_flow(to_flow(found))
    check_hints([program for segment in flow.segments for program in segment.programs], options.dim_hints)
    report("fusing", 1, STAGES)
    schedules: dict[tuple[str, str], Schedule] = {}
    with contextlib.closing(_Weights(workspace / "weights.bin")) as weights:

        def compiled_variant(program: TensorProgram, inputs: Sequence[str]) -> Variant:
            return _compile_variant(program, inputs, options, target, ledger, schedules, weights, dump)

        segments = _segments(flow, compiled_variant)
    ledger.check_names()
    if given is not None:
        given.check_regions({at: dict(made.fields()) for at, made in schedules.items()})
    report("generating C", 2, STAGES)
    description = describe(graph, found)
    module = Module(
        tuple(value.name for value in description.inputs),
        tuple(value.name for value in description.outputs),
        tuple(name for _, name in flow.outputs),
        segments,
        weights.size,
        target.features,
    )
    sources = backend.render(module, target)
    for name, text in sources.items():
        dump.write(f"c-{name}", text)

    def compiled(done: int, total: int) -> None:
        report("compiling C", STAGES - 1 + done, STAGES - 1 + total)

    shared = workspace / "module.so"
    backend.build(sources, shared, target, compiled)
    runtime = workspace / "runtime.so"
    build_runtime(runtime, target)
    manifest = artifact.Manifest(
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
        kernels=sum(len(segment.variants[0].launches) for segment in segments),
        features=" ".join(target.features),
    )
    folder = workspace / "model.opweld"
    artifact.write(
        folder,
        manifest=manifest,
        module_so=shared,
        runtime_so=runtime,
        weights=workspace / "weights.bin",
        ledger_json=ledger.dumps(),
        schedules=print_schedules(schedules, ledger),
        sources=sources,
        headers=public_headers(),
    )
    return Made(folder, {name: cache.file_digest(Path(model).parent / name) for name in external_files(model)})


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


@dataclass(frozen=True, eq=False)
class Compiled:
    """A tensor program and what every stage made of it."""

    program: TensorProgram
    regions: Regions
    placed: Placed
    plans: Sequence[Plan]
    kernels: Sequence[Scheduled]


def compile_program(
    program: TensorProgram, target: Target, ledger: Ledger, expected: Expected | None = None
) -> Compiled:
    """The stages between a tensor program and tile programs: what is computed together, where it lives, and how.

    Schedules are complete when kernels are there: what their loops do is asked last."""
    ledger.variant(program.name, labels(program))
    expected = expected or expected_sizes(program)
    backend = backend_of(target)
    program = own_outputs(program)
    regions = backend.fuse(program, expected, target, ledger)
    placed = place(regions, expected, target, ledger)
    placed = reuse(pack(placed, target, ledger), ledger)
    plans = backend.schedule(placed, expected, target, ledger)
    plans, kernels = backend.realise(placed, plans, expected, target, ledger)
    return Compiled(program, regions, placed, plans, kernels)


def schedules_of(made: Compiled, ledger: Ledger) -> dict[tuple[str, str], Schedule]:
    """The schedule of every region by variant and label, as schedules files hold them."""
    return {(made.program.name, ledger.label(plan.region.outputs[0])): plan.schedule for plan in made.plans}


def _compile_variant(
    program: TensorProgram,
    inputs: Sequence[str],
    options: Options,
    target: Target,
    ledger: Ledger,
    schedules: dict[tuple[str, str], Schedule],
    weights: _Weights,
    dump: _Dump,
) -> Variant:
    debug = Environment.read().debug
    if debug:
        verify(program)
    dump.write(f"{program.name}.tensors", lambda: print_program(program))
    expected = expected_sizes(program, options.dim_hints)
    made = compile_program(program, target, ledger, expected)
    if debug:
        verify(made.regions.program)
        for item in made.kernels:
            check_kernel(item.kernel, target.vector_lanes_f32)
    dump.write(f"{program.name}.fused", lambda: print_program(made.regions.program))
    own = schedules_of(made, ledger)
    schedules.update(own)
    dump.write(f"{program.name}.schedules", lambda: print_schedules(own, ()))
    dump.write(f"{program.name}.tiles", lambda: "\n".join(print_kernel(item.kernel) for item in made.kernels))
    return assemble(program.name, made.program, made.placed, made.kernels, weights.put, expected, ledger, inputs)


@dataclass
class _Weights:
    """The weights file: images one after the other, equal ones once."""

    path: Path
    size: int = 0
    offsets: dict[bytes, int] = field(default_factory=dict[bytes, int])

    def __post_init__(self) -> None:
        self._file = self.path.open("wb")

    def put(self, name: str, image: Callable[[], np.ndarray[Any, Any]]) -> int:
        """Appends the image, aligned, unless the same bytes are there; returns the offset."""
        data = memoryview(np.ascontiguousarray(image()).view(np.uint8).reshape(-1).data)
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if digest in self.offsets:
            return self.offsets[digest]
        offset = self.size
        self.offsets[digest] = offset
        padding = -data.nbytes % ALIGNMENT
        self._file.write(data)
        self._file.write(b"\0" * padding)
        self.size += data.nbytes + padding
        return offset

    def close(self) -> None:
        """Writes what is buffered."""
        self._file.close()


class _Dump:
    """OPWELD_DUMP: a numbered file a stage."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._number = 0

    def write(self, name: str, text: str | Callable[[], str]) -> None:
        """Writes a file when dumping was asked for."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        self._number += 1
        content = text if isinstance(text, str) else text()
        (self._folder / f"{self._number:03}-{name}").write_text(content, encoding="utf-8")

"""The stages of compilation, one after the other; each has one input type and one output type."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opweld import __version__
from opweld.build import artifact, toolchain
from opweld.build.cache import Cache
from opweld.codegen.c.module import render_module
from opweld.frontend import explore, onnx
from opweld.frontend.description import describe, external_files
from opweld.fuse.outputs import own_outputs
from opweld.fuse.partition import partition
from opweld.ledger import Ledger
from opweld.lower import to_tensors
from opweld.options import Environment, Options
from opweld.place.layout import place
from opweld.place.pack import pack
from opweld.place.reuse import reuse
from opweld.runtime.build import build_runtime
from opweld.runtime.library import c_headers, public_headers
from opweld.schedule.assemble import assemble
from opweld.schedule.kernels import schedule
from opweld.schedule.module import Module, Variant
from opweld.target import Target
from opweld.tensor.program import TensorProgram
from opweld.tensor.simplify import simplify_program
from opweld.tensor.text import print_program
from opweld.tensor.verify import verify

if TYPE_CHECKING:
    from opweld.compile import Progress

ALIGNMENT = 64
"""Bytes; a packed operand that straddles cache lines costs a tenth of the speed."""

STAGES = 4

WITHOUT = {
    "none": ("place.slice", "place.reuse"),
    "basic": ("fuse.rows", "place.slice"),
    "extended": ("place.order",),
    "all": (),
}
"""The rules that a level leaves at their baseline. At `none`, `fuse.partition` also keeps graph nodes apart."""


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
    ledger = Ledger((*options.disable, *WITHOUT[options.level]))

    report("reading the model", 0, STAGES)
    graph = onnx.load(model)
    found = explore.variants(graph, options.dims)
    programs = [simplify_program(to_tensors(variant)) for variant in found]
    report("fusing", 1, STAGES)
    with contextlib.closing(_Weights(workspace / "weights.bin")) as weights:
        variants = [
            _compile_variant(variant.name, program, options, target, ledger, weights, dump)
            for variant, program in zip(found, programs, strict=True)
        ]
    report("generating C", 2, STAGES)
    description = describe(graph)
    module = Module(
        tuple(value.name for value in description.inputs),
        tuple(value.name for value in description.outputs),
        tuple(variants),
        weights.size,
        target.features,
    )
    sources = render_module(module, target.vector_lanes_f32)
    for name, text in sources.items():
        dump.write(f"c-{name}", text)
    headers = c_headers()

    def compiled(done: int, total: int) -> None:
        report("compiling C", STAGES - 1 + done, STAGES - 1 + total)

    shared = workspace / "module.so"
    toolchain.build_shared(sources, shared, target=target, headers=headers, progress=compiled, cache=cache)
    runtime = workspace / "runtime.so"
    build_runtime(runtime, target)
    manifest = artifact.Manifest(
        opweld=__version__,
        target=target.name,
        level=options.level,
        threads=options.threads,
        inputs=description.inputs,
        outputs=description.outputs,
        metadata=description.metadata,
        variants=tuple(
            artifact.VariantInfo(v.name, tuple(g.reason for g in v.guards), len(v.launches)) for v in variants
        ),
        nodes=description.nodes,
        kernels=len(variants[0].launches),
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
        sources=sources,
        headers=public_headers(),
    )
    return Made(folder, {name: cache.file_digest(Path(model).parent / name) for name in external_files(model)})


def _compile_variant(
    name: str,
    program: TensorProgram,
    options: Options,
    target: Target,
    ledger: Ledger,
    weights: _Weights,
    dump: _Dump,
) -> Variant:
    program = own_outputs(program)
    if Environment.read().debug:
        verify(program)
    dump.write(f"{name}.tensors", lambda: print_program(program))
    regions = partition(program, options.level, ledger)
    if Environment.read().debug:
        verify(regions.program)
    dump.write(f"{name}.fused", lambda: print_program(regions.program))
    placed = reuse(pack(place(regions, target, ledger), target, ledger), ledger)
    scheduled = schedule(placed, target)
    return assemble(name, program, placed, scheduled, weights.put)


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

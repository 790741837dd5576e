"""The CUDA backend: every stage from a tensor program to machine code of a GPU, by way of Triton.

What is computed together is decided as for a processor, by the figures of a card; then each region becomes a kernel of
Triton, and a run is a list of launches over one arena (`runtime/cuda`)."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from opweld.backends.cuda_forms import FORMS
from opweld.backends.cuda_steps import Steps
from opweld.backends.flow import flow_of
from opweld.build.artifact import WEIGHTS
from opweld.codegen.backend import BuildProgress, Compiled, CompiledModel, Stages
from opweld.codegen.triton.attention import only_attention
from opweld.codegen.triton.kernel import Kernel
from opweld.codegen.triton.module import Texts
from opweld.errors import ToolchainError
from opweld.fuse.blocks import join_blocks
from opweld.fuse.outputs import own_outputs
from opweld.fuse.partition import partition
from opweld.fuse.region import Regions
from opweld.ledger import Ledger
from opweld.place.appended import only_appended
from opweld.place.channels import place_for_gpu
from opweld.place.padded_channels import pad_channels
from opweld.place.placed import Placed
from opweld.place.states import write_states
from opweld.place.storage import lay_out
from opweld.record import KernelEntry, Predicted
from opweld.runtime.cuda.program import KERNELS, PROGRAM, Code, Program, Variant
from opweld.schedule.cost import core_of
from opweld.schedule.expected import Expected
from opweld.stages import Stage
from opweld.target import Gpu
from opweld.tensor.costed import costs_entry
from opweld.tensor.dim import ZERO, Dim
from opweld.tensor.program import PutWeights, TensorProgram

BEGINNINGS: Mapping[str, str] = {"fuse": "fusing", "realise": "generating Triton"}
"""What is told when a stage begins."""


@dataclass(frozen=True, eq=False)
class Made:
    """A compiled program: its steps, and the kernels that they launch, by name."""

    variant: Variant
    kernels: Mapping[str, Kernel]


MOST_WARPS = 16
"""Of a program: more leave each thread with fewer registers than addresses take."""


def fuse(program: TensorProgram, expected: Expected, target: Gpu, ledger: Ledger) -> Regions:
    """Which tensors are computed together: regions, and attention as one of them."""
    return only_attention(join_blocks(partition(program, expected, target, ledger), expected, target, ledger))


class CudaStages(Stages[Made]):
    """To Triton, and by its compiler to a cubin for each kernel."""

    beginnings = BEGINNINGS
    building = "compiling Triton"
    forms = FORMS

    def compile(
        self,
        program: TensorProgram,
        inputs: Sequence[str],
        target: Gpu,
        expected: Expected,
        ledger: Ledger,
        weights: PutWeights,
        stage: Stage,
    ) -> Compiled[Made]:
        """See `Stages`."""
        program = stage("outputs", own_outputs, program)
        regions = stage("fuse", fuse, program, expected, target, ledger)
        regions, copies = stage("pack", pad_channels, regions, ledger)
        regions = stage("append", only_appended, regions)
        placed = stage("place", place_for_gpu, regions, copies, ledger)
        placed = stage("write_states", write_states, placed, expected, target, ledger)
        steps = stage("realise", Steps, placed, expected, target, ledger)
        offsets = {name: _write(name, placed, weights) for name in steps.constants}
        variant, kernels = steps.variant(offsets)
        entries = tuple(
            _entry(step.code, kernels[step.code], placed, offsets, expected, target, ledger) for step in steps.launches
        )
        return Compiled(program.name, program.guards, Made(variant, kernels), entries, (), {})

    def write(
        self, model: CompiledModel[Made], target: Gpu, folder: Path, stage: Stage, progress: BuildProgress
    ) -> tuple[str, ...]:
        """The text of all kernels, machine code for each, and the program that launches them."""
        texts = Texts()
        variants: dict[str, Variant] = {}
        for compiled in model.variants:
            names = {name: texts.add(kernel) for name, kernel in compiled.code.kernels.items()}
            own = compiled.code.variant
            variants[compiled.name] = replace(
                own,
                steps=tuple(replace(step, code=names.get(step.code, "")) for step in own.steps),
                inner=tuple(replace(step, code=names.get(step.code, "")) for step in own.inner),
            )
        (folder / KERNELS).write_text(texts.text(), encoding="utf-8")
        codes, files = self._machine_code(texts.kernels, target, folder, progress)
        program = Program(variants, codes, flow_of(model), target.architecture_number if files else 0)
        (folder / PROGRAM).write_text(program.dumps(), encoding="utf-8")
        return KERNELS, PROGRAM, WEIGHTS, *files

    def _machine_code(
        self, kernels: Mapping[str, Kernel], target: Gpu, folder: Path, progress: BuildProgress
    ) -> tuple[dict[str, Code], list[str]]:
        """A cubin for each kernel; none where Triton's interpreter is asked for, which runs their text."""
        if not kernels:
            return {}, []
        try:
            from triton import knobs
        except ImportError as error:
            raise ToolchainError(
                "compiling for a GPU takes Triton: pip install 'opweld[cuda]'; what is compiled runs without it"
            ) from error
        if knobs.runtime.interpret:
            shapes = {name: kernel.launched for name, kernel in kernels.items()}
            return {name: Code(name, warps=s.warps, stages=s.stages) for name, s in shapes.items()}, []
        from opweld.codegen.triton.binary import Binary, compile_kernel

        module = module_of(folder / KERNELS)

        def compiled(name: str) -> Binary:
            """With twice the warps where registers of one do not suffice: the text is the same."""
            kernel, made = kernels[name], list[Binary]()
            for warps in (kernel.launched.warps, 2 * kernel.launched.warps):
                made.append(
                    compile_kernel(
                        getattr(module, name),
                        kernel.signature,
                        {},
                        warps=warps,
                        stages=kernel.launched.stages,
                        arch=target.architecture_number,
                        divisible=[p for p, _, _, _ in kernel.pointers],
                    )
                )
                if not made[-1].spills or warps >= MOST_WARPS:
                    break
            return min(made, key=lambda binary: binary.spills)

        codes, files = dict[str, Code](), list[str]()
        with ThreadPoolExecutor() as pool:
            for name, binary in zip(kernels, pool.map(compiled, kernels), strict=True):
                files.append(f"{name}.cubin")
                (folder / files[-1]).write_bytes(binary.cubin)
                codes[name] = Code(
                    name,
                    binary.name,
                    files[-1],
                    binary.warps,
                    kernels[name].launched.stages,
                    binary.shared,
                    binary.registers,
                    binary.spills,
                    tuple((parameter.name, parameter.type) for parameter in binary.parameters),
                )
                progress(len(files), len(kernels))
        return codes, files


def module_of(path: Path) -> Any:
    """The Python module of a file of kernels; Triton reads their text there."""
    spec = importlib.util.spec_from_file_location(f"opweld_kernels_{abs(hash(str(path)))}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = written
    return module


def _write(name: str, placed: Placed, weights: PutWeights) -> int:
    constant, storage = placed.constants[name], placed.storages[name]

    def image() -> np.ndarray[Any, Any]:
        return lay_out(np.asarray(constant.read(), storage.dtype.numpy), storage)

    return weights(name, image)


def _entry(
    name: str,
    kernel: Kernel,
    placed: Placed,
    offsets: Mapping[str, int],
    expected: Expected,
    target: Gpu,
    ledger: Ledger,
) -> KernelEntry:
    """A kernel as the artifact records it."""
    sizes = {storage.root: storage.elements * storage.dtype.bytes for storage in placed.storages.values()}
    read = written = ZERO
    for _, memory, _, is_written in kernel.pointers:
        size: Dim = sizes.get(memory, ZERO)
        read, written = (read, written + size) if is_written else (read + size, written)
    read, written = kernel.moved or (read, written)
    count = kernel.count
    core, operations = core_of(target), expected(count.flops + count.special)
    # Products by tensor cores at their rate, others at that of multiply-adds.
    computes = _computes(kernel)
    rate = 2 * 32 * core.products * core.hertz * {"bf16": 8, "tf32": 4}.get(computes, 1)
    predicted = Predicted(operations / rate, 0.0, expected(read + written) / core.dram_bytes / core.hertz, core.launch)
    region = next((memory for _, memory, _, is_written in kernel.pointers if is_written), name)
    return KernelEntry(
        name,
        ledger.label(region) if region in placed.storages else region,
        tuple(filter(None, kernel.origin)),
        0,
        max(predicted.arithmetic, predicted.traffic) + predicted.launch,
        expected(read + written),
        operations,
        tuple((offsets[memory], int(sizes[memory])) for _, memory, _, _ in kernel.pointers if memory in offsets),
        costs=costs_entry(count, read, written),
        predicted=predicted,
        computes=computes,
    )


def _computes(kernel: Kernel) -> str:
    """What a kernel's products are of: 16-bit numbers, float32 that tensor cores read the upper bits of, or others."""
    if "narrow_product" in kernel.text:
        return "bf16"
    return "tf32" if 'input_precision="tf32"' in kernel.text else "fp32"

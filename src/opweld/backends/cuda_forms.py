"""The texts and verifiers of what the CUDA backend's stages make, for OPWELD_DUMP and OPWELD_DEBUG.

Steps of a run print as

    variant main
    memory 0 x: input 0, $n 64 * float32
    memory 1 w: constant at 0, 4096 float32
    memory 2 relu: arena from step 0 to 1, $n 64 * float32

    step 0: contraction_0, grid $n 63 + 64 //, x0 = x, x1 = w, y2 = relu, size0 = $n, from MatMul_0

with sizes as `runtime.cuda.sizes` evaluates them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from opweld.backends.cuda_steps import Steps
from opweld.codegen.triton.kernel import Kernel
from opweld.codegen.triton.module import Texts as KernelTexts
from opweld.fuse.region import Regions
from opweld.fuse.text import print_regions
from opweld.fuse.verify import verify_regions
from opweld.place.placed import Placed
from opweld.place.text import print_placed
from opweld.place.verify import verify_placed
from opweld.runtime.cuda.program import Buffer, Launch, Variant
from opweld.stages import Form, Texts
from opweld.tensor.program import TensorProgram
from opweld.tensor.verify import verify


def print_steps(variant: Variant, names: Mapping[str, str]) -> str:
    """The steps of a variant as text; `names` of kernels in their file."""
    lines = [f"variant {variant.name}"]
    lines += [f"memory {number} {_memory(buffer)}" for number, buffer in enumerate(variant.buffers)]
    lines.append("")
    for number, step in enumerate(variant.steps):
        lines.append(f"step {number}: {_step(step, variant, names)}")
        lines += [f"    {_step(variant.inner[inner], variant, names)}" for inner in step.body]
    return "\n".join(lines) + "\n"


def _memory(buffer: Buffer) -> str:
    where = {
        "constant": f"constant at {buffer.index}",
        "arena": f"arena from step {buffer.first} to {buffer.last}",
    }.get(buffer.kind, f"{buffer.kind} {buffer.index}")
    return f"{buffer.name}: {where}, {buffer.elements} {buffer.dtype}"


def _step(step: Launch, variant: Variant, names: Mapping[str, str]) -> str:
    return ", ".join([*_words(step, variant, names), *([f"from {'; '.join(step.origin)}"] if step.origin else [])])


def _words(step: Launch, variant: Variant, names: Mapping[str, str]) -> Iterator[str]:
    memory = [variant.buffers[number].name for number in step.buffers]
    if step.kind == "loop":
        yield f"loop {step.symbol} to {step.count}"
    elif step.kind == "copy":
        source, target = (f"{name} at {offset}" for name, offset in zip(memory, step.offsets, strict=True))
        yield f"copy {step.bytes} bytes from {source} to {target}"
    elif step.kind == "host":
        count = int(step.offsets[0])
        yield f"on the host {step.function}"
        yield f"reads {' '.join(memory[:count])}"
        yield f"writes {' '.join(memory[count:])}"
    else:
        yield names.get(step.code, step.code)
        yield f"grid {' by '.join(step.grid)}"
        for argument in step.arguments:
            values = {"buffer": variant.buffers[argument.buffer].name, "error": "error"}
            yield f"{argument.name} = {values.get(argument.kind, argument.size)}"


def _variant(steps: Steps) -> tuple[Variant, Mapping[str, Kernel]]:
    """The steps as data, before constants have their places in a file."""
    return steps.variant(dict.fromkeys(steps.constants, 0))


def _steps(steps: Steps, placed: Placed, *_: object) -> Texts:
    variant, kernels = _variant(steps)
    texts = KernelTexts()
    names = {name: texts.add(kernel) for name, kernel in kernels.items()}
    yield f"{placed.program.name}.steps", print_steps(variant, names)
    yield f"{placed.program.name}.kernels.py", texts.text()


def _verify_steps(steps: Steps, *_: object) -> None:
    """Each kernel is given what it takes, in memory that there is and that reaches from the first use to the last."""
    variant, kernels = _variant(steps)
    for number, step in enumerate(variant.steps):
        for own in (step, *(variant.inner[inner] for inner in step.body)):
            if own.kind == "kernel":
                given, taken = [argument.name for argument in own.arguments], list(kernels[own.code].signature)
                assert given == taken, f"step {number}: {own.code} takes {taken}, but is given {given}"
            used = [*own.buffers, *(argument.buffer for argument in own.arguments if argument.kind == "buffer")]
            for buffer in (variant.buffers[index] for index in used):
                lives = buffer.kind != "arena" or buffer.first <= number <= buffer.last
                assert lives, f"step {number} uses {buffer.name}, which lives from step {buffer.first} to {buffer.last}"


def _program_form() -> Form:
    def check(program: TensorProgram, *_: object) -> None:
        verify(program)

    return Form(lambda *_: (), check)


def _regions_form(suffix: str) -> Form:
    def regions_of(made: Regions | tuple[Regions, object]) -> Regions:
        return made[0] if isinstance(made, tuple) else made

    def texts(made: Regions | tuple[Regions, object], *_: object) -> Texts:
        regions = regions_of(made)
        return [(f"{regions.program.name}.{suffix}", print_regions(regions))]

    def check(made: Regions | tuple[Regions, object], *_: object) -> None:
        verify_regions(regions_of(made))

    return Form(texts, check)


def _placed_form(suffix: str) -> Form:
    def texts(placed: Placed, *_: object) -> Texts:
        return [(f"{placed.program.name}.{suffix}", print_placed(placed))]

    def check(placed: Placed, *_: object) -> None:
        verify_placed(placed, lanes=False)

    return Form(texts, check)


FORMS: dict[str, Form] = {
    "outputs": _program_form(),
    "fuse": _regions_form("fused"),
    "pack": _regions_form("padded"),
    "append": _regions_form("appended"),
    "place": _placed_form("placed"),
    "write_states": _placed_form("written"),
    "realise": Form(_steps, _verify_steps),
}
"""By name of the stage."""

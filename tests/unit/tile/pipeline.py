"""From a tensor program to its results, through fusion, placement and schedules, with tile programs interpreted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from opweld.backends.c import Realised, realise_program
from opweld.backends.c_forms import FORMS
from opweld.ledger import Ledger
from opweld.schedule.expected import Expected, expected_sizes
from opweld.stages import Stage, Watched, plain
from opweld.target import Target
from opweld.tensor.dim import Atom
from opweld.tensor.interpret import bind_symbols, interpret
from opweld.tensor.label import labels
from opweld.tensor.parse import parse_program
from opweld.tensor.program import TensorProgram
from opweld.tensor.simplify import simplify_program
from opweld.tensor.verify import verify
from opweld.tile.assemble import assemble
from opweld.tile.launches import verify_launches
from opweld.tile.module import ModuleVariant
from opweld.tile.sizes import given_sizes
from tests.unit.tile.interpreter import Block, run_kernel

Array = np.ndarray[Any, Any]

# Eight lanes, as AVX2 has.
TARGET = Target.of("x86-64-v3")


@dataclass(frozen=True, eq=False)
class Compiled(Realised):
    """A program and every stage's result for it, and what was decided."""

    ledger: Ledger

    @cached_property
    def assembled(self) -> tuple[ModuleVariant, list[Array]]:
        """The launches, and the images of constants that they number."""
        images: list[Array] = []

        def keep(key: str, image: Any) -> int:
            images.append(image())
            return len(images) - 1

        expected = expected_sizes(self.program)
        names = [value.name for value in self.program.inputs]
        sized = [given_sizes(item.kernel) for item in self.kernels]
        made = assemble("test", self.program, self.placed, self.kernels, sized, keep, expected, self.ledger, names)
        verify_launches(made, self.kernels)
        return made, images

    @property
    def names(self) -> list[str]:
        """The kernels' kinds, in order of launch."""
        return [item.kernel.name.partition("_")[2] for item in self.kernels]


def compile_text(
    text: str, target: Target = TARGET, level: str = "all", disable: tuple[str, ...] = (), seed: int = 0
) -> Compiled:
    """The kernels of a program in text, its constants random."""
    return compile_program(with_data(parse_program(text), seed), target, level, disable)


def with_data(program: TensorProgram, seed: int = 0) -> TensorProgram:
    """The program with random data in all constants."""
    random = np.random.default_rng(seed)
    constants = []
    for constant in program.constants:
        data = random_array(random, constant.dtype.numpy, constant.shape)
        constants.append(replace(constant, read=lambda data=data: data))
    return replace(program, constants=tuple(constants))


def random_array(random: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Normal floats, small integers that serve as indices below three, or coin tosses."""
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return random.integers(0, 3, shape).astype(dtype)
    return random.standard_normal(shape).astype(dtype)


def compile_program(
    program: TensorProgram, target: Target = TARGET, level: str = "all", disable: tuple[str, ...] = ()
) -> Compiled:
    """The kernels of a program, each checked."""
    return compile_with(program, Ledger(disable, level=level), target)


def realised(
    program: TensorProgram, target: Target, ledger: Ledger, expected: Expected | None = None, stage: Stage = plain
) -> Realised:
    """The kernels of a simplified program that a new ledger decides of."""
    ledger.variant(program.name, labels(program))
    return realise_program(program, target, expected or expected_sizes(program), ledger, stage)


def compile_with(program: TensorProgram, ledger: Ledger, target: Target = TARGET) -> Compiled:
    """The kernels of a program as a ledger decides, every stage's result verified."""
    verify(program)
    watched = Watched(None, debug=True, forms=FORMS)
    made = realised(simplify_program(program), target, ledger, stage=watched)
    return Compiled(made.program, made.regions, made.placed, made.plans, made.kernels, ledger)


def run(compiled: Compiled, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of all kernels run one after another. Memory exists only while the variant says that it lives."""
    program, placed = compiled.program, compiled.placed
    sizes: dict[Atom, int] = bind_symbols(program, feeds)
    variant, images = compiled.assembled
    blocks: list[Block | None] = [None] * len(variant.memory)
    outputs: dict[str, Array] = {}
    states = {state.output: state for state in program.states}
    given = [(public, value) for public, value in program.outputs if public not in states]
    for position, memory in enumerate(variant.memory):
        if memory.kind == "input":
            name = program.inputs[memory.index].name
            blocks[position] = Block.filled(memory.name, feeds[name].reshape(-1).copy())
            for state in program.states:
                if state.input == name and state.axis is not None and state.length is not None:
                    there = np.indices(feeds[name].shape)[state.axis] < state.length.evaluate(sizes)
                    blocks[position] = Block(memory.name, feeds[name].reshape(-1).copy(), there.reshape(-1))
        elif memory.kind == "constant":
            blocks[position] = Block.filled(memory.name, images[memory.offset])
        elif memory.kind == "output":
            value = given[memory.index][1]
            elements = placed.storages[value].elements.evaluate(sizes)
            blocks[position] = Block.empty(value, program.dtype_of(value), elements)
    phase, before = -1, 0
    for number, launch in enumerate(variant.launches):
        if launch.phase != phase:
            assert launch.phase == phase + 1
            phase, before = launch.phase, 0
            for block in blocks:
                if block is not None:
                    block.forget()
        for position, memory in enumerate(variant.memory):
            if memory.kind == "arena" and memory.first == phase and blocks[position] is None:
                assert memory.size is not None
                storage = placed.storages[memory.name]
                elements = storage.elements.evaluate(sizes)
                assert memory.size.evaluate(sizes) >= elements * storage.dtype.bytes
                blocks[position] = Block.empty(memory.name, storage.dtype, elements)
        bound: dict[str, Block] = {}
        for buffer, position in zip(launch.kernel.buffers, launch.memory, strict=True):
            block = blocks[position]
            assert block is not None, f"{launch.kernel.name} uses {buffer.name} outside of its lifetime"
            bound[buffer.name] = block
        own: dict[Atom, int] = {
            symbol: size.evaluate(sizes) for symbol, size in zip(launch.kernel.sizes, launch.sizes, strict=True)
        }
        before = run_kernel(launch.kernel, bound, own, before)
        if number + 1 < len(variant.launches) and variant.launches[number + 1].phase == phase:
            continue
        for position, memory in enumerate(variant.memory):
            if memory.kind == "arena" and memory.last == phase:
                blocks[position] = None
    for position, memory in enumerate(variant.memory):
        if memory.kind == "output":
            public, value = given[memory.index]
            block = blocks[position]
            assert block is not None and block.written.all(), f"not all of output {public} is written"
            outputs[public] = block.data.reshape([d.evaluate(sizes) for d in program.shape_of(value)])
        if memory.kind == "input":
            name = program.inputs[memory.index].name
            for state in (state for state in program.states if state.input == name):
                block = blocks[position]
                assert block is not None
                shape = [d.evaluate(sizes) for d in program.shape_of(dict(program.outputs)[state.output])]
                used = tuple(map(slice, shape))
                assert block.written.reshape(feeds[name].shape)[used].all(), f"not all of state {name} is written"
                outputs[state.output] = block.data.reshape(feeds[name].shape)[used]
    return outputs


def check(
    text: str,
    sizes: Mapping[str, int] | None = None,
    target: Target = TARGET,
    level: str = "all",
    disable: tuple[str, ...] = (),
    seed: int = 0,
    feeds: Mapping[str, Array] | None = None,
) -> Compiled:
    """Compiles a program, runs it on random inputs, and compares with the tensor interpreter in float64."""
    program = with_data(parse_program(text), seed)
    compiled = compile_program(program, target, level, disable)
    check_compiled(program, compiled, sizes or {}, seed, feeds)
    return compiled


def check_compiled(
    program: TensorProgram,
    compiled: Compiled,
    sizes: Mapping[str, int],
    seed: int = 0,
    feeds: Mapping[str, Array] | None = None,
) -> None:
    """Runs what was compiled at these sizes, and compares with the tensor interpreter in float64."""
    random = np.random.default_rng(seed + 1)
    known: dict[Atom, int] = {source.symbol: sizes[source.symbol.name] for source in program.symbols}
    made: dict[str, Array] = dict(feeds or {})
    for value in program.inputs:
        if value.name not in made:
            shape = tuple(dim.evaluate(known) for dim in value.shape)
            made[value.name] = random_array(random, value.dtype.numpy, shape)
    expected = interpret(program, made, float64=True)
    found = run(compiled, made)
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert array.shape == expected[name].shape
        if array.dtype.kind == "f":
            np.testing.assert_allclose(array, expected[name], rtol=2e-4, atol=2e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(array, expected[name], err_msg=name)

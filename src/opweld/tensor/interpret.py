"""The NumPy interpreter of tensor programs: the oracle that compiled code is compared with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from opweld.errors import AssumptionError, InputError, OpweldError
from opweld.tensor.dim import Atom, Dim
from opweld.tensor.evaluate import Evaluator, evaluate_tensor
from opweld.tensor.externs import call_extern
from opweld.tensor.program import Extern, Item, Scan, State, Tensor, TensorProgram, item_inputs, item_outputs
from opweld.tensor.semantics import Array, is_floating

__all__ = ["bind_symbols", "evaluate_tensor", "interpret", "interpret_run"]


def interpret(program: TensorProgram, feeds: Mapping[str, Array], float64: bool = False) -> dict[str, Array]:
    """The outputs of a program by public name.

    Args:
        program: a verified program.
        feeds: one array for every input, by name, of its dtype.
        float64: compute with floats in float64 throughout; float outputs are float64 then.

    Raises InputError for a wrong feed, AssumptionError when the shapes do not fit this variant, OpweldError for an
    index out of range or an integer division by zero.
    """
    symbols = bind_symbols(program, feeds)
    env = {name: _as_computed(np.asarray(array), float64) for name, array in feeds.items()}
    constants = {constant.name: constant for constant in program.constants}
    wanted = {value for _, value in program.outputs}
    last_use = {name: item for item in program.items for name in item_inputs(item)}
    for item in program.items:
        for name in item_inputs(item):
            if name not in env and name in constants:
                env[name] = _as_computed(constants[name].read(), float64)
        env.update(_evaluate_item(item, env, symbols, float64))
        for name in (*item_inputs(item), *item_outputs(item)):
            if name not in wanted and last_use.get(name, item) is item:
                env.pop(name, None)
    outputs: dict[str, Array] = {}
    for public, name in program.outputs:
        if name not in env and name in constants:
            env[name] = _as_computed(constants[name].read(), float64)
        if name not in env:
            raise OpweldError(f"program {program.name!r}: output {public!r} is {name!r}, which is not computed")
        outputs[public] = env[name]
    return outputs


def interpret_run(
    program: TensorProgram, feeds: Mapping[str, Array], states: Mapping[str, Array], float64: bool = False
) -> dict[str, Array]:
    """The outputs of a run that are not states; the arrays of `states`, by input, are updated in place.

    A growing state's array has its capacity; its length is among the feeds."""
    outputs = interpret(program, {**feeds, **states}, float64)
    for state in program.states:
        after, memory = outputs.pop(state.output), states[state.input]
        memory[tuple(slice(size) for size in after.shape)] = after
    return outputs


def bind_symbols(program: TensorProgram, feeds: Mapping[str, Array]) -> dict[Atom, int]:
    """The symbols' values for these feeds, after checking the feeds, their shapes and all guards.

    Raises InputError or AssumptionError.
    """
    for value in program.inputs:
        if value.name not in feeds:
            raise InputError(f"input {value.name!r} is missing; feed it an array of {value.dtype!r}{list(value.shape)}")
        array = feeds[value.name]
        if array.dtype != value.dtype.numpy or array.ndim != len(value.shape):
            raise InputError(
                f"input {value.name!r} must be {value.dtype!r} of rank {len(value.shape)}, "
                f"but is {array.dtype} of shape {array.shape}"
            )
    for name in feeds:
        if not any(value.name == name for value in program.inputs):
            raise InputError(f"there is no input {name!r}; the inputs are {[value.name for value in program.inputs]}")
    symbols: dict[Atom, int] = {}
    for source in program.symbols:
        numbers = feeds[source.input].reshape(-1) if source.by_value else feeds[source.input].shape
        if source.position >= len(numbers):
            raise InputError(f"input {source.input!r} has only {len(numbers)} of the elements for {source.symbol}")
        quotient, remainder = divmod(int(numbers[source.position]), source.divisor)
        least = source.symbol.least
        if remainder or (least is not None and quotient < least):
            raise AssumptionError(
                f"input {source.input!r}: {numbers[source.position]} must be a multiple of {source.divisor}"
                + (f" and at least {source.divisor * least}" if least is not None else "")
                + (f": {source.reason}" if source.reason else "")
            )
        if symbols.setdefault(source.symbol, quotient) != quotient:
            raise AssumptionError(
                f"{source.symbol} is {symbols[source.symbol]} elsewhere, but {quotient} by input {source.input!r}"
            )
    for guard in program.guards:
        if not guard.holds(symbols):
            relation = "== 0" if guard.kind == "zero" else ">= 0"
            raise AssumptionError(f"assumption {guard.dim} {relation} fails for {symbols}: {guard.reason}")
    for value in program.inputs:
        expected = _shape(value.shape, symbols)
        if feeds[value.name].shape != expected:
            raise AssumptionError(
                f"input {value.name!r} must have the shape {list(value.shape)} = {expected}, "
                f"but has {feeds[value.name].shape}"
            )
    return symbols


def _shape(dims: tuple[Dim, ...], symbols: Mapping[Atom, int]) -> tuple[int, ...]:
    return tuple(dim.evaluate(symbols) for dim in dims)


def _as_computed(array: Array, float64: bool) -> Array:
    return array.astype(np.float64) if float64 and is_floating(array.dtype) else array


def _evaluate_item(
    item: Item, env: Mapping[str, Array], symbols: Mapping[Atom, int], float64: bool
) -> dict[str, Array]:
    if isinstance(item, Tensor):
        return {item.name: evaluate_tensor(item, env, symbols, float64)}
    if isinstance(item, Extern):
        return call_extern(item, env, symbols, float64)
    return _evaluate_scan(item, env, symbols, float64)


def _evaluate_scan(
    scan: Scan, env: Mapping[str, Array], symbols: Mapping[Atom, int], float64: bool
) -> dict[str, Array]:
    def prepare(value: Tensor | State) -> Evaluator:
        body = value.body if isinstance(value, Tensor) else value.initial
        return Evaluator(value.name, value.axes, body, known, float64, scan.origin)

    known = {**symbols, scan.time: 0}
    length = scan.time.extent.evaluate(symbols)
    current = {state.name: prepare(state).run(env) for state in scan.states}
    steps = {step.name: prepare(step) for step in scan.steps}
    computed: dict[str, Array] = {}
    stacked: dict[str, list[Array]] = {name: [] for name, _ in scan.stacked}
    for time in range(length):
        computed = {}
        for name, evaluator in steps.items():
            computed[name] = evaluator.run({**env, **current, **computed}, {scan.time: time})
        for name, step in scan.stacked:
            stacked[name].append(computed[step])
        current = {state.name: computed[state.update] for state in scan.states}
    outputs = {name: current[state] for name, state in scan.final}
    for name, step in scan.stacked:
        outputs[name] = _stack(stacked[name], steps[step])
    return outputs


def _stack(parts: list[Array], evaluator: Evaluator) -> Array:
    if parts:
        return np.stack(parts)
    return np.empty((0, *(evaluator.extents[axis] for axis in evaluator.axes)), evaluator.result_dtype)

"""A backend that interprets: a program stays a tensor program, and NumPy computes it element by element.

It is what a package with a backend of its own is: a `Backend`, `Stages` of it, and a runtime that opens what they
wrote, found through the entry points of `ENTRY_POINTS`. A variant is one kernel here. What the package of a real
backend would rather not do is import `opweld.tensor` to run something."""

from __future__ import annotations

import contextvars
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from opweld.backends.flow import flow_of
from opweld.build.artifact import WEIGHTS, Manifest
from opweld.codegen.backend import Backend, BuildProgress, Compiled, CompiledModel, Stages
from opweld.errors import AssumptionError, OptionError
from opweld.ledger import Ledger
from opweld.record import KernelEntry
from opweld.runtime import dtypes
from opweld.runtime.flow import Flow, Stack, run_flow
from opweld.runtime.opened import Opened
from opweld.runtime.plan import Array, PlanDescription, Step, Visit
from opweld.runtime.profile import Clocked
from opweld.runtime.state import State
from opweld.schedule.expected import Expected
from opweld.stages import Form, Stage
from opweld.target import TargetMachine
from opweld.tensor.intern import compilation
from opweld.tensor.interpret import bind_symbols, interpret
from opweld.tensor.parse import parse_program
from opweld.tensor.program import PutWeights, TensorProgram, item_outputs
from opweld.tensor.text import print_program
from opweld.tensor.verify import verify
from tests.backends.kept import Kept

ENTRY_POINTS = {
    "opweld.targets": {"interpret": "tests.backends.interpret:BACKEND"},
    "opweld.runtimes": {"interpreter": "tests.backends.interpret:Interpreted"},
}

FLOW = "flow.json"
CONSTANTS = "constants.json"


@dataclass(frozen=True)
class NumPy(TargetMachine):
    """A machine that is known for nothing but its interpreter."""

    kind: ClassVar[str] = "numpy"


@dataclass(frozen=True, eq=False)
class Text:
    """A program as text, and where its constants lie in the weights file."""

    program: str
    constants: Mapping[str, int]


class InterpreterStages(Stages[Text]):
    """Writes programs down as they are."""

    forms: Mapping[str, Form] = {
        "print": Form(lambda text, program: [(f"{program.name}.text", text)], lambda text, program: verify(program))
    }
    beginnings: Mapping[str, str] = {"print": "writing programs down"}
    building = "writing files"

    def compile(
        self,
        program: TensorProgram,
        inputs: Sequence[str],
        target: NumPy,
        expected: Expected,
        ledger: Ledger,
        weights: PutWeights,
        stage: Stage,
    ) -> Compiled[Text]:
        """One kernel, for which nothing is decided."""
        text = stage("print", print_program, program)
        constants = {
            constant.name: weights(
                constant.name,
                lambda constant=constant: np.asarray(constant.read(), constant.dtype.numpy),
            )
            for constant in program.constants
        }
        nodes = dict.fromkeys(name for item in program.items for name in item.origin if name)
        region = next((ledger.label(name) for item in program.items for name in item_outputs(item)), program.name)
        kernels = (KernelEntry(program.name, region, tuple(nodes), 0, 0.0, 0, 0),) if program.items else ()
        return Compiled(program.name, program.guards, Text(text, constants), kernels, (), {})

    def write(
        self, model: CompiledModel[Text], target: NumPy, folder: Path, stage: Stage, progress: BuildProgress
    ) -> tuple[str, ...]:
        """A text for each variant, the flow between them, and where constants are."""
        if model.zero_denormals:
            raise OptionError("denormals=zero: NumPy cannot be told to take denormal numbers for 0; leave it away")
        files = {f"programs/{variant.name}.text": variant.code.program for variant in model.variants}
        files[FLOW] = flow_of(model).dumps()
        files[CONSTANTS] = json.dumps({variant.name: variant.code.constants for variant in model.variants})
        (folder / "programs").mkdir()
        for done, (name, text) in enumerate(files.items()):
            (folder / name).write_text(text, encoding="utf-8")
            progress(done + 1, len(files))
        return (*files, WEIGHTS)


class Interpreter(Backend):
    """NumPy, element by element."""

    name = "interpreter"
    targets = ("interpret",)

    def target(self, name: str) -> NumPy:
        """Any machine."""
        return NumPy(name)

    def stages(self) -> InterpreterStages:
        """Those that are here."""
        return InterpreterStages()


BACKEND = Interpreter()


class _Arrays:
    """Values between segments are arrays."""

    def empty(self, stack: Stack) -> Array:
        return np.empty((0, *stack.dims), dtypes.numpy_dtype(stack.dtype))

    def append(self, stack: Array, added: Array) -> Array:
        return np.concatenate([stack, added[None]]) if len(stack) else added[None]


@dataclass(frozen=True)
class _Ran:
    """A segment that ran: which, as which variant, and when, in nanoseconds."""

    segment: int
    variant: str
    begin: int
    end: int


class Interpreted(Opened):
    """Programs that are read when they first run."""

    def __init__(self, folder: Path, manifest: Manifest, threads: int) -> None:
        super().__init__(folder, manifest, threads)
        self._flow = Flow.loads((folder / FLOW).read_text(encoding="utf-8"), str(folder / FLOW))
        self._constants = json.loads((folder / CONSTANTS).read_text(encoding="utf-8"))
        self._weights = np.memmap(folder / WEIGHTS, np.uint8, "r") if (folder / WEIGHTS).stat().st_size else None
        self.has_dynamic_control_flow = self._flow.has_dynamic_control_flow
        # Sizes and expressions of these programs are in tables of their own, whatever is compiled meanwhile.
        with compilation():
            self._tables = contextvars.copy_context()
        self._program = cache(self._read)
        self._lock = threading.Lock()

    def run(self, arrays: list[Array], shapes: list[Any]) -> list[Array]:
        """See `Opened`."""
        return self._run(arrays, [])

    def fits(self, arrays: list[Array]) -> bool:
        """See `Opened`."""
        return self._tables.copy().run(self._fits, arrays)

    def plan(self, arrays: list[Array]) -> PlanDescription:
        """See `Opened`: of any model by running it."""
        ran: list[_Ran] = []
        outputs = self._run(arrays, ran)
        steps = tuple(Step(one.variant, "", number, 1, 0, 0, 0) for number, one in enumerate(ran))
        visits = tuple(Visit(one.segment, one.variant, number, 1) for number, one in enumerate(ran))
        kinds = tuple((array.shape, array.dtype) for array in outputs)
        names = ", ".join(dict.fromkeys(one.variant for one in ran))
        return PlanDescription(kinds, names, 0, 0, 0, 0, 1, steps, visits if self.has_dynamic_control_flow else ())

    def clocked(self, arrays: list[Array]) -> tuple[list[Array], Clocked]:
        """See `Opened`."""
        ran: list[_Ran] = []
        began = time.monotonic_ns()
        outputs = self._run(arrays, ran)
        wall = time.monotonic_ns() - began
        spans = [(one.begin - began, one.end - began, one.end - one.begin, 1) for one in ran]
        return outputs, Clocked(wall, np.array([spans], np.int64).reshape(1, len(ran), 4))

    def new_state(self, shapes: Sequence[tuple[int, ...]]) -> Kept:
        """See `Opened`."""
        return Kept(self, shapes)

    def run_state(self, arrays: list[Array], state: State) -> list[Array]:
        """See `Opened`."""
        assert isinstance(state, Kept)
        self.check_shapes(arrays)
        with state.taken() as kept:
            try:
                made = self._walk([*arrays, *kept], [])
            except AssumptionError as error:
                raise self.explained(error, arrays, state) from None
            becomes, named = {info.output for info in state.infos}, list(zip(self._flow.results, made, strict=True))
            state.become({name: array for name, array in named if name in becomes})
        return [array for name, array in named if name not in becomes]

    def _run(self, arrays: list[Array], ran: list[_Ran]) -> list[Array]:
        self.check_shapes(arrays)
        try:
            return self._walk(arrays, ran)
        except AssumptionError as error:
            raise self.explained(error, arrays) from None

    def _walk(self, arrays: list[Array], ran: list[_Ran]) -> list[Array]:
        """The results of the flow, in memory of their own."""

        def take(number: int, values: Mapping[str, Array]) -> tuple[int, Mapping[str, Array]]:
            begin = time.monotonic_ns()
            position, outputs = self._first_that_fits(number, values)
            ran.append(_Ran(number, self._flow.segments[number].variants[position].name, begin, time.monotonic_ns()))
            return position, outputs

        fed = dict(zip(self._flow.inputs, arrays, strict=True))
        made = self._tables.copy().run(run_flow, self._flow, fed, take, _Arrays())
        return [np.array(array, order="C") for array in made]  # an output may be an input, or another output

    def _fits(self, arrays: list[Array]) -> bool:
        fed = dict(zip(self._flow.inputs, arrays, strict=True))
        for variant in self._flow.segments[0].variants:
            program = self._program(variant.name)
            try:
                bind_symbols(program, {value.name: fed[value.name] for value in program.inputs})
            except AssumptionError:
                continue
            return True
        return False

    def _first_that_fits(self, number: int, values: Mapping[str, Array]) -> tuple[int, Mapping[str, Array]]:
        refused: AssumptionError | None = None
        for position, variant in enumerate(self._flow.segments[number].variants):
            program = self._program(variant.name)
            try:
                return position, interpret(program, {value.name: values[value.name] for value in program.inputs})
            except AssumptionError as error:
                refused = error
        assert refused is not None, f"segment {number} has no variant"
        raise refused

    def _read(self, name: str) -> TensorProgram:
        text = (self.folder / "programs" / f"{name}.text").read_text(encoding="utf-8")
        bare = parse_program(text)
        data = {constant.name: self._constant(name, constant) for constant in bare.constants}
        return parse_program(text, data)

    def _constant(self, program: str, constant: Any) -> Array:
        count = int(np.prod(constant.shape, dtype=np.int64))
        if not count or self._weights is None:
            return np.empty(constant.shape, constant.dtype.numpy)
        begin = self._constants[program][constant.name]
        data = self._weights[begin : begin + count * constant.dtype.bytes]
        return np.asarray(data).view(constant.dtype.numpy).reshape(constant.shape)

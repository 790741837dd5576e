"""Tensor programs as models: written by hand or generated, without a graph."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from opweld.errors import ModelError, OptionError, OpweldError
from opweld.frontends.source import Source

if TYPE_CHECKING:
    from opweld.build.cache import Cache
    from opweld.frontend.program import Program
    from opweld.ledger import Ledger
    from opweld.options import Options
    from opweld.stages import Stage
    from opweld.tensor.flow import Ending, Flow
    from opweld.tensor.program import TensorProgram
    from opweld.verification.check import Check

Array = np.ndarray[Any, Any]

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def tensor_source(model: object) -> TensorSource | None:
    """The source of a TensorProgram, or of a Flow of several. Raises ModelError for a malformed one, naming the
    program, the value, and the error."""
    if not type(model).__module__.startswith("opweld.tensor."):
        return None  # imports nothing for other models
    from opweld.tensor.flow import LAST, Flow, Segment
    from opweld.tensor.program import TensorProgram

    if isinstance(model, TensorProgram):
        outputs = tuple((public, public) for public, _ in model.outputs)
        model = Flow(tuple(value.name for value in model.inputs), outputs, (Segment((model,), (LAST,)),))
    return TensorSource.of(model) if isinstance(model, Flow) else None


@dataclass(frozen=True)
class Written:
    """A tensor program as text, parsed in every compilation, since interned sizes and expressions belong to one
    compilation.
    `constants`: the data that the text lacks. `values`: see `TensorProgram.values`."""

    text: str
    constants: Mapping[str, Callable[[], Array]]
    values: Mapping[str, str]

    def __getstate__(self) -> tuple[str, dict[str, Array], dict[str, str]]:
        return self.text, {name: read() for name, read in self.constants.items()}, dict(self.values)

    def __setstate__(self, state: tuple[str, dict[str, Array], dict[str, str]]) -> None:
        text, constants, values = state
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "constants", {name: partial(_same, array) for name, array in constants.items()})
        object.__setattr__(self, "values", values)


@dataclass(frozen=True, eq=False)
class TensorSource(Source):
    """A flow of tensor programs.

    Attributes:
        name: of its first program.
        inputs, outputs: see `Flow`. segments: of each, the variants and their endings.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, str], ...]
    segments: tuple[tuple[tuple[Written, Ending], ...], ...]

    @classmethod
    def of(cls, flow: Flow) -> TensorSource:
        """The source of a flow; ModelError if malformed."""
        _check(flow)
        return cls(
            flow.segments[0].programs[0].name,
            flow.inputs,
            flow.outputs,
            tuple(
                tuple((_written(p), ending) for p, ending in zip(own.programs, own.endings, strict=True))
                for own in flow.segments
            ),
        )

    @property
    def title(self) -> str:
        """The name of the program."""
        return f"the tensor program {self.name!r}"

    @cached_property
    def _digest(self) -> str:
        found = hashlib.sha256(repr((self.inputs, self.outputs)).encode())
        for number, own in enumerate(self.segments):
            for written, ending in own:
                found.update(
                    f"\0segment {number}\0{ending!r}\0{written.text}\0{sorted(written.values.items())}".encode()
                )
                for name, read in sorted(written.constants.items()):
                    array = np.ascontiguousarray(read())
                    found.update(f"\0{name} {array.dtype} {array.shape}\0".encode())
                    found.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
        return found.hexdigest()

    def digest(self, cache: Cache) -> str:
        """See `Source.digest`: of the text, and of the data of constants."""
        return self._digest

    def read(self, options: Options, ledger: Ledger, stage: Stage) -> Program:
        """See `Source.read`. Sizes of `options.dims` replace symbols; variants that they contradict are
        dropped."""
        from opweld.frontend.program import Program, costs_of
        from opweld.frontends.described import described

        _check_options(options)
        flow, name = stage("load", self.flow, options.dims), self.name
        description, nodes, parameters = described(flow, name)
        return Program(flow, description, ledger, costs_of(flow), nodes, parameters)

    def flow(self, dims: Mapping[str, int] | None = None) -> Flow:
        """The flow, in the tables of the current compilation. Raises OptionError for a dim that no program has, or a
        size that it cannot be, ModelError if no variant accepts these sizes."""
        from opweld.frontends.fixed import symbol_sizes
        from opweld.tensor.flow import Flow, Segment
        from opweld.tensor.text import parse_program

        texts = (written.text for own in self.segments for written, _ in own)
        sizes = symbol_sizes([parse_program(text) for text in texts], dims) if dims else {}
        segments: list[Segment] = []
        for number, own in enumerate(self.segments):
            variants: list[tuple[TensorProgram, Ending]] = []
            for position, (written, ending) in enumerate(own):
                made = _completed(parse_program(written.text, sizes=sizes), written)
                guards = made.guards
                if any(guard.dim.constant is not None and not guard.holds({}) for guard in guards):
                    continue
                left = tuple(guard for guard in guards if guard.dim.constant is None)
                name = _name(number, position, len(self.segments), len(own))
                variants.append((replace(made, name=name, guards=left), ending))
            if not variants:
                raise ModelError(f"{self.title}: no variant of segment {number} takes the sizes {dict(dims or {})}")
            segments.append(Segment(tuple(p for p, _ in variants), tuple(ending for _, ending in variants)))
        return Flow(self.inputs, self.outputs, tuple(segments))

    def check(
        self,
        feeds: Mapping[str, Any],
        names: Sequence[str],
        outputs: Sequence[Any],
        rtol: float | None,
        atol: float | None,
    ) -> Check:
        """Against the interpreter of tensor programs, in float64."""
        from opweld.tensor.flow import interpret_flow
        from opweld.tensor.intern import compilation
        from opweld.verification.check import Reference

        with compilation():
            found = interpret_flow(self.flow(), feeds, float64=True)
        right = [found[name] for name in names]
        reference = Reference(tuple(names), right, None, None, None, frozenset(), ())
        return reference.check(outputs, rtol=rtol, atol=atol)


def _check(flow: Flow) -> None:
    """Raises ModelError for a flow whose programs are malformed, or do not match."""
    from opweld.tensor.verify import verify

    if not flow.segments or not all(own.programs for own in flow.segments):
        raise ModelError("a flow needs a segment, and each segment a tensor program")
    if len({public for public, _ in flow.outputs}) < len(flow.outputs):
        raise ModelError("a flow has two outputs of one name")
    for number, own in enumerate(flow.segments):
        if len(own.programs) != len(own.endings):
            raise ModelError(f"segment {number} has {len(own.programs)} programs and {len(own.endings)} endings")
        for program, ending in zip(own.programs, own.endings, strict=True):
            try:
                verify(program)
            except OpweldError as error:
                raise ModelError(str(error)) from error
            title = f"tensor program {program.name!r}"
            for name in _own_names(program):
                if not _PLAIN.match(name):
                    raise ModelError(f"{title}: {name!r} is not a name of letters, digits and underscores; rename it")
            if ending.next is not None and not 0 <= ending.next < len(flow.segments):
                raise ModelError(f"{title} is followed by segment {ending.next}; there are {len(flow.segments)}")
            unknown = [value.name for value in program.inputs if number == 0 and value.name not in flow.inputs]
            if unknown:
                raise ModelError(f"{title} reads {unknown[0]!r}, which is not an input of the flow")
    programs = [program for own in flow.segments for program in own.programs]
    read = {value.name for program in programs for value in program.inputs}
    moved = {to for own in flow.segments for ending in own.endings for to, _ in ending.moves}
    there = {public for program in programs for public, _ in program.outputs} | read | moved
    for name in flow.inputs:
        if name not in read:
            raise ModelError(f"no tensor program reads the input {name!r} of the flow")
    for public, name in flow.outputs:
        if name not in there:
            raise ModelError(f"output {public!r} of the flow is {name!r}, which no tensor program gives")


def _own_names(program: TensorProgram) -> Iterator[str]:
    """The names that callers do not see."""
    from opweld.tensor.program import Scan, item_outputs

    yield from (source.symbol.name for source in program.symbols)
    yield from (constant.name for constant in program.constants)
    for item in program.items:
        yield from item_outputs(item)
        if isinstance(item, Scan):
            yield from (value.name for value in (*item.states, *item.steps))


def _written(program: TensorProgram) -> Written:
    from opweld.tensor.text import print_program

    constants = {
        constant.name: partial(_data, program.name, constant.name, constant.dtype.numpy, constant.shape, constant.read)
        for constant in program.constants
    }
    return Written(print_program(program), constants, dict(program.values))


def _completed(program: TensorProgram, written: Written) -> TensorProgram:
    """With the data of its constants, and an origin for each value: itself, if none is given."""
    from opweld.tensor.program import item_outputs

    constants = tuple(replace(constant, read=written.constants[constant.name]) for constant in program.constants)
    items = tuple(item if any(item.origin) else replace(item, origin=item_outputs(item)[:1]) for item in program.items)
    values = written.values or {name: name for item in items for name in item_outputs(item)}
    return replace(program, constants=constants, items=items, values=values)


def _name(number: int, position: int, segments: int, variants: int) -> str:
    """The name of a program in decisions and files, independent of its own name."""
    own = f"variant{position}" if variants > 1 else "main"
    return own if segments == 1 else f"segment{number}_{own}"


def _same(array: Array) -> Array:
    return array


def _data(program: str, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], read: Callable[[], Array]) -> Array:
    try:
        array = np.asarray(read())
    except OpweldError as error:
        raise ModelError(f"tensor program {program!r}: {error}") from error
    if array.dtype != dtype or array.shape != shape:
        raise ModelError(
            f"tensor program {program!r}: the data of constant {name!r} is {array.dtype}{list(array.shape)}, "
            f"expected {dtype}{list(shape)}"
        )
    return array


def _check_options(options: Options) -> None:
    """Raises OptionError for options that are for ONNX models only."""
    given = {**vars(options.specialisation), "rules": options.rules}
    for name, value in given.items():
        if value:
            raise OptionError(f"{name} is for ONNX models; the model is a tensor program")

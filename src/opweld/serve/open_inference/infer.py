"""A call of a model as both transports make it: inputs checked and put together, outputs as they were asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from opweld.errors import InputError
from opweld.serve.inference.model import Array, Call, TensorModel, TensorSpec
from opweld.serve.open_inference.classification import largest
from opweld.serve.open_inference.datatypes import bytes_of, datatype_of
from opweld.serve.open_inference.parameters import Place, Wanted
from opweld.serve.open_inference.regions import Regions
from opweld.serve.open_inference.strings import packed
from opweld.serve.open_inference.tensors import Declared
from opweld.serve.refusal import Refusal


class Output(NamedTuple):
    """An output to send.

    Attributes:
        values: None where they lie in shared memory already, at `place`.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: Array | None
    place: Place | None = None
    binary: bool | None = None


class Declarations:
    """The inputs that a request declares, one after the other."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        """specs: the inputs of the model."""
        self._specs = {spec.name: spec for spec in specs}
        self._given: set[str] = set()

    def declare(self, name: str, datatype: str, shape: Sequence[int]) -> Declared:
        """The next input. Raises InputError where the model takes no such tensor."""
        spec = self._specs.get(name)
        if spec is None:
            raise InputError(f"{name} is no input of the model; it takes {', '.join(self._specs)}")
        if name in self._given:
            raise InputError(f"{name} is given twice")
        self._given.add(name)
        return Declared(spec, datatype, shape)

    def check_complete(self) -> None:
        """Raises InputError where one is missing."""
        if missing := [name for name in self._specs if name not in self._given]:
            raise InputError(f"{missing[0]} is not given; the model takes {', '.join(self._specs)}")


def shared(declared: Declared, place: Place, regions: Regions, most: int) -> Array:
    """An input whose values are in shared memory. Raises InputError where they are not this tensor, Refusal where they
    are not there.

    Args:
        most: bytes of strings that are read.
    """
    declared.check_bytes(place.size, most)
    return declared.of_bytes(regions.read(f"input {declared.name}", place))


async def infer(
    model: TensorModel,
    feeds: Mapping[str, Array],
    wanted: Sequence[Wanted] | None,
    regions: Regions,
    *,
    id: str,
    deadline: float | None,
    begun: float,
) -> list[Output]:
    """The outputs of a call, in the order that they were asked for. Raises as `TensorModel.infer`."""
    names = None
    if wanted is not None:
        known = {spec.name for spec in model.outputs}
        names = [one.name for one in wanted]
        for one in wanted:
            if one.name not in known:
                raise Refusal(400, f"{one.name} is no output of {model.name}; it gives {', '.join(sorted(known))}")
            if one.place is not None:
                regions.check(f"output {one.name}", one.place)
        if len(set(names)) < len(names):
            raise Refusal(400, "an output is asked for twice")
    found = await model.infer(feeds, Call(id, names, deadline, begun))
    if wanted is None:
        return [Output(name, datatype_of(name, values.dtype), values.shape, values) for name, values in found.items()]
    return [_output(one, found[one.name], model, regions) for one in wanted]


def _output(wanted: Wanted, values: Array, model: TensorModel, regions: Regions) -> Output:
    name, place = wanted.name, wanted.place
    if wanted.classes:
        values = largest(name, values, wanted.classes, model.max_batch > 0)
    datatype = datatype_of(name, values.dtype)
    if place is None:
        return Output(name, datatype, values.shape, values, binary=wanted.binary)
    raw = raw_of(values)
    regions.write(f"output {name}", place, raw)
    return Output(name, datatype, values.shape, None, Place(place.region, place.offset, len(raw)))


def raw_of(values: Array) -> memoryview | bytes:
    """The bytes of a tensor as the protocol sends them."""
    return packed(values) if values.dtype.hasobject else bytes_of(values)

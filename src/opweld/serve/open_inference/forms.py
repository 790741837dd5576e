"""The JSON of requests over HTTP, checked against a model, and kept for those that say the same again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opweld.errors import InputError
from opweld.serve.inference.model import Array, TensorModel, TensorSpec
from opweld.serve.open_inference import json_fields as fields
from opweld.serve.open_inference.infer import Declarations, shared
from opweld.serve.open_inference.parameters import Parameter, Place, Wanted, check, flag, place_of, wanted, whole
from opweld.serve.open_inference.regions import Regions
from opweld.serve.open_inference.tensors import Declared
from opweld.serve.refusal import Refusal

_MOST: Final = 64
"""Forms that are kept."""

_LONGEST: Final = 2048
"""Bytes of the JSON of one of them."""


@dataclass(frozen=True, slots=True)
class _Input:
    """An input as a request declares it.

    Attributes:
        size: bytes of its values behind the JSON. place: in shared memory. data: in the JSON. One of them is not None.
    """

    declared: Declared
    size: int | None
    place: Place | None
    data: Any


@dataclass(frozen=True, slots=True)
class Form:
    """What a request says beside its tensors.

    Attributes:
        specs: the inputs of the model.
        id: as the client named it.
        wanted: the outputs that are asked for; None: all.
        binary: whether outputs that do not say it are sent as bytes.
    """

    specs: Sequence[TensorSpec]
    id: str
    parameters: Mapping[str, Parameter]
    wanted: Sequence[Wanted] | None
    binary: bool
    _inputs: Sequence[_Input]

    def feeds(self, rest: memoryview, regions: Regions, most: int) -> Mapping[str, Array]:
        """The tensors of a request of this form; numbers that came as bytes are views of them. Raises InputError where
        they are not what it declares, Refusal where they do not lie in shared memory.

        Args:
            rest: what is behind the JSON.
            most: bytes of strings in shared memory.
        """
        found: dict[str, Array] = {}
        for given in self._inputs:
            declared, size = given.declared, given.size
            if size is not None:
                if size > len(rest):
                    raise InputError(
                        f"{declared.name}: binary_data_size is {size}, but {len(rest)} bytes of the body are left"
                    )
                found[declared.name] = declared.of_bytes(rest[:size])
                rest = rest[size:]
            elif given.place is not None:
                found[declared.name] = shared(declared, given.place, regions, most)
            else:
                found[declared.name] = declared.of_values(given.data, finite=True)
        if len(rest):
            raise InputError(
                f"{len(rest)} bytes at the end of the body belong to no input; each says its binary_data_size"
            )
        return found


def form_of(model: TensorModel, raw: bytes | memoryview) -> Form:
    """The form that JSON says. Raises Refusal, or InputError where it does not fit the model."""
    request = fields.parsed(raw)
    id = fields.optional("the request", request, "id", str) or ""
    parameters = fields.parameters("the request", request)
    check(parameters)
    binary = bool(flag("the request", parameters, "binary_data_output"))
    asked = fields.objects("the request", request, "outputs")
    outputs = [_wanted(one) for one in asked] if asked else None
    given = fields.objects("the request", request, "inputs")
    if given is None:
        raise Refusal(400, "the request has no inputs, expected an array of tensors", param="inputs")
    declarations = Declarations(model.inputs)
    inputs = [_input(one, declarations) for one in given]
    declarations.check_complete()
    return Form(model.inputs, id, parameters, outputs, binary, inputs)


def _wanted(asked: Mapping[str, Any]) -> Wanted:
    name = fields.field("an output", asked, "name", str)
    return wanted(name, fields.parameters(f"output {name}", asked))


def _input(given: Mapping[str, Any], declarations: Declarations) -> _Input:
    name = fields.field("an input", given, "name", str)
    where = f"input {name}"
    declared = declarations.declare(name, fields.field(where, given, "datatype", str), fields.shape(where, given))
    parameters = fields.parameters(where, given)
    size = whole(where, parameters, "binary_data_size")
    place = place_of(where, parameters) if parameters else None
    data = given.get("data")
    if (size is not None) + (place is not None) + (data is not None) != 1:
        raise Refusal(
            400, f"{where} has its values in one of data, binary_data_size and shared_memory_region", param=name
        )
    return _Input(declared, size, place, data)


class Forms:
    """Forms by their JSON, the last ones: a client mostly sends the same JSON with other tensors behind it."""

    def __init__(self) -> None:
        # A form holds the specs of its model, so that no other's have their id while it is here.
        self._known: dict[tuple[int, bytes], Form] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, model: TensorModel, raw: memoryview) -> Form:
        """As `form_of`."""
        if len(raw) > _LONGEST:
            return form_of(model, raw)
        key = id(model.inputs), bytes(raw)
        form = self._known.get(key)
        if form is None:
            form = form_of(model, raw)
            if len(self._known) == _MOST:
                del self._known[next(iter(self._known))]
            self._known[key] = form
        return form

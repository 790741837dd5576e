"""Calls over gRPC: messages to tensors, and outputs to messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from opweld.errors import InputError
from opweld.serve.inference.model import Array, TensorModel
from opweld.serve.open_inference.grpc.descriptors import CLASSES
from opweld.serve.open_inference.infer import Declarations, Output, raw_of, shared
from opweld.serve.open_inference.parameters import Parameter, Wanted, place_of, wanted
from opweld.serve.open_inference.regions import Regions
from opweld.serve.refusal import Refusal

_CONTENTS: Final = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""The field of a datatype's values where they are not raw; types of 16 bits have none."""

_Response: Final = CLASSES["ModelInferResponse"]
_Output: Final = CLASSES["ModelInferResponse.InferOutputTensor"]


def parameters(given: Any) -> Mapping[str, Parameter]:
    """The values of a map of parameters. Raises Refusal where one is empty."""
    found: dict[str, Parameter] = {}
    for name, value in given.items():
        kind = value.WhichOneof("parameter_choice")
        if kind is None:
            raise Refusal(400, f"parameter {name} has no value", param=name)
        found[name] = getattr(value, kind)
    return found


def wanted_of(request: Any) -> Sequence[Wanted] | None:
    """The outputs that a request asks for; None: all."""
    if not request.outputs:
        return None
    return [wanted(one.name, parameters(one.parameters)) for one in request.outputs]


def feeds_of(model: TensorModel, request: Any, regions: Regions, most: int) -> Mapping[str, Array]:
    """The tensors of a request; numbers of raw contents are views of them. Raises InputError where they do not fit.

    Args:
        most: bytes of strings in shared memory.
    """
    declarations = Declarations(model.inputs)
    feeds: dict[str, Array] = {}
    raw, used = request.raw_input_contents, 0
    for given in request.inputs:
        name = given.name
        declared = declarations.declare(name, given.datatype, given.shape)
        place = place_of(f"input {name}", parameters(given.parameters)) if given.parameters else None
        if given.HasField("contents") and raw:  # in the words that clients of Triton know
            only = "contents field must not be specified when using raw_input_contents"
            raise InputError(f"{only} for {name!r} for model {model.name!r}")
        if place is not None:
            if given.HasField("contents"):
                raise InputError(f"{name} has its values in one of contents and shared_memory_region")
            feeds[name] = shared(declared, place, regions, most)
        elif raw:
            if used == len(raw):
                raise InputError(f"{name}: there are {len(raw)} raw_input_contents, none is left for it")
            feeds[name] = declared.of_bytes(memoryview(raw[used]))
            used += 1
        else:
            field = _CONTENTS.get(given.datatype)
            if field is None:
                raise InputError(f"{name} is of {given.datatype}; send it in raw_input_contents")
            feeds[name] = declared.of_values(list(getattr(given.contents, field)), finite=False)
    if used < len(raw):
        raise InputError(f"{len(raw) - used} of the {len(raw)} raw_input_contents belong to no input")
    declarations.check_complete()
    return feeds


def answer(model: TensorModel, id: str, outputs: Sequence[Output]) -> Any:
    """A ModelInferResponse. Where an output lies in shared memory, its raw contents are empty."""
    told: list[Any] = []
    raw: list[bytes] = []
    for output in outputs:
        one = _Output(name=output.name, datatype=output.datatype, shape=output.shape)
        if output.values is None:
            assert output.place is not None
            one.parameters["shared_memory_region"].string_param = output.place.region
            one.parameters["shared_memory_offset"].int64_param = output.place.offset
            one.parameters["shared_memory_byte_size"].int64_param = output.place.size
            raw.append(b"")
        else:
            raw.append(bytes(raw_of(output.values)))
        told.append(one)
    return _Response(model_name=model.name, model_version=model.version, id=id, outputs=told, raw_output_contents=raw)

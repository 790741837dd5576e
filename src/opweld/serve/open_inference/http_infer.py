"""Inference requests and answers over HTTP: JSON, and behind it the bytes of tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from opweld.errors import InputError
from opweld.serve.inference.model import Array, TensorModel
from opweld.serve.open_inference import json_fields as fields
from opweld.serve.open_inference.datatypes import BYTES, datatype_of
from opweld.serve.open_inference.infer import Feeds, Output, raw_of
from opweld.serve.open_inference.parameters import Parameter, Wanted, check, flag, place_of, wanted, whole
from opweld.serve.open_inference.regions import Regions
from opweld.serve.refusal import Refusal

_ENCODER: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_ALL_BINARY: Final[Mapping[str, Parameter]] = {"binary_data_output": True}


class InferRequest:
    """A request, decoded and checked.

    Attributes:
        id: as the client named it.
        feeds: of the model; numbers that came as bytes are views of the body.
        wanted: the outputs that are asked for; None: all.
        binary: whether outputs that do not say it are sent as bytes.
    """

    def __init__(self, model: TensorModel, body: bytes, header: int | None, regions: Regions, most: int) -> None:
        """
        Args:
            header: bytes of the body that are JSON; None: all; 0: all of it is the model's only input.
            most: bytes of strings in shared memory.
        """
        if header == 0:
            self.id, self.parameters, self.wanted, self.binary = "", _ALL_BINARY, None, True
            self.feeds: Mapping[str, Array] = _bare(model, body)
            return
        if header is not None and header > len(body):
            raise Refusal(400, f"Inference-Header-Content-Length is {header}, but the body has {len(body)} bytes")
        all_of_it = memoryview(body)
        request = fields.parsed(body if header is None else all_of_it[:header])
        self.id = fields.optional("the request", request, "id", str) or ""
        self.parameters = fields.parameters("the request", request)
        check(self.parameters)
        self.binary = bool(flag("the request", self.parameters, "binary_data_output"))
        asked = fields.objects("the request", request, "outputs")
        self.wanted = [_wanted(one) for one in asked] if asked else None
        rest = all_of_it[len(body) if header is None else header :]
        self.feeds = _feeds(request, rest, Feeds(model, regions, most))


def _wanted(asked: Mapping[str, Any]) -> Wanted:
    name = fields.field("an output", asked, "name", str)
    return wanted(name, fields.parameters(f"output {name}", asked))


def _feeds(request: Mapping[str, Any], rest: memoryview, feeds: Feeds) -> Mapping[str, Array]:
    inputs = fields.objects("the request", request, "inputs")
    if inputs is None:
        raise Refusal(400, "the request has no inputs, expected an array of tensors", param="inputs")
    for given in inputs:
        name = fields.field("an input", given, "name", str)
        where = f"input {name}"
        declared = feeds.declare(name, fields.field(where, given, "datatype", str), fields.shape(where, given))
        parameters = fields.parameters(where, given)
        size = whole(where, parameters, "binary_data_size")
        place = place_of(where, parameters) if parameters else None
        data = given.get("data")
        if (size is not None) + (place is not None) + (data is not None) != 1:
            raise Refusal(
                400, f"{where} has its values in one of data, binary_data_size and shared_memory_region", param=name
            )
        if place is not None:
            feeds.add_shared(declared, place)
        elif size is None:
            feeds.add(declared, declared.of_values(data, finite=True))
        else:
            if size > len(rest):
                raise InputError(f"{name}: binary_data_size is {size}, but {len(rest)} bytes of the body are left")
            feeds.add(declared, declared.of_bytes(rest[:size]))
            rest = rest[size:]
    if len(rest):
        raise InputError(f"{len(rest)} bytes at the end of the body belong to no input; each says its binary_data_size")
    return feeds.complete()


def _bare(model: TensorModel, body: bytes) -> Mapping[str, Array]:
    """A body that is nothing but the bytes of the only input; its shape is what they are enough for, one row of it."""
    if len(model.inputs) != 1:
        raise Refusal(400, f"{model.name} has {len(model.inputs)} inputs: say in JSON before the bytes which they are")
    (spec,) = model.inputs
    if spec.shape is None or spec.dtype.hasobject:
        raise Refusal(400, f"the shape of {spec.name} does not follow from its bytes: say it in JSON before them")
    dims = [1, *spec.shape[1:]] if model.max_batch else [*spec.shape]
    named = [k for k, size in enumerate(dims) if isinstance(size, str)]
    if len(named) > 1:
        raise Refusal(400, f"{spec.name} has {len(named)} dims of any size: say its shape in JSON before the bytes")
    known = 1
    for size in dims:
        known *= 1 if isinstance(size, str) else size
    sizes = [len(body) // max(1, known * spec.dtype.itemsize) if isinstance(size, str) else size for size in dims]
    feeds = Feeds(model, Regions(allowed=False), 0)
    declared = feeds.declare(spec.name, datatype_of(spec.name, spec.dtype), sizes)
    feeds.add(declared, declared.of_bytes(memoryview(body)))
    return feeds.complete()


def answer(model: TensorModel, id: str, outputs: Sequence[Output], binary: bool) -> tuple[bytes, int | None]:
    """The body of an answer, and how much of it is JSON; None: all."""
    told: list[dict[str, Any]] = []
    parts: list[bytes | memoryview] = [b""]
    for output in outputs:
        one: dict[str, Any] = {"name": output.name, "datatype": output.datatype, "shape": output.shape}
        if output.values is None:
            assert output.place is not None
            place = output.place
            one["parameters"] = {
                "shared_memory_region": place.region,
                "shared_memory_offset": place.offset,
                "shared_memory_byte_size": place.size,
            }
        elif output.binary or (output.binary is None and binary):
            raw = raw_of(output.values)
            one["parameters"] = {"binary_data_size": len(raw)}
            parts.append(raw)
        else:
            one["data"] = _values(output.values, output.datatype)
        told.append(one)
    message: dict[str, Any] = {"model_name": model.name, "model_version": model.version}
    if id:
        message["id"] = id
    message["outputs"] = told
    try:
        parts[0] = _ENCODER.encode(message).encode()
    except ValueError:
        raise Refusal(
            400, "an output holds infinity or NaN, which JSON cannot; ask for outputs with binary_data"
        ) from None
    return (parts[0], None) if len(parts) == 1 else (b"".join(parts), len(parts[0]))


def _values(values: Array, datatype: str) -> list[Any]:
    flat = values.reshape(-1)
    if datatype == BYTES:
        return [one if isinstance(one, str) else one.decode(errors="replace") for one in flat]
    return (flat.astype("f4") if datatype in ("BF16", "FP16") else flat).tolist()

"""Inference requests and answers over HTTP: JSON, and behind it the bytes of tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from opweld.serve.inference.model import Array, TensorModel
from opweld.serve.open_inference.datatypes import BYTES, datatype_of
from opweld.serve.open_inference.forms import Forms, form_of
from opweld.serve.open_inference.infer import Output, raw_of
from opweld.serve.open_inference.parameters import Parameter, Wanted
from opweld.serve.open_inference.regions import Regions
from opweld.serve.open_inference.tensors import Declared
from opweld.serve.refusal import Refusal

_ENCODER: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_TOLD: Final = 1024
"""Texts of JSON that are kept: a model is asked again and again, and its outputs mostly have the same shapes."""

_NOTHING: Final = memoryview(b"")
_ALL_BINARY: Final[Mapping[str, Parameter]] = {"binary_data_output": True}


class Asked(NamedTuple):
    """A request, decoded and checked.

    Attributes:
        id: as the client named it.
        feeds: of the model; numbers that came as bytes are views of the body.
        wanted: the outputs that are asked for; None: all.
        binary: whether outputs that do not say it are sent as bytes.
    """

    id: str
    parameters: Mapping[str, Parameter]
    feeds: Mapping[str, Array]
    wanted: Sequence[Wanted] | None
    binary: bool


def asked(model: TensorModel, body: bytes, header: int | None, forms: Forms, regions: Regions, most: int) -> Asked:
    """What a body asks of a model. Raises Refusal, or InputError where its tensors do not fit.

    Args:
        header: bytes of the body that are JSON; None: all; 0: all of it is the model's only input.
        most: bytes of strings in shared memory.
    """
    if header == 0:
        return Asked("", _ALL_BINARY, _bare(model, body), None, binary=True)
    if header is None:
        form, rest = form_of(model, body), _NOTHING
    elif header > len(body):
        raise Refusal(400, f"Inference-Header-Content-Length is {header}, but the body has {len(body)} bytes")
    else:
        whole = memoryview(body)
        form, rest = forms.get(model, whole[:header]), whole[header:]
    return Asked(form.id, form.parameters, form.feeds(rest, regions, most), form.wanted, form.binary)


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
    declared = Declared(spec, datatype_of(spec.name, spec.dtype), sizes)
    return {spec.name: declared.of_bytes(memoryview(body))}


def answer(model: TensorModel, id: str, outputs: Sequence[Output], binary: bool) -> tuple[bytes, int | None]:
    """The body of an answer, and how much of it is JSON; None: all."""
    told: list[str] = []
    parts: list[bytes | memoryview] = [b""]
    for output in outputs:
        if output.values is None:
            place = output.place
            assert place is not None
            values = (
                f',"parameters":{{"shared_memory_region":{_text(place.region)},"shared_memory_offset":{place.offset},'
                f'"shared_memory_byte_size":{place.size}}}}}'
            )
        elif output.binary or (output.binary is None and binary):
            raw = raw_of(output.values)
            values = f',"parameters":{{"binary_data_size":{len(raw)}}}}}'
            parts.append(raw)
        else:
            values = f',"data":{_values(output.values, output.datatype)}}}'
        told.append(_tensor(output.name, output.datatype, output.shape) + values)
    named = f',"id":{_ENCODER.encode(id)}' if id else ""
    begun = f'{{"model_name":{_text(model.name)},"model_version":{_text(model.version)}{named}'
    parts[0] = f'{begun},"outputs":[{",".join(told)}]}}'.encode()
    return (parts[0], None) if len(parts) == 1 else (b"".join(parts), len(parts[0]))


@lru_cache(_TOLD)
def _text(text: str) -> str:
    return _ENCODER.encode(text)


@lru_cache(_TOLD)
def _tensor(name: str, datatype: str, shape: tuple[int, ...]) -> str:
    """What is told of an output, but for its values: an object that is still open."""
    return _ENCODER.encode({"name": name, "datatype": datatype, "shape": shape})[:-1]


def _values(values: Array, datatype: str) -> str:
    """Values in JSON."""
    flat = values.reshape(-1)
    if datatype == BYTES:
        return _ENCODER.encode([one if isinstance(one, str) else one.decode(errors="replace") for one in flat])
    try:
        return _ENCODER.encode((flat.astype("f4") if datatype in ("BF16", "FP16") else flat).tolist())
    except ValueError:
        raise Refusal(
            400, "an output holds infinity or NaN, which JSON cannot; ask for outputs with binary_data"
        ) from None

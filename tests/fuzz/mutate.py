"""Mutations: of the bytes of a file, and of the fields of the message that it holds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor

from tests.fuzz.corpus import source_of

INTEGERS = (
    0, 1, -1, 2, -2, 3, 7, 8, 9, 100_000, 2**31 - 1, -(2**31), 2**31, 2**32, 2**53, 2**62, 2**63 - 1, -(2**63),
)  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 3e38, float("nan"), float("inf"), float("-inf"))
TEXTS = (
    "", "?", "-1", "x" * 100_000, "a\0b", "\x1b[31m", "../../etc/passwd", "/etc/passwd", "größe", "\u202e", "NOTSET",
    "SAME_LOWER", "reverse", "bidirectional", "linear", "n * 2", "9" * 40, "ij,jk->ik", "...",
)  # fmt: skip
OPERATORS = tuple(sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}))
WEIGHTS = {"ModelProto": 0.1, "OperatorSetIdProto": 0.1, "NodeProto": 4, "AttributeProto": 4, "TensorProto": 4,
           "Dimension": 3}  # fmt: skip
"""How often each kind of message is changed, 1 where not named. Whatever is refused at once hides what comes after."""

VALUES = {
    "NodeProto": ("input", "input", "input", "op_type", "output", "attribute"),
    "AttributeProto": ("i", "ints", "f", "floats", "s", "t", "g"),
    "TensorProto": ("raw_data", "raw_data", "dims", "int64_data", "float_data"),
}
"""The fields that say what a message means; the others are names and kinds."""

MOST = 4
"""Mutations of one model. More make a model that is refused at its first check."""


def mutant_of(seed: int) -> tuple[str, bytes]:
    """A broken model file, and what it was made of."""
    choose = random.Random(seed)
    name, model = source_of(choose)
    if choose.random() < 0.9:
        for _ in range(choose.randint(1, MOST)):
            _mutate_field(model, choose)
    data = model.SerializeToString()
    if data and choose.random() < 0.12:
        for _ in range(choose.randint(1, MOST)):
            data = _mutate_bytes(data, choose)
    return name, data


def _mutate_bytes(data: bytes, choose: random.Random) -> bytes:
    at, length = choose.randrange(len(data) + 1), choose.choice((1, 2, 4, 16, 256))
    rest = data[at + length :]
    match choose.randrange(5):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes(byte ^ 1 << choose.randrange(8) for byte in data[at : at + length]) + rest
        case 2:
            return data[:at] + choose.randbytes(length) + data[at:]
        case 3:
            return data[:at] + rest
        case _:
            return data[:at] + data[at : at + length] * choose.randint(2, 50) + rest


def _mutate_field(model: onnx.ModelProto, choose: random.Random) -> None:
    """Changes one field somewhere, by kind of message: most messages of a model are about names."""
    messages = list(_messages(model))
    kinds = sorted({type(message).__name__ for message in messages})
    (kind,) = choose.choices(kinds, [WEIGHTS.get(kind, 1) for kind in kinds])
    message = choose.choice([message for message in messages if type(message).__name__ == kind])
    field = _choose_field(message, kind, choose)
    if field.name == "raw_data" and message.data_type in (onnx.TensorProto.INT64, onnx.TensorProto.FLOAT):
        message.raw_data = _mutate_elements(message, choose)
    elif field.is_repeated:
        _mutate_repeated(getattr(message, field.name), field, model, choose)
    elif choose.random() < 0.1:
        message.ClearField(field.name)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        donors = [other for other in messages if other.DESCRIPTOR is field.message_type]
        getattr(message, field.name).CopyFrom(_copy(choose.choice(donors))) if donors else None
    else:
        setattr(message, field.name, _scalar(field, getattr(message, field.name), model, choose))


def _choose_field(message: Any, kind: str, choose: random.Random) -> FieldDescriptor:
    present = [field for field, _ in message.ListFields()]
    telling = [field for name in VALUES.get(kind, ()) for field in present if field.name == name]
    if telling and choose.random() < 0.8:
        return choose.choice(telling)
    return choose.choice(present if present and choose.random() < 0.85 else message.DESCRIPTOR.fields)


def _mutate_elements(tensor: onnx.TensorProto, choose: random.Random) -> bytes:
    """The data of a tensor with one element changed."""
    dtype, values = (np.int64, INTEGERS) if tensor.data_type == onnx.TensorProto.INT64 else (np.float32, FLOATS)
    data = bytearray(tensor.raw_data)
    if len(data) >= np.dtype(dtype).itemsize:
        array = np.frombuffer(data, dtype, len(data) // np.dtype(dtype).itemsize)
        array[choose.randrange(array.size)] = choose.choice(values)
    return bytes(data)


def _mutate_repeated(values: Any, field: FieldDescriptor, model: onnx.ModelProto, choose: random.Random) -> None:
    action = choose.randrange(5)
    if not values or action == 0:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            donors = [m for m in _messages(model) if m.DESCRIPTOR is field.message_type]
            values.extend([_copy(choose.choice(donors))] if donors else [])
        else:
            values.append(_scalar(field, field.default_value or 0, model, choose))
        return
    at, other = choose.randrange(len(values)), choose.randrange(len(values))
    one = values[at]
    if action == 1:
        del values[at]
    elif action == 2:
        values.extend([one] * choose.choice((1, 1, 2, 100)))
    elif action == 3 and field.type != FieldDescriptor.TYPE_MESSAGE:
        values[at], values[other] = values[other], one
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        one.CopyFrom(_copy(values[other]))
    else:
        values[at] = _scalar(field, one, model, choose)


def _scalar(field: FieldDescriptor, old: Any, model: onnx.ModelProto, choose: random.Random) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        if field.name in ("input", "output") and choose.random() < 0.9:
            return choose.choice([text for node in model.graph.node for text in (*node.input, *node.output)] or [""])
        if field.name != "op_type" and choose.random() < 0.6:
            return choose.choice([text for message in _messages(model) for text in _texts(message)] or [""])
        return choose.choice(OPERATORS if field.name == "op_type" else TEXTS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        data = bytes(old or b"")
        return choose.choice(
            (data[:-1], data + b"\0", b"", choose.randbytes(min(len(data), 1 << 16)), b"\xff", b"linear")
        )
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return choose.choice(FLOATS)
    if field.type == FieldDescriptor.TYPE_ENUM:
        values = field.enum_type.values if field.enum_type is not None else ()
        return choose.choice(values).number
    low, high = (-(2**31), 2**31) if field.type == FieldDescriptor.TYPE_INT32 else (-(2**63), 2**63)
    if field.type == FieldDescriptor.TYPE_UINT64:
        low, high = 0, 2**64
    number = choose.choice((*INTEGERS, old + 1, old - 1, choose.randrange(30)))
    return number if low <= number < high else 0


def _messages(message: Any) -> Iterator[Any]:
    """The message and all those inside."""
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if field.is_repeated else (value,):
                yield from _messages(inner)


def _texts(message: Any) -> Iterator[str]:
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            yield from (value if field.is_repeated else (value,))


def _copy(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy

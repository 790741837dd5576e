"""Classes of messages, made of their table.

They live in a pool of their own: a client's generated messages of the same names in the same process do not meet them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from opweld.serve.open_inference.grpc.messages import ENUMS, MESSAGES

_PACKAGE: Final = "inference"
_Field: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = ("bool", "int32", "int64", "uint32", "uint64", "float", "double", "string", "bytes")


def classes() -> Mapping[str, Any]:
    """The class of each message, by its name."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())  # pyright: ignore[reportDeprecated]
    get = message_factory.GetMessageClass
    return {name: get(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in MESSAGES}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="opweld/open_inference.proto", package=_PACKAGE, syntax="proto3")
    for name, values in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    made: dict[str, descriptor_pb2.DescriptorProto] = {}
    for name in sorted(MESSAGES, key=lambda name: name.count(".")):
        outer, _, inner = name.rpartition(".")
        made[name] = made[outer].nested_type.add(name=inner) if outer else file.message_type.add(name=inner)
    for name, fields in MESSAGES.items():
        for field in fields:
            _add(made[name], name, field.split())
    return file


def _add(message: descriptor_pb2.DescriptorProto, path: str, words: list[str]) -> None:
    number, name, *rest = words
    label = _Field.LABEL_OPTIONAL
    kind = rest.pop(0)
    if kind == "map":
        entry = message.nested_type.add(name="".join(map(str.capitalize, name.split("_"))) + "Entry")
        entry.options.map_entry = True
        _add(entry, "", ["1", "key", "string"])
        _add(entry, "", ["2", "value", rest.pop(0)])
        rest, kind = [f"{path}.{entry.name}"], "repeated"
    if kind == "repeated":
        label, kind = _Field.LABEL_REPEATED, rest.pop(0)
    field = message.field.add(name=name, number=int(number), label=label)
    if kind in _SCALARS:
        field.type = _Field.Type.Value(f"TYPE_{kind.upper()}")
    else:
        field.type = _Field.TYPE_ENUM if kind in ENUMS else _Field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}"
    for oneof in rest:
        known = [one.name for one in message.oneof_decl]
        if oneof not in known:
            message.oneof_decl.add(name=oneof)
            known.append(oneof)
        field.oneof_index = known.index(oneof)


CLASSES: Final = classes()
"""Of all messages, by name."""

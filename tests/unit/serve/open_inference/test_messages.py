"""The table of messages beside those that tritonclient's generator made of the protocol's own file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from tritonclient.grpc import model_config_pb2, service_pb2

from opweld.serve.open_inference.grpc.descriptors import CLASSES
from opweld.serve.open_inference.grpc.messages import ENUMS, METHODS

PARTIAL = {"ModelConfig", "ModelInput", "ModelOutput", "ModelStatistics"}
"""Messages of which we leave fields out."""


def told(field: FieldDescriptor) -> tuple[Any, ...]:
    of = field.message_type or field.enum_type
    oneof = field.containing_oneof
    return (field.number, field.name, field.type, field.is_repeated, of and of.full_name, oneof and oneof.name)


def every(descriptors: Any) -> Iterator[Any]:
    for one in descriptors:
        if not one.GetOptions().map_entry:
            yield one
            yield from every(one.nested_types)


THEIRS = {
    one.full_name.removeprefix("inference."): one
    for file in (service_pb2, model_config_pb2)
    for one in every(file.DESCRIPTOR.message_types_by_name.values())
}


@pytest.mark.parametrize("name", CLASSES)
def test_fields(name: str) -> None:
    ours = {told(one) for one in CLASSES[name].DESCRIPTOR.fields}
    theirs = {told(one) for one in THEIRS[name].fields}
    assert ours <= theirs if name in PARTIAL else ours == theirs
    for one in CLASSES[name].DESCRIPTOR.fields:
        entry = one.message_type
        if entry is not None and entry.GetOptions().map_entry:
            (same,) = [field for field in THEIRS[name].fields if field.name == one.name]
            assert [told(field) for field in entry.fields] == [told(field) for field in same.message_type.fields]


def test_all_of_the_service() -> None:
    service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    assert list(METHODS) == [method.name for method in service.methods]
    for method in service.methods:
        assert {method.input_type.name, method.output_type.name} <= set(CLASSES)
    values = model_config_pb2.DESCRIPTOR.enum_types_by_name["DataType"].values
    assert {value.name: value.number for value in values} == {name: k for k, name in enumerate(ENUMS["DataType"])}

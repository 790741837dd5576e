"""What requests say beside their tensors, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from opweld.serve.refusal import Refusal

Parameter: TypeAlias = bool | int | float | str

_RESERVED: Final = "triton_"
_FINAL: Final = "triton_enable_empty_final_response"


@dataclass(frozen=True)
class Place:
    """A part of a shared memory region."""

    region: str
    offset: int
    size: int


@dataclass(frozen=True)
class Wanted:
    """An output that a request asks for.

    Attributes:
        binary: whether HTTP's answer has it behind the JSON; None: as the whole request says.
        classes: how many of its largest values are answered in its place; 0: itself.
        place: the shared memory that it is written to.
    """

    name: str
    binary: bool | None = None
    classes: int = 0
    place: Place | None = None


def wanted(name: str, parameters: Mapping[str, Parameter]) -> Wanted:
    """An output, as its parameters ask for it; those that are unknown change nothing."""
    if not parameters:
        return Wanted(name)
    where = f"output {name}"
    classes = whole(where, parameters, "classification") or 0
    place = place_of(where, parameters)
    if classes and place is not None:
        raise Refusal(400, f"{where}: its classification is not written to shared memory; ask for one or the other")
    return Wanted(name, flag(where, parameters, "binary_data"), classes, place)


def deadline_of(parameters: Mapping[str, Parameter], begun: float) -> float | None:
    """When a request ends that began at a second of `time.monotonic`; its timeout is in microseconds, 0 is none."""
    microseconds = whole("the request", parameters, "timeout") if parameters else None
    return begun + microseconds * 1e-6 if microseconds else None


def check(parameters: Mapping[str, Parameter]) -> None:
    """Refuses parameters of a request that are reserved. Those of sequences and priorities change nothing: models hold
    no state, and calls are answered as they come. Others are for models, which read none."""
    for name in parameters:
        if name.startswith(_RESERVED) and name != _FINAL:
            raise Refusal(400, f"parameter {name}: names that begin with {_RESERVED} are reserved", param=name)
    if "priority" in parameters:
        whole("the request", parameters, "priority")


def place_of(where: str, parameters: Mapping[str, Parameter]) -> Place | None:
    """The shared memory that parameters of a tensor name."""
    region, size = parameters.get("shared_memory_region"), whole(where, parameters, "shared_memory_byte_size")
    if region is None and size is None:
        return None
    if not isinstance(region, str) or size is None:
        raise Refusal(400, f"{where}: shared_memory_region, a string, and shared_memory_byte_size go together")
    return Place(region, whole(where, parameters, "shared_memory_offset") or 0, size)


def whole(where: str, parameters: Mapping[str, Parameter], name: str) -> int | None:
    """A parameter that is an integer of 0 or more; None where it is not given."""
    value = parameters.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise Refusal(400, f"{where}: {name} is {value!r}, expected an integer of 0 or more", param=name)
    return value


def flag(where: str, parameters: Mapping[str, Parameter], name: str) -> bool | None:
    """A parameter that is a boolean; None where it is not given."""
    value = parameters.get(name)
    if value is not None and not isinstance(value, bool):
        raise Refusal(400, f"{where}: {name} is {value!r}, expected true or false", param=name)
    return value

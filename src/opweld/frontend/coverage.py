"""The operators of known domains, and how opweld compiles each, as printed by `opweld operators`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import onnx

from opweld.frontend.check import OLDEST_OPSET
from opweld.frontend.definitions import DEFINED_DOMAINS
from opweld.frontend.sequences import RESOLVED
from opweld.ops.registry import OPSET, is_supported, supported
from opweld.tensor.dtype import DType
from opweld.tensor.externs import EXTERNS
from opweld.tensor.operators import BINARY, REDUCTIONS, UNARY

How = Literal["lowered", "resolved", "definition", "refused"]

OTHER_PRIMITIVES = ("constant", "index", "load", "select", "cast", "scan")
"""Expressions other than unary and binary operators and reductions; and the recurrence."""

_INTERNAL = "opweld"


@dataclass(frozen=True)
class Operator:
    """One operator.

    Attributes:
        domain, name: as in models.
        since: the opset of its domain that defined its present version; 0 for domains unknown to onnx.
        how: written as expressions by opweld, resolved into other operators or constants while a model is loaded,
            expanded to ONNX's definition, or rejected.
    """

    domain: str
    name: str
    since: int
    how: How


@dataclass(frozen=True)
class Coverage:
    """All operators of the known domains, and the primitives that they lower to."""

    operators: tuple[Operator, ...]
    primitives: tuple[str, ...]
    externs: tuple[str, ...]
    dtypes: tuple[str, ...]
    opsets: tuple[int, int]


def coverage() -> Coverage:
    """The coverage of this version."""
    found = {(o.domain, o.name): o for o in map(_operator, _newest_schemas())}
    for qualified in supported():
        domain, _, name = qualified.rpartition("::")
        if domain != _INTERNAL and (domain, name) not in found:
            found[domain, name] = Operator(domain, name, 0, "lowered")
    return Coverage(
        tuple(found[key] for key in sorted(found)),
        (*sorted((*UNARY, *BINARY)), *sorted(REDUCTIONS), *OTHER_PRIMITIVES),
        tuple(sorted(EXTERNS)),
        tuple(str(dtype.numpy) for dtype in DType),
        (OLDEST_OPSET, OPSET),
    )


def _newest_schemas() -> list[Any]:
    """The schemas of ai.onnx at `OPSET`, and of ai.onnx.ml, without training operators and deprecated ones."""
    newest: dict[tuple[str, str], Any] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        key = schema.domain, schema.name
        usable = schema.domain == "ai.onnx.ml" or (schema.domain == "" and schema.since_version <= OPSET)
        if usable and (key not in newest or newest[key].since_version < schema.since_version):
            newest[key] = schema
    return [schema for schema in newest.values() if not schema.deprecated]


def _operator(schema: Any) -> Operator:
    how: How = "refused"
    if is_supported(schema.domain, schema.name):
        how = "lowered"
    elif (schema.domain, schema.name) in RESOLVED:
        how = "resolved"
    elif schema.domain in DEFINED_DOMAINS and (schema.has_function or schema.has_context_dependent_function):
        how = "definition"
    return Operator(schema.domain, schema.name, schema.since_version, how)

"""Element types of a node's inputs, checked against the operator's definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.operands import describe
from opweld.tensor.dtype import DType


@dataclass(frozen=True)
class _Signature:
    """The type of each input: a variable such as T or a plain type; the last one repeats when `repeats`."""

    inputs: tuple[str, ...]
    names: tuple[str, ...]
    repeats: bool
    same: bool
    allowed: Mapping[str, frozenset[str]]


def check_types(node: ir.Node, dtypes: Sequence[DType | None]) -> None:
    """Raises ModelError when an input has an element type that the operator does not take, or two inputs that must have
    one type differ. `dtypes` are None for absent inputs; operators of other domains are not checked."""
    signature = _signature(node.op_type) if node.domain in ("", "ai.onnx") else None
    if signature is None:
        return
    bound: dict[str, DType] = {}
    for position, dtype in enumerate(dtypes):
        if position >= len(signature.inputs) and not signature.repeats:
            return
        place = min(position, len(signature.inputs) - 1)
        if dtype is None or place < 0:
            continue
        variable, name = signature.inputs[place], signature.names[place]
        allowed = signature.allowed.get(variable, frozenset((variable,)))
        if _type(dtype) not in allowed:
            raise ModelError(f"{describe(node)}: input {name!r} must not be {dtype!r}")
        last = signature.repeats and place == len(signature.inputs) - 1
        if variable not in signature.allowed or (last and not signature.same):
            continue
        if bound.setdefault(variable, dtype) is not dtype:
            raise ModelError(
                f"{describe(node)}: inputs must have one element type, but {name!r} is {dtype!r} "
                f"after {bound[variable]!r}"
            )


@cache
def _type(dtype: DType) -> str:
    """As schemas call it."""
    import onnx

    return f"tensor({onnx.TensorProto.DataType.Name(dtype.onnx).lower()})"


@cache
def _signature(op_type: str) -> _Signature | None:
    import onnx

    from opweld.frontend.check import NEWEST_OPSET

    try:
        schema: Any = onnx.defs.get_schema(op_type, NEWEST_OPSET, "")
    except onnx.defs.SchemaError:
        return None
    formals = list(schema.inputs)
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    return _Signature(
        inputs=tuple(formal.type_str for formal in formals),
        names=tuple(formal.name for formal in formals),
        repeats=bool(formals) and formals[-1].option == variadic,
        same=bool(formals) and bool(formals[-1].is_homogeneous),
        allowed={
            constraint.type_param_str: frozenset(constraint.allowed_type_strs) for constraint in schema.type_constraints
        },
    )

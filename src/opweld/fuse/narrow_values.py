"""Values of 16 bits stay as they are in memory: who computes with them in float32 widens them as it reads.

Importers write a cast of its own before each operator, which would be computed with the value before it and stored
twice as wide. Where arithmetic is free beside memory, as on a GPU, the cast belongs to every reader; a product of two
such operands is then one of 16 bits, whose sums are of 32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opweld.fuse.legality import inline
from opweld.tensor.algebra import simplify
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Cast, Expr, Load, cast, load, substitute_loads
from opweld.tensor.program import Item, Tensor, TensorProgram, item_inputs


def widen_in_readers(program: TensorProgram) -> TensorProgram:
    """The program without tensors that only widen a value of 16 bits, as far as none but tensors read them."""
    outputs = {value for _, value in program.outputs}
    whole = {name for item in program.items if not isinstance(item, Tensor) for name in item_inputs(item)}
    wide: dict[str, Tensor] = {}
    items: list[Item] = []
    for item in program.items:
        if isinstance(item, Tensor):
            if _widens(item) and item.name not in outputs | whole:
                wide[item.name] = item
                continue
            body = substitute_loads(item.body, lambda node: _widened(node, wide))
            item = replace(item, body=body) if body is not item.body else item
        items.append(item)
    return replace(program, items=tuple(items))


def _widened(node: Load, wide: Mapping[str, Tensor]) -> Expr | None:
    """A load of a value that was widened, as a cast of one of what it was widened from; where its guards do not hold,
    of what it would be there."""
    tensor = wide.get(node.tensor)
    if tensor is None:
        return None
    plain = load(node.tensor, node.dtype, node.indices)
    assert isinstance(plain, Load)
    made = inline(plain, tensor)
    if node.fill is None:
        return made
    assert isinstance(made, Cast) and isinstance(made.x, Load)
    narrow = made.x
    fill = simplify(cast(node.fill, narrow.dtype))
    if narrow.guards or simplify(cast(fill, node.dtype)) is not node.fill:
        return inline(node, tensor)
    return cast(load(narrow.tensor, narrow.dtype, narrow.indices, node.guards, fill), node.dtype)


def _widens(tensor: Tensor) -> bool:
    """Whether each element is one of another tensor, of 16 bits, in float32."""
    body = tensor.body
    if not isinstance(body, Cast) or body.dtype is not DType.F32 or not isinstance(body.x, Load):
        return False
    return body.x.dtype in (DType.F16, DType.BF16)

"""What operators of other packages are written with; docs/guides/your-own-rules-and-operators.md says how.

They are registered as opweld's own are, see `ops/registry.py`: what they infer, and what each element is."""

from opweld import ops as ops  # opweld's own operators come first
from opweld.errors import ModelError, UnsupportedError
from opweld.ir import Graph, Node, Value
from opweld.ops.arithmetic import add, div, larger, mul, number, root, smaller, square, sub, where, widen
from opweld.ops.emitted import Emitted, Indices, define, emit
from opweld.ops.fact import Fact
from opweld.ops.kernel import kernel
from opweld.ops.operands import (
    describe,
    given,
    known_integers,
    known_numbers,
    normalize_axis,
    require_float,
    require_rank,
    require_same_dtype,
    required,
)
from opweld.ops.registry import (
    Inference,
    Lowering,
    attribute,
    computes,
    fresh_axes,
    infers,
    lowers,
    required_attribute,
)
from opweld.ops.rows import Rows, rows_along
from opweld.tensor.dim import Dim, as_dim, ceildiv, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, const, index, reduce, select, unary
from opweld.tensor.function import TritonKernel

__all__ = [
    "DType",
    "Dim",
    "Emitted",
    "Expr",
    "Fact",
    "Graph",
    "Indices",
    "Inference",
    "Lowering",
    "ModelError",
    "Node",
    "Rows",
    "TritonKernel",
    "UnsupportedError",
    "Value",
    "add",
    "as_dim",
    "attribute",
    "binary",
    "cast",
    "ceildiv",
    "computes",
    "const",
    "define",
    "describe",
    "div",
    "emit",
    "fresh_axes",
    "given",
    "index",
    "infers",
    "kernel",
    "known_integers",
    "known_numbers",
    "larger",
    "lowers",
    "mul",
    "normalize_axis",
    "number",
    "product",
    "reduce",
    "require_float",
    "require_rank",
    "require_same_dtype",
    "required",
    "required_attribute",
    "root",
    "rows_along",
    "select",
    "smaller",
    "square",
    "sub",
    "unary",
    "where",
    "widen",
]

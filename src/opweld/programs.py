"""What tensor programs are written with, for `opweld.compile`; docs/guides/add-a-frontend.md says how.

A program is parsed from its text, or put together from what is here. `docs/architecture.md` tells what it means."""

from opweld.tensor.dim import Axis, Dim, Symbol, Value, as_dim, floordiv, maximum, minimum, mod
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, bitcast, cast, const, index, load, reduce, select, unary
from opweld.tensor.flow import LAST, Ending, Flow, Segment, Stack, interpret_flow
from opweld.tensor.interpret import interpret
from opweld.tensor.program import (
    Constant,
    Extern,
    Guard,
    Input,
    Item,
    Persistent,
    Result,
    Scan,
    State,
    SymbolSource,
    Tensor,
    TensorProgram,
)
from opweld.tensor.text import parse_program, print_program
from opweld.tensor.verify import verify

__all__ = [
    "LAST",
    "Axis",
    "Constant",
    "DType",
    "Dim",
    "Ending",
    "Expr",
    "Extern",
    "Flow",
    "Guard",
    "Input",
    "Item",
    "Persistent",
    "Result",
    "Scan",
    "Segment",
    "Stack",
    "State",
    "Symbol",
    "SymbolSource",
    "Tensor",
    "TensorProgram",
    "Value",
    "as_dim",
    "binary",
    "bitcast",
    "cast",
    "const",
    "floordiv",
    "index",
    "interpret",
    "interpret_flow",
    "load",
    "maximum",
    "minimum",
    "mod",
    "parse_program",
    "print_program",
    "reduce",
    "select",
    "unary",
    "verify",
]

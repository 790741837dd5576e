"""Vector programs: what a tile program becomes once every tile is vectors in named registers. Close to C, prints as C.

    Function   = name, header, grid axes, body
    Statement  = Define(type, name, value) | Assign(target, value) | Update(name, sign, value) | Do(call) | Return
               | For(variable, lower, upper, body, step, unroll) | While(condition, body)
               | If(condition, then, otherwise)
    Expression = Name(name)                        a register, pointer, integer or mask that the program defines
               | Literal(value, dtype)             one number
               | Call(function, operands)          a function of opweld_vector.h, opweld_math.h or opweld_kernel.h
               | Prefix(sign, operand)             - ~ ! & *
               | Infix(sign, left, right)          arithmetic, comparison, logic; on a pointer, + moves it
               | Element(pointer, index)           one element in memory, or one lane of a vector
               | Conditional(condition, then, otherwise)
               | Convert(type, operand)            a cast of C
               | Bytes(data)                       the initialiser of a table

Expressions are values: compared, counted and taken apart as such. Only `render.py` makes text of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

from opweld.tensor.dtype import DType


@dataclass(frozen=True)
class Name:
    """What the program, or the ABI of kernels, defines under this name."""

    name: str


@dataclass(frozen=True)
class Literal:
    """One number; booleans are the masks 0 and -1."""

    value: float | int | bool
    dtype: DType = DType.I64


@dataclass(frozen=True)
class Call:
    """The result of a function."""

    function: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class Prefix:
    """A sign before its operand."""

    sign: str
    operand: Expression


@dataclass(frozen=True)
class Infix:
    """A sign between its operands."""

    sign: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Element:
    """One element."""

    pointer: Expression
    index: Expression


@dataclass(frozen=True)
class Bytes:
    """The elements of a table of bytes, where it is defined."""

    data: bytes


@dataclass(frozen=True)
class Conditional:
    """One of two values; the other is not computed."""

    condition: Expression
    then: Expression
    otherwise: Expression


@dataclass(frozen=True)
class Convert:
    """A value as another type of C."""

    type: str
    operand: Expression


Expression: TypeAlias = Name | Literal | Call | Prefix | Infix | Element | Conditional | Convert | Bytes


def call(function: str, *operands: Expression) -> Call:
    """A call."""
    return Call(function, operands)


def integer(value: int) -> Literal:
    """An int64."""
    return Literal(value)


def chain(sign: str, *operands: Expression) -> Expression:
    """Operands joined by one sign, from the left."""
    return reduce(lambda left, right: Infix(sign, left, right), operands)


def moved(pointer: Expression, index: Expression) -> Expression:
    """The pointer to an element some way on."""
    return pointer if index == integer(0) else plus(pointer, index)


def plus(left: Expression, right: Expression) -> Expression:
    """A sum of integers, or of a pointer and integers, without parentheses: `a + (b - c)` is `a + b - c`."""
    if isinstance(right, Infix) and right.sign in ("+", "-"):
        return Infix(right.sign, plus(left, right.left), right.right)
    return Infix("+", left, right)


def operands_of(expression: Expression) -> tuple[Expression, ...]:
    """What an expression is made of."""
    if isinstance(expression, Call):
        return expression.operands
    if isinstance(expression, Prefix | Convert):
        return (expression.operand,)
    if isinstance(expression, Infix):
        return expression.left, expression.right
    if isinstance(expression, Element):
        return expression.pointer, expression.index
    if isinstance(expression, Conditional):
        return expression.condition, expression.then, expression.otherwise
    return ()


def size_of(expression: Expression) -> int:
    """How many nodes an expression has."""
    count, todo = 0, [expression]
    while todo:
        count += 1
        todo += operands_of(todo.pop())
    return count


# ---- statements ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Define:
    """A new name; without a value it is assigned later."""

    type: str
    name: str
    value: Expression | None = None


@dataclass(frozen=True)
class Assign:
    """A new value for a name, or for what a pointer points to."""

    target: Expression
    value: Expression


@dataclass(frozen=True)
class Update:
    """Combines a name with a value, in place."""

    name: Name
    sign: str
    value: Expression


@dataclass(frozen=True)
class Do:
    """A call for its effect."""

    call: Call


@dataclass(frozen=True)
class Return:
    """Ends the kernel."""


@dataclass(frozen=True)
class For:
    """`variable` counts from `lower` to below `upper`; `unroll` bodies are laid out in a row."""

    variable: str
    lower: Expression
    upper: Expression
    body: tuple[VectorStatement, ...]
    step: int = 1
    unroll: int = 1


@dataclass(frozen=True)
class While:
    """Repeats while the condition holds."""

    condition: Expression
    body: tuple[VectorStatement, ...]


@dataclass(frozen=True)
class If:
    """Either block."""

    condition: Expression
    then: tuple[VectorStatement, ...]
    otherwise: tuple[VectorStatement, ...] = ()


VectorStatement: TypeAlias = Define | Assign | Update | Do | Return | For | While | If


@dataclass(frozen=True)
class GridAxis:
    """One axis of the linearised grid: its variable and its extent."""

    variable: str
    extent: Expression


@dataclass(frozen=True)
class Function:
    """A kernel: `header` once, then `body` for each iteration of the grid."""

    name: str
    header: tuple[VectorStatement, ...]
    grid: tuple[GridAxis, ...]
    body: tuple[VectorStatement, ...]

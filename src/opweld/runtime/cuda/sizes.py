"""Sizes as text: integers and symbols, behind a mark, in reverse Polish order, `$n 64 * 127 + 128 //`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from opweld.errors import ArtifactError

Size: TypeAlias = str

MARK = "$"
"""What a symbol begins with: its name may be that of an operator, or a number."""

OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda x, y: x + y,
    "*": lambda x, y: x * y,
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "min": min,
    "max": max,
}
"""Operators of two integers; quotients are rounded down."""


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """The size for these values of symbols. Raises ArtifactError for text that is no size."""
    stack: list[int] = []
    try:
        for word in size.split():
            if (operator := OPERATORS.get(word)) is not None:
                right, left = stack.pop(), stack.pop()
                stack.append(operator(left, right))
            else:
                stack.append(values[word[len(MARK) :]] if word.startswith(MARK) else int(word))
        (value,) = stack
    except (IndexError, KeyError, ValueError, ZeroDivisionError) as error:
        raise ArtifactError(f"{size!r} is no size; compile the model again") from error
    return value

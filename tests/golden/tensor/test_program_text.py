"""The printed form of programs, and of what simplification makes of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opweld.tensor.simplify import simplify_program
from opweld.tensor.text import print_program
from tests.unit.tensor.programs import EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_program(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.txt", print_program(EXAMPLES[name]().program))


def test_simplified_normalization(golden: Callable[[str, str], None]) -> None:
    golden("normalization.simplified.txt", print_program(simplify_program(EXAMPLES["normalization"]().program)))

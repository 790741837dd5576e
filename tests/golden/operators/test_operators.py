"""docs/operators.md is what `opweld operators` prints."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opweld.cli.operators import operators

HEAD = """# Operators

What `opweld operators` prints; `pytest tests/golden --update-golden` writes it anew. An operator is *lowered* to index
expressions (see [architecture.md](architecture.md)), or *resolved* into other operators as a model is loaded, or
replaced by its *definition*, which ONNX writes with other operators, or *refused* with a message that names it.

```
"""


def test_the_list_of_operators(golden: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]) -> None:
    operators()
    golden("../../../docs/operators.md", f"{HEAD}{capsys.readouterr().out}```\n")

"""Golden files: `pytest tests/golden --update-golden` writes them anew; read the difference before you keep it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", default=False, help="write golden files anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with the golden file of this name beside the test; writes it with --update-golden."""
    # The option is unknown to a run that was not started at this folder; nothing is updated then.
    update = bool(request.config.getoption("--update-golden", default=False))

    def check(name: str, text: str) -> None:
        path = Path(request.path).parent / name
        if update:
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"no golden file {path.name}; run pytest tests/golden --update-golden"
        assert text == path.read_text(encoding="utf-8")

    return check

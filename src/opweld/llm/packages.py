"""Packages that only language models need: imported when they are, and named with a remedy when they are missing."""

from __future__ import annotations

import importlib
from typing import Any

from opweld.errors import UnsupportedError


def package(name: str) -> Any:
    """The module of that name. Raises UnsupportedError saying what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnsupportedError(f"language models need {name}: pip install 'opweld[llm]' ({error})") from error

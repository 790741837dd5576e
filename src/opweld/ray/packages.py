"""Ray and pyarrow, which lack types for most of what is used here: what comes from them is checked where it enters."""

from __future__ import annotations

import importlib
from typing import Any

from opweld.errors import UnsupportedError


def package(name: str) -> Any:
    """The module of that name. Raises UnsupportedError saying what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnsupportedError(f"opweld.ray needs {name}: pip install 'opweld[ray]' ({error})") from error


ray = package("ray")
parquet = package("pyarrow.parquet")
data = package("ray.data")
exceptions = package("ray.exceptions")
BlockAccessor = package("ray.data.block").BlockAccessor

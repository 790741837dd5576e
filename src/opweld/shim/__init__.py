"""Programs that import onnxruntime, run by opweld without being changed.

    python -m opweld.shim program.py ARGUMENTS
    python -m opweld.shim -m module ARGUMENTS
    PYTHONPATH=$(python -m opweld.shim --path) program      whatever starts Python

The folder `site` holds a package named onnxruntime that hands on `opweld.runtime.onnxruntime_api`. It is on nobody's
path until one of these puts it there, before the real one. Parts of the real one that are plain Python (quantization,
transformers, tools) are found behind it where that is installed, and its compiled code is never loaded.
"""

from __future__ import annotations

import sys
from pathlib import Path

SITE = Path(__file__).parent / "site"
"""The folder to put on a path."""


def install() -> None:
    """Has this process import opweld where it asks for onnxruntime, and processes that multiprocessing starts from it.

    Raises ImportError when the real onnxruntime was imported already."""
    loaded = sys.modules.get("onnxruntime")
    if loaded is not None and not str(loaded.__file__).startswith(str(SITE)):
        raise ImportError("onnxruntime was imported before opweld.shim.install(); call it first", name="onnxruntime")
    if str(SITE) not in sys.path:
        sys.path.insert(0, str(SITE))

"""The identity of the package."""

from __future__ import annotations

from opweld.onnxruntime import API_VERSION


def get_package_name_and_version_info() -> tuple[str, str, str]:
    """Name of the package, its version, and that of CUDA, which is empty."""
    return "onnxruntime", API_VERSION, ""

"""What package this is."""

from __future__ import annotations

from opweld.onnxruntime import API_VERSION


def get_package_name_and_version_info() -> tuple[str, str, str]:
    """Name of the package, its version, and that of CUDA, which is none."""
    return "onnxruntime", API_VERSION, ""

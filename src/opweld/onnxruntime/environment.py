"""What onnxruntime tells of itself, and what it sets for a whole process."""

from __future__ import annotations

from typing import Final

from opweld.onnxruntime.session_options import PROVIDER

API_VERSION: Final = "1.31.1"
"""The release of onnxruntime whose calls these are."""


def get_available_providers() -> list[str]:
    """What sessions can run on."""
    return [PROVIDER]


def get_all_providers() -> list[str]:
    """What sessions can run on."""
    return [PROVIDER]


def get_device() -> str:
    """What sessions run on."""
    return "CPU"


def get_version_string() -> str:
    """The release of onnxruntime whose calls these are: what programs compare with the least that they need."""
    return API_VERSION


def get_build_info() -> str:
    """Says that this is opweld."""
    from opweld import __version__

    return f"opweld {__version__}, with the calls of onnxruntime {API_VERSION}"


def set_default_logger_severity(severity: int) -> None:
    """Without effect: runs write no log. What is compiled is logged by `logging.getLogger("opweld")`."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """Without effect: runs write no log."""


def set_seed(seed: int) -> None:
    """Without effect: an operator that draws random numbers has its seed in the model, or one made of its name."""


def disable_telemetry_events() -> None:
    """Without effect: opweld reports nothing to anybody."""


def enable_telemetry_events() -> None:
    """Without effect: opweld reports nothing to anybody."""

"""Version, devices and process-wide settings of onnxruntime."""

from __future__ import annotations

from typing import Final

from opweld.onnxruntime.session_options import PROVIDER

API_VERSION: Final = "1.31.1"
"""The release of onnxruntime whose API this is."""


def get_available_providers() -> list[str]:
    """The execution providers that sessions can use."""
    return [PROVIDER]


def get_all_providers() -> list[str]:
    """The execution providers that sessions can use."""
    return [PROVIDER]


def get_device() -> str:
    """The device on which sessions run."""
    return "CPU"


def get_version_string() -> str:
    """The release of onnxruntime whose API this is, for programs that require a minimum."""
    return API_VERSION


def get_build_info() -> str:
    """A text that identifies opweld."""
    from opweld import __version__

    return f"opweld {__version__}, with the API of onnxruntime {API_VERSION}"


def set_default_logger_severity(severity: int) -> None:
    """Without effect: runs write no log. What is compiled is logged by `logging.getLogger("opweld")`."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """Without effect: runs write no log."""


def set_seed(seed: int) -> None:
    """Without effect: an operator that draws random numbers has its seed in the model, or one derived from its name."""


def disable_telemetry_events() -> None:
    """Without effect: opweld reports nothing to anybody."""


def enable_telemetry_events() -> None:
    """Without effect: opweld reports nothing to anybody."""

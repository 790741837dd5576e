"""The API of onnxruntime. `import opweld as ort` serves most programs.

Programs that cannot be changed run under `python -m opweld.shim`. Names of onnxruntime that are missing here are not
supported, and raise Python's own errors. Nothing else in opweld depends on this package."""

from opweld.onnxruntime.environment import (
    API_VERSION,
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_version_string,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_seed,
)
from opweld.onnxruntime.io_binding import (
    IOBinding,
    OrtDevice,
    OrtValue,
)
from opweld.onnxruntime.session import (
    InferenceSession,
    ModelMetadata,
    NodeArg,
)
from opweld.onnxruntime.session_options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtDevice",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]

__version__ = API_VERSION

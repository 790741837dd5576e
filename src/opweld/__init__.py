"""opweld: an inference compiler. ONNX models in, few fused native kernels out, every decision explained.

    session = opweld.InferenceSession("model.onnx")   # onnxruntime's calls: import opweld as ort
    outputs = session.run(None, {"x": x})

    model = opweld.compile("model.onnx", threads=2)
    model.run({"x": x})
    model.save("model.opweld")
    opweld.load("model.opweld")

Importing this package imports nothing else: each public name brings in what it needs when it is first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opweld.compile import Model as Model
    from opweld.compile import compile as compile
    from opweld.compile import load as load
    from opweld.compile import optimize as optimize
    from opweld.compress.compress import compress as compress
    from opweld.errors import OpweldError as OpweldError
    from opweld.experiments.bisect import bisect as bisect
    from opweld.experiments.contest import bench as bench
    from opweld.experiments.traced import trace as trace
    from opweld.experiments.verified import verify as verify
    from opweld.inspection import analyze as analyze
    from opweld.inspection import explain as explain
    from opweld.onnxruntime import *  # noqa: F403
    from opweld.onnxruntime import capi as capi
    from opweld.quantize.quantize import quantize as quantize

__version__ = "0.1.0"

_ONNXRUNTIME = (
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
)
"""The names of onnxruntime: `import opweld as ort`."""

_HOMES = {
    "Model": "opweld.compile",
    "OpweldError": "opweld.errors",
    "analyze": "opweld.inspection",
    "bench": "opweld.experiments.contest",
    "bisect": "opweld.experiments.bisect",
    "compile": "opweld.compile",
    "compress": "opweld.compress.compress",
    "explain": "opweld.inspection",
    "load": "opweld.compile",
    "optimize": "opweld.compile",
    "quantize": "opweld.quantize.quantize",
    "trace": "opweld.experiments.traced",
    "verify": "opweld.experiments.verified",
    **dict.fromkeys(_ONNXRUNTIME, "opweld.onnxruntime"),
}
"""Where each public name lives."""

__all__ = ["__version__", "capi", *_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


class _Package(ModuleType):
    """This package's own type. Its public names are properties of the type, so that they win over submodules.

    `opweld.compile` is a function that lives in the module `opweld.compile`. Importing that module makes Python set
    the package's attribute `compile` to the module; a property that ignores it keeps the function in place.
    """

    def __dir__(self) -> list[str]:
        own = (name for name in super().__dir__() if name.startswith("__"))
        return sorted({*own, "capi", *_HOMES})

    def __getattr__(self, name: str) -> ModuleType:
        if name != "capi":
            raise AttributeError(f"module 'opweld' has no attribute {name!r}")
        return import_module("opweld.onnxruntime.capi")


def _public(name: str, home: str) -> property:
    def get(_: _Package) -> Any:
        return getattr(import_module(home), name)

    def ignore_module(package: _Package, value: object) -> None:
        if not isinstance(value, ModuleType):
            raise AttributeError(f"opweld.{name} cannot be replaced")

    return property(get, ignore_module)


for _name, _home in _HOMES.items():
    setattr(_Package, _name, _public(_name, _home))
sys.modules[__name__].__class__ = _Package

"""opweld: an inference compiler. ONNX models in, few fused native kernels out, every decision explained.

    session = opweld.InferenceSession("model.onnx")
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
    from opweld.compile import explain as explain
    from opweld.compile import load as load
    from opweld.errors import OpweldError as OpweldError
    from opweld.runtime.onnxruntime_api import GraphOptimizationLevel as GraphOptimizationLevel
    from opweld.runtime.onnxruntime_api import InferenceSession as InferenceSession
    from opweld.runtime.onnxruntime_api import SessionOptions as SessionOptions

__version__ = "0.1.0"

_HOMES = {
    "GraphOptimizationLevel": "opweld.runtime.onnxruntime_api",
    "InferenceSession": "opweld.runtime.onnxruntime_api",
    "Model": "opweld.compile",
    "OpweldError": "opweld.errors",
    "SessionOptions": "opweld.runtime.onnxruntime_api",
    "compile": "opweld.compile",
    "explain": "opweld.compile",
    "load": "opweld.compile",
}
"""Where each public name lives."""

__all__ = ["__version__", *_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


class _Package(ModuleType):
    """This package's own type. Its public names are properties of the type, so that they win over submodules.

    `opweld.compile` is a function that lives in the module `opweld.compile`. Importing that module makes Python set
    the package's attribute `compile` to the module; a property that ignores it keeps the function in place.
    """

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_HOMES})


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

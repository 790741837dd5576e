"""onnxruntime's inner modules by the path that programs spell: they are those of `opweld.onnxruntime.capi`."""

from __future__ import annotations

import sys
from types import ModuleType

from opweld.onnxruntime import capi

for _name, _module in vars(capi).items():
    if isinstance(_module, ModuleType):
        sys.modules[f"{__name__}.{_name}"] = _module
sys.modules[__name__] = capi

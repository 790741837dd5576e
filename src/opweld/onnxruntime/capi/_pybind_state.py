"""`onnxruntime_pybind11_state` by the name that onnxruntime's own Python has for it."""

from opweld.onnxruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403

"""See `opweld.capi.onnxruntime_pybind11_state`."""

from opweld.capi.onnxruntime_pybind11_state import *  # noqa: F403

"""See `opweld.onnxruntime.capi.onnxruntime_pybind11_state`."""

from opweld.onnxruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403

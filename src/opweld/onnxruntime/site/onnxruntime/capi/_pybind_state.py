"""See `opweld.onnxruntime.capi._pybind_state`."""

from opweld.onnxruntime.capi._pybind_state import *  # noqa: F403

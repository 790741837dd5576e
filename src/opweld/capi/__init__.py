"""Where programs look for onnxruntime's errors."""

from opweld.capi import onnxruntime_pybind11_state as onnxruntime_pybind11_state

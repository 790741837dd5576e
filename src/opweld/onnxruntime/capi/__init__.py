"""The inner modules of onnxruntime that programs import."""

from opweld.onnxruntime.capi import _pybind_state as _pybind_state
from opweld.onnxruntime.capi import onnxruntime_inference_collection as onnxruntime_inference_collection
from opweld.onnxruntime.capi import onnxruntime_pybind11_state as onnxruntime_pybind11_state
from opweld.onnxruntime.capi import onnxruntime_validation as onnxruntime_validation

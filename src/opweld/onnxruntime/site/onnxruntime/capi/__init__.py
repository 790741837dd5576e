"""The inner modules that programs reach into."""

from onnxruntime.capi import _pybind_state as _pybind_state
from onnxruntime.capi import onnxruntime_inference_collection as onnxruntime_inference_collection
from onnxruntime.capi import onnxruntime_pybind11_state as onnxruntime_pybind11_state
from onnxruntime.capi import onnxruntime_validation as onnxruntime_validation
